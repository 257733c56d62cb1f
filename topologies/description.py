"""A fabric in words: what `./run topology` prints and the report repeats."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from topologies.capacity import Tier, bisection_bps, tiers
from topologies.graph import distance, distances, leaves, path_count
from topologies.model import Topology
from topologies.units import format_delay, format_rate, format_size


@dataclass(frozen=True, kw_only=True)
class Cabling:
    """Equal cables between the same kinds of nodes."""

    between: str
    """`host-leaf`, `leaf-spine`."""
    cables: int
    rate_bps: int
    delay_ns: int
    buffer_bytes: int


@dataclass(frozen=True, kw_only=True)
class Description:
    """The figures of a fabric; `lines` puts them in words."""

    name: str
    hosts: int
    nics: int
    mtu: int
    tiers: tuple[Tier, ...]
    cabling: tuple[Cabling, ...]
    bisection_bps: int
    demand_bps: int
    """What the NICs of the smaller half of the hosts could send across the bisection."""
    most_hops: int
    """Switches that a packet crosses at most, between hosts."""
    path_counts: tuple[int, ...]
    """The different numbers of equal-cost paths that pairs of leaves have, ascending; empty with one leaf."""
    cut_off_pairs: int
    """Ordered pairs of leaves without any path, as between the rails of a fabric that has no spines."""

    def __str__(self) -> str:
        """The lines, as a command prints them."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """One sentence or table row each, without line ends."""
        nics = "" if self.nics == self.hosts else f" with {self.nics} NICs"
        yield f"{self.name}: {_plural(self.hosts, 'host')}{nics}, MTU {self.mtu} bytes"
        for tier in self.tiers:
            yield f"  {_plural(tier.switches, f'{tier.name} switch', 'es')}: {_ratio(tier)}"
        for kind in self.cabling:
            yield (
                f"  {_plural(kind.cables, 'cable')} {kind.between}: {format_rate(kind.rate_bps)}, "
                f"{format_delay(kind.delay_ns)} one way, {format_size(kind.buffer_bytes)} of buffer at each port"
            )
        if self.demand_bps:
            share = self.bisection_bps / self.demand_bps
            yield f"  bisection: {format_rate(self.bisection_bps)} ({share:.0%} of what half the hosts can send)"
        yield f"  longest path: {_plural(self.most_hops, 'switch', 'es')}"
        if self.path_counts:
            yield f"  equal-cost paths between two leaves: {' or '.join(str(count) for count in self.path_counts)}"
        if self.cut_off_pairs:
            yield f"  {_plural(self.cut_off_pairs, 'pair')} of leaves without a path"


def describe(topology: Topology) -> Description:
    """Everything there is to say without a kernel."""
    racks = [leaf.name for leaf in leaves(topology)]
    pairs = [(a, b) for a in racks for b in racks if a != b and b in distances(topology, a)]
    half = {host.name for host in topology.hosts[: len(topology.hosts) // 2]}
    nics = list(topology.host_interfaces())
    return Description(
        name=topology.name,
        hosts=len(topology.hosts),
        nics=len(nics),
        mtu=topology.mtu,
        tiers=tiers(topology),
        cabling=_cabling(topology),
        bisection_bps=bisection_bps(topology),
        demand_bps=sum(topology.link_of[nic.name].rate_bps for nic in nics if nic.node in half),
        most_hops=1 + max((distance(topology, a, b) for a, b in pairs), default=0),
        cut_off_pairs=len(racks) * (len(racks) - 1) - len(pairs),
        path_counts=tuple(sorted({path_count(topology, a, b) for a, b in pairs})),
    )


def _cabling(topology: Topology) -> tuple[Cabling, ...]:
    def kind(node: str) -> str:
        return "host" if node in topology.host_named else topology.switch_named[node].tier

    found = Counter(
        (f"{kind(link.a.node)}-{kind(link.b.node)}", link.rate_bps, link.delay_ns, link.buffer_bytes)
        for link in topology.links
    )
    return tuple(
        Cabling(between=between, cables=cables, rate_bps=rate_bps, delay_ns=delay_ns, buffer_bytes=buffer_bytes)
        for (between, rate_bps, delay_ns, buffer_bytes), cables in found.items()
    )


def _ratio(tier: Tier) -> str:
    if tier.oversubscription is None:
        return f"{format_rate(tier.down_bps)} down each, top of the fabric"
    return (
        f"{format_rate(tier.down_bps)} down to {format_rate(tier.up_bps)} up each, "
        f"oversubscription {float(tier.oversubscription):.4g}:1"
    )


def _plural(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}{ending if number != 1 else ''}"
