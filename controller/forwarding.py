"""From a topology to the rules of every switch: pure, complete before the first packet, loop-free by construction.

Every rule leads one hop nearer to a leaf (the shortest-path DAG of topologies.graph), so no packet can come back, and
nothing is ever flooded.  Destinations are leaves' prefixes where the addresses allow, whole pods where all leaves of a
pod are reached alike, and single hosts otherwise.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv4Network

from controller.path_marks import DIGIT_BITS, LEVELS, level_mask, level_widths
from controller.pipeline import (
    ARP_REQUEST,
    ETH_TYPE_ARP,
    ETH_TYPE_IPV4,
    Band,
    Choose,
    Drop,
    Match,
    Output,
    Rule,
    Table,
    ToController,
)
from topologies.graph import NOTHING, distances, host_prefix, hosts_below, leaves, next_hops
from topologies.model import Switch, Topology

Plan = Mapping[int, frozenset[Rule]]
"""dpid -> every rule that the switch must hold, no more and no less."""

POD_BITS = 16
"""Length of a pod's prefix, 10.pod.0.0/16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a switch does for a leaf: its equal ports, its distance, and how many digits that level uses."""

    ports: tuple[int, ...]
    level: int
    width: int

    @property
    def number(self) -> int:
        """What table ROUTE tells table CHOICE: made from the content, so that no number ever changes its meaning
        while rules are rewritten after a failure."""
        return int.from_bytes(blake2b(f"{self.level} {self.width} {self.ports}".encode(), digest_size=6).digest())


def plan(topology: Topology, down: frozenset[str] = NOTHING) -> Plan:
    """The rules of all switches; `down` names links or interfaces to avoid.

    Raises UserError where the fabric has more choices than a mark can tell apart.
    """
    pods = _pods(topology)
    return {switch.dpid: frozenset(_rules(topology, switch, pods, down)) for switch in topology.switches}


def destinations(topology: Topology, leaf: str) -> tuple[IPv4Network, ...]:
    """What a leaf's hosts are called in rules of other switches: one prefix, or each host."""
    prefix = host_prefix(topology, leaf)
    if prefix is not None:
        return (prefix,)
    return tuple(IPv4Network(end.ip) for end in hosts_below(topology, leaf) if end.ip is not None)


def _pods(topology: Topology) -> Mapping[IPv4Network, tuple[str, ...]]:
    """Pod prefix -> its leaves, for prefixes that hold at least two leaves and nothing but whole leaves."""
    found: dict[IPv4Network, list[str]] = defaultdict(list)
    mixed: set[IPv4Network] = set()
    for leaf in leaves(topology):
        for destination in destinations(topology, leaf.name):
            pod = destination.supernet(new_prefix=POD_BITS)
            found[pod].append(leaf.name)
            if destination.prefixlen == destination.max_prefixlen:
                mixed.add(pod)
    return {pod: tuple(names) for pod, names in found.items() if len(names) > 1 and pod not in mixed}


def _rules(
    topology: Topology, switch: Switch, pods: Mapping[IPv4Network, tuple[str, ...]], down: frozenset[str]
) -> Iterator[Rule]:
    yield Rule(table=Table.ROUTE, priority=Band.MISS)
    arp = Match(eth_type=ETH_TYPE_ARP, arp_op=ARP_REQUEST)
    yield Rule(table=Table.ROUTE, priority=Band.ARP, match=arp, action=ToController())
    for end in hosts_below(topology, switch.name):
        if end.ip is not None:
            yield _route(IPv4Network(end.ip), Band.HOST, Output(topology.peer_of[end.name].port))
    choices: set[Turn] = set()
    for network, band, turn in _turns(topology, switch, pods, down):
        if len(turn.ports) == 1:
            yield _route(network, band, Output(turn.ports[0]))
        else:
            choices.add(turn)
            yield _route(network, band, Choose(turn.number))
    yield from _choice_rules(choices)


def _turns(
    topology: Topology, switch: Switch, pods: Mapping[IPv4Network, tuple[str, ...]], down: frozenset[str]
) -> Iterator[tuple[IPv4Network, Band, Turn]]:
    """Every destination of a switch with what to do about it, whole pods first."""
    turns = {leaf.name: _turn(topology, switch.name, leaf.name, down) for leaf in leaves(topology)}
    done: set[str] = set()
    for pod, names in pods.items():
        alike = {turns[name] for name in names}
        turn = alike.pop()
        if not alike and turn is not None:
            done.update(names)
            yield pod, Band.POD, turn
    for leaf, turn in turns.items():
        if leaf not in done and turn is not None:
            for network in destinations(topology, leaf):
                single = network.prefixlen == network.max_prefixlen
                yield network, Band.HOST if single else Band.LEAF, turn


def _turn(topology: Topology, switch: str, leaf: str, down: frozenset[str]) -> Turn | None:
    """None at the leaf itself, and where there is no way."""
    hops = next_hops(topology, switch, leaf, down)
    if not hops:
        return None
    level = distances(topology, leaf, down)[switch]
    ports = tuple(hop.port for hop in hops)
    width = level_widths(topology, leaf, down)[level - 1] if level <= LEVELS else 1
    if len(ports) == 1 or width % len(ports):
        # The second case is a switch on no path between leaves (a spine that lost its cable): nothing comes this way.
        return Turn(ports=ports[:1], level=0, width=1)
    return Turn(ports=ports, level=level, width=width)


def _route(network: IPv4Network, band: Band, action: Output | Choose) -> Rule:
    match = Match(eth_type=ETH_TYPE_IPV4, ipv4_dst=network)
    return Rule(table=Table.ROUTE, priority=band, match=match, action=action)


def _choice_rules(choices: Iterable[Turn]) -> Iterator[Rule]:
    """One rule for every digit of every choice, and one that drops digits that mean nothing."""
    for turn in choices:
        for digit in range(turn.width):
            match = Match(
                choice=turn.number, mark=digit << DIGIT_BITS * (turn.level - 1), mark_mask=level_mask(turn.level)
            )
            action = Output(turn.ports[digit % len(turn.ports)])
            yield Rule(table=Table.CHOICE, priority=Band.LEAF, match=match, action=action)
    if choices:
        yield Rule(table=Table.CHOICE, priority=Band.STRAY, action=Drop())
