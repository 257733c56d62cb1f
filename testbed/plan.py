"""What to tell the kernel to get a topology: a pure function from the topology and the settings to netlink requests.

Switch ends live in the fabric's namespace with the indexes 1000, 1001, ...; a host's NICs in the host's, from 100 on
(below, a kernel may have tunnels that it gives every namespace).
Because the indexes are ours, every later request can be written before the first one has been sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

from testbed import rtnl
from testbed.host_settings import HostSettings
from testbed.netlink import Request
from testbed.port.host_cost import FREE
from testbed.port.interface import Egress
from topologies.model import Interface, Topology

FIRST_SWITCH_INDEX = 1000
FIRST_HOST_INDEX = 100
FABRIC_NETWORK = IPv4Network("10.0.0.0/8")
FIRST_SOURCE_TABLE = 100
GSO_MAX_SEGS = 1
"""One packet per buffer: TCP builds 64 KB super-packets even with TSO and GSO off, and a port would queue those."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An interface and where it is."""

    interface: Interface
    index: int
    mac: str
    host: str | None
    """The host in whose namespace it is; None for a switch port."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A topology with an index and a MAC for every interface."""

    topology: Topology
    settings: HostSettings
    tag: str

    @cached_property
    def placed(self) -> Mapping[str, Placed]:
        """Interface name -> its place."""
        found: dict[str, Placed] = {}
        ports = 0
        for end in self.topology.interfaces():
            if end.node in self.topology.host_named:
                mac = end.mac or ""
                found[end.name] = Placed(interface=end, index=FIRST_HOST_INDEX + end.port, mac=mac, host=end.node)
            else:
                index = FIRST_SWITCH_INDEX + ports
                ports += 1
                mac = "02:fa:" + index.to_bytes(4, "big").hex(":")
                found[end.name] = Placed(interface=end, index=index, mac=mac, host=None)
        return found

    @cached_property
    def egresses(self) -> Mapping[str, Egress]:
        """Interface name -> the direction that it sends."""
        found = {}
        for link in self.topology.links:
            for sender, receiver in link.ends():
                place = self.placed[sender.name]
                found[sender.name] = Egress(
                    interface=sender.name,
                    index=place.index,
                    node=sender.node,
                    is_switch=place.host is None,
                    port=sender.port,
                    link=link.name,
                    peer=receiver.name,
                    rate_bps=link.rate_bps,
                    delay_ns=link.delay_ns,
                    buffer_bytes=link.buffer_bytes,
                    mtu=self.topology.mtu,
                    cost=FREE if place.host is None else self.settings.cost,
                )
        return found

    def cables(self, namespaces: Mapping[str, int]) -> list[Request]:
        """Every veth pair; `namespaces` maps hosts to descriptors of their namespaces."""

        def end(interface: Interface) -> rtnl.End:
            place = self.placed[interface.name]
            return rtnl.End(
                name=interface.name,
                index=place.index,
                mac=place.mac,
                mtu=self.topology.mtu,
                namespace=None if place.host is None else namespaces[place.host],
            )

        # The kernel puts a peer without a namespace where the first end goes, not where the socket is.
        pairs = [
            sorted((end(link.a), end(link.b)), key=lambda it: it.namespace is not None) for link in self.topology.links
        ]
        return [rtnl.new_veth(one, other) for one, other in pairs]

    def links_of(self, host: str | None) -> list[Request]:
        """Tag, super-packets off, and up: for a host's NICs, or (None) for all switch ports."""
        mine = [place for place in self.placed.values() if place.host == host]
        marks = [
            rtnl.set_link(index=place.index, name=place.interface.name, gso_max_segs=GSO_MAX_SEGS, alias=self.tag)
            for place in mine
        ]
        return marks + [rtnl.set_up(index=place.index, name=place.interface.name) for place in mine]

    def addresses_of(self, host: str) -> list[Request]:
        """The addresses of a host's NICs; the routes are ours, so the kernel makes none."""
        return [
            rtnl.new_ipv4(index=place.index, name=end.name, ip=_ip(end), prefix=8, prefix_route=False)
            for end, place in self._nics(host)
        ]

    def routes_through(self, nic: Interface, metrics: Mapping[int, int]) -> list[Request]:
        """Routes and ARP entries that need `nic` up: sent at the start, and again whenever it came back up."""
        return [*self._routes(nic, metrics), *self._neighbours(nic)]

    def rules_of(self, host: str) -> list[Request]:
        """Source policy of a host with several NICs: what is sent from a NIC's address leaves by that NIC."""
        nics = self._nics(host)
        if len(nics) == 1:
            return []
        return [rtnl.new_rule(source=_ip(end), table=source_table(end), priority=source_table(end)) for end, _ in nics]

    def _nics(self, host: str) -> list[tuple[Interface, Placed]]:
        return [(end, self.placed[end.name]) for end in self.topology.interfaces_of[host]]

    def destinations(self, nic: Interface) -> list[tuple[int, IPv4Network]]:
        """(table, network) of every route through a NIC.

        Of several NICs, each carries what goes to its own leaf and, by its own table, what is sent from its address.
        The first one carries the rest.
        """
        nics = self.topology.interfaces_of[nic.node]
        if len(nics) == 1:
            return [(rtnl.MAIN_TABLE, FABRIC_NETWORK)]
        near = [(rtnl.MAIN_TABLE, network) for network in self._networks_through(nic)]
        far = [(rtnl.MAIN_TABLE, FABRIC_NETWORK)] if nic == nics[0] else []
        return near + far + [(source_table(nic), FABRIC_NETWORK)]

    def _routes(self, nic: Interface, metrics: Mapping[int, int]) -> list[Request]:
        index, source = self.placed[nic.name].index, _ip(nic)
        return [
            rtnl.new_route(to=to, index=index, name=nic.name, source=source, table=table, metrics=metrics)
            for table, to in self.destinations(nic)
        ]

    def _networks_through(self, nic: Interface) -> list[IPv4Network]:
        """The /24 of its leaf, unless an earlier NIC of the same host has it."""
        network = IPv4Network((_ip(nic), 24), strict=False)
        first = next(end for end in self.topology.interfaces_of[nic.node] if _ip(end) in network)
        return [network] if first == nic else []

    def others(self, nic: Interface) -> list[tuple[IPv4Address, str]]:
        """Address and MAC of every NIC of every other host."""
        return [(_ip(end), end.mac or "") for end in self.topology.host_interfaces() if end.node != nic.node]

    def _neighbours(self, nic: Interface) -> list[Request]:
        index = self.placed[nic.name].index
        return [rtnl.new_neighbour(index=index, name=nic.name, ip=ip, mac=mac) for ip, mac in self.others(nic)]


def source_table(nic: Interface) -> int:
    """The routing table of what is sent from this NIC's address."""
    return FIRST_SOURCE_TABLE + nic.port


def _ip(end: Interface) -> IPv4Address:
    assert end.ip is not None  # Topology refuses hosts' interfaces without one
    return end.ip
