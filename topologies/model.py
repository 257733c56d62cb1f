"""What a fabric is: nodes, interfaces and links as frozen data that knows how to refuse nonsense.

    host h1 --- h1-eth0 ===== leaf1-eth1 --- switch leaf1      one Link: two Interfaces, one rate, one delay

Nothing here touches a kernel; the testbed builds it, the controller routes it, the reports draw it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from ipaddress import IPv4Address

from topologies.errors import UserError

_NODE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")

MAX_INTERFACE_NAME = 15
"""Characters: IFNAMSIZ of linux/if.h is 16 with the closing zero."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine with one or more NICs, where a rank runs."""

    name: str
    pod: int = 0
    rack: int = 0
    """The number of its leaf inside the pod, from 1; 0 where the fabric has no racks."""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A switch of the fabric: one Open vSwitch bridge."""

    name: str
    dpid: int
    """OpenFlow datapath id: unique, 1 to 2**48 - 1, ours and never guessed from the name."""
    tier: str
    """'leaf', 'spine', 'edge', 'aggregation', 'core': what the field calls its place."""
    pod: int = 0


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One end of a link.  Hosts' interfaces have addresses, switches' have none."""

    node: str
    port: int
    """Number on its node: from 0 on a host, from 1 on a switch (its OpenFlow port number)."""
    name: str
    ip: IPv4Address | None = None
    mac: str | None = None


@dataclass(frozen=True, kw_only=True)
class Link:
    """A full-duplex cable: both directions have the same rate, delay and port buffer."""

    a: Interface
    b: Interface
    rate_bps: int
    delay_ns: int
    buffer_bytes: int
    """What the egress queue in front of each direction may hold before it drops."""
    number: int = 1
    """From 1 among the parallel cables of the same two nodes."""

    @property
    def name(self) -> str:
        """`leaf1-spine2`, as failure schedules and tables call it; the second parallel cable is `leaf1-spine2.2`."""
        return f"{self.a.node}-{self.b.node}" + (f".{self.number}" if self.number > 1 else "")

    def ends(self) -> tuple[tuple[Interface, Interface], tuple[Interface, Interface]]:
        """Both directions as (from, to)."""
        return (self.a, self.b), (self.b, self.a)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A whole fabric.  Building one checks it: a Topology that exists can be built.  Raises UserError."""

    name: str
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    mtu: int = 9000
    """Bytes of IP packet on every interface."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the generator was asked for, for the manifest."""

    def __post_init__(self) -> None:
        """Refuses what could not be built."""
        _check_names(self)
        _check_interfaces(self)
        _check_links(self)

    def __eq__(self, other: object) -> bool:
        """Of everything, by a digest: caches of graph questions ask it at each look, also of one read from a file."""
        return isinstance(other, Topology) and self._digest == other._digest

    def __hash__(self) -> int:
        """Lets graph questions be cached."""
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        everything = (self.name, self.hosts, self.switches, self.links, self.mtu, sorted(self.parameters.items()))
        return sha256(repr(everything).encode()).digest()

    @property
    def nodes(self) -> tuple[Host | Switch, ...]:
        """Hosts, then switches."""
        return (*self.hosts, *self.switches)

    @cached_property
    def switch_named(self) -> Mapping[str, Switch]:
        """Name -> switch."""
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def host_named(self) -> Mapping[str, Host]:
        """Name -> host."""
        return {host.name: host for host in self.hosts}

    @cached_property
    def link_of(self) -> Mapping[str, Link]:
        """Interface name -> its cable."""
        return {end.name: link for link in self.links for end in (link.a, link.b)}

    @cached_property
    def link_named(self) -> Mapping[str, Link]:
        """Link name -> link."""
        return {link.name: link for link in self.links}

    @cached_property
    def interfaces_of(self) -> Mapping[str, tuple[Interface, ...]]:
        """Node name -> its interfaces in port order."""
        found: dict[str, list[Interface]] = {node.name: [] for node in self.nodes}
        for end in self.interfaces():
            found[end.node].append(end)
        return {node: tuple(sorted(ends, key=lambda end: end.port)) for node, ends in found.items()}

    @cached_property
    def peer_of(self) -> Mapping[str, Interface]:
        """Interface name -> the interface at the other end of its cable."""
        return {one.name: other for link in self.links for one, other in link.ends()}

    def interfaces(self) -> Iterator[Interface]:
        """Every end of every link, in link order."""
        for link in self.links:
            yield from (link.a, link.b)

    def host_interfaces(self) -> Iterator[Interface]:
        """Every host NIC, in host then port order."""
        for host in self.hosts:
            yield from self.interfaces_of[host.name]


def _check_names(topology: Topology) -> None:
    names: set[str] = set()
    for node in topology.nodes:
        if not _NODE_NAME.fullmatch(node.name):
            raise UserError(
                f"topology {topology.name}: '{node.name}' cannot name a node; use letters, digits, '_' and '.', "
                "with a letter in front"
            )
        if node.name in names:
            raise UserError(f"topology {topology.name}: two nodes are called '{node.name}'; node names must differ")
        names.add(node.name)
    dpids: dict[int, str] = {}
    for switch in topology.switches:
        if not 0 < switch.dpid < 2**48:
            raise UserError(f"topology {topology.name}: switch {switch.name}: dpid {switch.dpid} is not in 1..2^48-1")
        if switch.dpid in dpids:
            raise UserError(
                f"topology {topology.name}: switches {dpids[switch.dpid]} and {switch.name} share dpid {switch.dpid}"
            )
        dpids[switch.dpid] = switch.name


def _check_interfaces(topology: Topology) -> None:
    nodes = {node.name for node in topology.nodes}
    hosts = {host.name for host in topology.hosts}
    seen: dict[str, set[object]] = {"name": set(), "ip": set(), "mac": set(), "port": set()}
    for end in topology.interfaces():
        where = f"topology {topology.name}: interface {end.name}"
        if end.node not in nodes:
            raise UserError(f"{where}: node '{end.node}' does not exist; declare it under hosts or switches")
        if len(end.name) > MAX_INTERFACE_NAME:
            raise UserError(
                f"{where}: {len(end.name)} characters, Linux allows {MAX_INTERFACE_NAME}; shorten the node's name"
            )
        if {end.ip is not None, end.mac is not None} != {end.node in hosts}:
            raise UserError(f"{where}: hosts' interfaces have an address and a MAC, switches' have neither")
        for kind, value in (("name", end.name), ("ip", end.ip), ("mac", end.mac), ("port", (end.node, end.port))):
            if value is not None and value in seen[kind]:
                raise UserError(f"{where}: {kind} {value} is used twice")
            seen[kind].add(value)


def _check_links(topology: Topology) -> None:
    names: set[str] = set()
    for link in topology.links:
        where = f"topology {topology.name}: link {link.name}"
        if link.a.node == link.b.node:
            raise UserError(f"{where}: both ends are on {link.a.node}; a cable joins two nodes")
        if link.name in names:
            raise UserError(f"{where}: two links have this name; parallel cables need different numbers")
        names.add(link.name)
        if link.rate_bps <= 0:
            raise UserError(f"{where}: rate must be above 0")
        if link.delay_ns < 0:
            raise UserError(f"{where}: delay must not be negative")
        if link.buffer_bytes < topology.mtu + 14:
            raise UserError(f"{where}: buffer of {link.buffer_bytes} B cannot hold one frame of {topology.mtu + 14} B")
    if not 576 <= topology.mtu <= 65521:
        raise UserError(f"topology {topology.name}: mtu {topology.mtu} is not in 576..65521")
