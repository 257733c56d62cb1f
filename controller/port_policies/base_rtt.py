"""The round trip that a fabric has when it is empty: what bandwidth-delay products are computed from.

    base RTT = 2 x sum over the links of the longest path of (delay + time of a full frame)

The longest path is the slowest of all shortest paths between two hosts: those that the rules of the fabric can use.
"""

from collections.abc import Mapping
from fractions import Fraction

from topologies.graph import distances, hosts_below, leaves, next_hops
from topologies.model import Link, Topology


def base_rtt_ns(topology: Topology) -> int:
    """Nanoseconds, rounded up."""
    longest = Fraction(0)
    for leaf in leaves(topology):
        across = _slowest_to(topology, leaf.name)
        for source, time in across.items():
            if pair := _host_links(topology, source, leaf.name):
                longest = max(longest, time + sum(_time(topology, link) for link in pair))
    return -(-2 * longest.numerator // longest.denominator)


def _time(topology: Topology, link: Link) -> Fraction:
    """Delay and serialisation of a full frame."""
    return link.delay_ns + Fraction((topology.mtu + 14) * 8 * 10**9, link.rate_bps)


def bdp_bytes(topology: Topology, rate_bps: int) -> int:
    """Bandwidth-delay product: what a port of this rate sends in a base round trip."""
    return rate_bps * base_rtt_ns(topology) // (8 * 10**9)


def _slowest_to(topology: Topology, leaf: str) -> Mapping[str, Fraction]:
    """Switch -> time of the slowest of its shortest paths to `leaf`."""
    hops = distances(topology, leaf)
    found = {leaf: Fraction(0)}
    for switch in sorted(hops, key=lambda name: hops[name])[1:]:
        found[switch] = max(
            _time(topology, topology.link_of[own.name]) + found[topology.peer_of[own.name].node]
            for own in next_hops(topology, switch, leaf)
        )
    return found


def _host_links(topology: Topology, source: str, destination: str) -> tuple[Link, ...]:
    """The slowest cable of a host at either leaf; none where a leaf would send to its only host."""
    here, there = (
        sorted(
            (topology.link_of[end.name] for end in hosts_below(topology, leaf)),
            key=lambda link: _time(topology, link),
        )
        for leaf in (source, destination)
    )
    if source == destination:
        return tuple(here[-2:]) if len(here) > 1 else ()
    return (here[-1], there[-1]) if here and there else ()
