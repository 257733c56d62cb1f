"""The bookkeeping that every generator and the file format share: ports, addresses, datapath ids.

    fabric = Builder(mtu=9000)
    leaf = fabric.switch("leaf1", tier="leaf")
    fabric.cable(fabric.host("h1", rack=1), leaf, Wire(rate_bps=..., delay_ns=..., buffer_bytes=...))
    fabric.topology("my_fabric", parameters={})

Ports count up in the order of the cables: from 0 on a host, from 1 on a switch.  Datapath ids count up from 1 in the
order of the switches.  A host's NIC gets 10.pod.leaf.host and the MAC 02:00:<those four bytes>.
"""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from topologies.errors import UserError
from topologies.model import Host, Interface, Link, Switch, Topology
from topologies.parameters import Wire


class Builder:
    """Collects nodes and cables in order and hands out everything that must be unique."""

    def __init__(self, *, mtu: int) -> None:
        """Starts an empty fabric; `mtu` is in bytes of IP packet."""
        self._mtu = mtu
        self._hosts: dict[str, Host] = {}
        self._switches: dict[str, Switch] = {}
        self._links: list[Link] = []
        self._ports: dict[str, set[int]] = {}
        self._cables_between: dict[frozenset[str], int] = {}

    def host(self, name: str, *, pod: int = 0, rack: int = 0) -> Host:
        """Adds a host; `rack` is the number of its leaf inside the pod, 0 when on several.  Raises UserError."""
        self._refuse_second(name)
        self._hosts[name] = Host(name=name, pod=pod, rack=rack)
        return self._hosts[name]

    def switch(self, name: str, *, tier: str, pod: int = 0, dpid: int | None = None) -> Switch:
        """Adds a switch; its datapath id is the next free number unless given.  Raises UserError."""
        self._refuse_second(name)
        taken = {switch.dpid for switch in self._switches.values()}
        free = next(number for number in range(1, len(taken) + 2) if number not in taken)
        self._switches[name] = Switch(name=name, dpid=free if dpid is None else dpid, tier=tier, pod=pod)
        return self._switches[name]

    def reserve(self, node: str, port: int) -> None:
        """Keeps a port out of the automatic numbering: a cable will ask for it by number."""
        self._ports.setdefault(node, set()).add(port)

    def cable(
        self,
        a: Host | Switch,
        b: Host | Switch,
        wire: Wire,
        *,
        address: IPv4Address | None = None,
        ports: tuple[int | None, int | None] = (None, None),
    ) -> Link:
        """Joins two nodes at `ports` or their next free ones; `address` is the one of the host's end, if there is one.

        Raises UserError for a host's end without an address.
        """
        pair = frozenset((a.name, b.name))
        self._cables_between[pair] = self._cables_between.get(pair, 0) + 1
        link = Link(
            a=self._interface(a, address, ports[0]),
            b=self._interface(b, address, ports[1]),
            rate_bps=wire.rate_bps,
            delay_ns=wire.delay_ns,
            buffer_bytes=wire.buffer_bytes,
            number=self._cables_between[pair],
        )
        self._links.append(link)
        return link

    def mesh(self, lower: Sequence[Switch], upper: Sequence[Switch], wire: Wire, *, cables: int = 1) -> None:
        """Joins every lower switch with every upper one by so many parallel cables."""
        for below in lower:
            for above in upper:
                for _ in range(cables):
                    self.cable(below, above, wire)

    def topology(self, name: str, *, parameters: Mapping[str, str | int]) -> Topology:
        """The finished fabric, checked.  Raises UserError."""
        return Topology(
            name=name,
            hosts=tuple(self._hosts.values()),
            switches=tuple(self._switches.values()),
            links=tuple(self._links),
            mtu=self._mtu,
            parameters={key: str(value) for key, value in parameters.items()},
        )

    def _refuse_second(self, name: str) -> None:
        if name in self._hosts or name in self._switches:
            raise UserError(f"two nodes are called '{name}'; node names must differ")

    def _interface(self, node: Host | Switch, address: IPv4Address | None, asked: int | None) -> Interface:
        first = 0 if isinstance(node, Host) else 1
        used = self._ports.setdefault(node.name, set())
        free = next(number for number in range(first, first + len(used) + 1) if number not in used)
        port = free if asked is None else asked
        used.add(port)
        name = f"{node.name}-eth{port}"
        if isinstance(node, Switch):
            return Interface(node=node.name, port=port, name=name)
        if address is None:
            raise UserError(f"interface {name}: a host's end needs an address")
        return Interface(node=node.name, port=port, name=name, ip=address, mac=mac_of(address))


def address_of(*, pod: int, leaf: int, host: int) -> IPv4Address:
    """10.pod.leaf.host: where a NIC is can be read from its address.  Raises UserError when a number does not fit."""
    for what, number, most in (("pod", pod, 255), ("leaf", leaf, 255), ("host", host, 254)):
        if not 0 <= number <= most:
            raise UserError(f"{what} {number} does not fit the address 10.pod.leaf.host; at most {most}")
    return IPv4Address(bytes((10, pod, leaf, host)))


def mac_of(address: IPv4Address) -> str:
    """02:00:<address>: locally administered, and told from the address at sight."""
    return ":".join(f"{byte:02x}" for byte in (2, 0, *address.packed))
