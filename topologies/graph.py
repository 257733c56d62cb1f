"""Questions about the shape of a fabric: who is next, how far, how wide.

Everything about paths follows one rule: towards a destination leaf a switch uses every cable that leads to a switch
one hop nearer (the shortest-path DAG, by breadth-first search), in port order.  Hosts never forward.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Network

from topologies.errors import UnknownName, UserError
from topologies.model import Interface, Switch, Topology

NOTHING: frozenset[str] = frozenset()


def leaf_of(topology: Topology, host_interface: str) -> Switch:
    """The switch at the other end of a host's NIC.  Raises UnknownName."""
    link = topology.link_of.get(host_interface)
    for own, peer in link.ends() if link else ():
        if own.name == host_interface and own.node in topology.host_named and peer.node in topology.switch_named:
            return topology.switch_named[peer.node]
    raise UnknownName("host interface", host_interface, [end.name for end in topology.host_interfaces()])


def leaves(topology: Topology) -> tuple[Switch, ...]:
    """The switches with at least one host, in the topology's order."""
    return tuple(switch for switch in topology.switches if hosts_below(topology, switch.name))


def hosts_below(topology: Topology, switch: str) -> tuple[Interface, ...]:
    """The hosts' NICs that are cabled to this switch, in its port order.  Raises UnknownName."""
    _known_switch(topology, switch)
    ends = (topology.peer_of[own.name] for own in topology.interfaces_of[switch])
    return tuple(end for end in ends if end.node in topology.host_named)


def next_hops(topology: Topology, switch: str, leaf: str, down: frozenset[str] = NOTHING) -> tuple[Interface, ...]:
    """The egress interfaces of `switch` that are on a shortest path to `leaf`, in port order; empty at the leaf itself.

    `down` names links or interfaces that are out of order; a switch that is cut off has no next hop.
    Raises UnknownName.
    """
    _known_switch(topology, switch)
    return _hops_to(topology, leaf, down)[switch]


def distance(topology: Topology, switch: str, leaf: str, down: frozenset[str] = NOTHING) -> int:
    """Hops from `switch` to `leaf`: 0 at the leaf.  Raises UnknownName, and UserError when there is no path."""
    _known_switch(topology, switch)
    found = distances(topology, leaf, down)
    if switch not in found:
        raise UserError(
            f"there is no path from {switch} to {leaf}" + (f" with {', '.join(sorted(down))} down" * bool(down))
        )
    return found[switch]


@lru_cache(maxsize=4096)
def distances(topology: Topology, leaf: str, down: frozenset[str] = NOTHING) -> Mapping[str, int]:
    """Hops to `leaf` from every switch that can reach it.  Raises UnknownName."""
    _known_switch(topology, leaf)
    _known_failures(topology, down)
    found = {leaf: 0}
    todo = deque([leaf])
    while todo:
        here = todo.popleft()
        for own, peer in switch_cables(topology, here, down):
            if peer.node not in found:
                found[peer.node] = found[own.node] + 1
                todo.append(peer.node)
    return found


def paths(topology: Topology, source: str, destination: str) -> tuple[tuple[Interface, ...], ...]:
    """Every shortest path between two leaves, each as its egress interfaces in order.  Raises UnknownName."""
    if source == destination:
        return ((),)
    return tuple(
        (own, *rest)
        for own in next_hops(topology, source, destination)
        for rest in paths(topology, topology.peer_of[own.name].node, destination)
    )


def path_count(topology: Topology, source: str, destination: str, down: frozenset[str] = NOTHING) -> int:
    """How many shortest paths there are, counted without listing them; 0 when there is none.  Raises UnknownName."""
    _known_switch(topology, source)
    hops = distances(topology, destination, down)
    ways = {destination: 1}
    for switch in sorted(hops, key=lambda name: hops[name])[1:]:
        towards = next_hops(topology, switch, destination, down)
        ways[switch] = sum(ways[topology.peer_of[own.name].node] for own in towards)
    return ways.get(source, 0)


def host_prefix(topology: Topology, leaf: str) -> IPv4Network | None:
    """10.pod.leaf.0/24 when exactly this leaf's NICs are in it; None when its addresses need a rule each."""
    own = {end.ip for end in hosts_below(topology, leaf)}
    if not own:
        return None
    prefix = IPv4Network(f"{min(ip for ip in own if ip is not None)}/24", strict=False)
    inside = {end.ip for end in topology.host_interfaces() if end.ip is not None and end.ip in prefix}
    return prefix if inside == own else None


def switch_cables(
    topology: Topology, switch: str, down: frozenset[str] = NOTHING
) -> Iterator[tuple[Interface, Interface]]:
    """(own end, far end) of every working cable from a switch to a switch, in port order."""
    for own in topology.interfaces_of[switch]:
        peer = topology.peer_of[own.name]
        if peer.node in topology.switch_named and not down & {topology.link_of[own.name].name, own.name, peer.name}:
            yield own, peer


@lru_cache(maxsize=4096)
def _hops_to(topology: Topology, leaf: str, down: frozenset[str]) -> Mapping[str, tuple[Interface, ...]]:
    found = distances(topology, leaf, down)
    return {
        switch.name: tuple(
            own
            for own, peer in switch_cables(topology, switch.name, down)
            if switch.name in found and found[peer.node] == found[switch.name] - 1
        )
        for switch in topology.switches
    }


def _known_switch(topology: Topology, name: str) -> None:
    if name not in topology.switch_named:
        raise UnknownName("switch", name, topology.switch_named)


def _known_failures(topology: Topology, down: frozenset[str]) -> None:
    for name in down:
        if name not in topology.link_named and name not in topology.link_of:
            raise UnknownName("link or interface", name, topology.link_named)
