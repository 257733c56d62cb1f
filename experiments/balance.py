"""How evenly the links of a tier are used, over time, and how well flows are spread over them.  Pure.

    index = bytes of the busiest link / mean over the tier's links of use          Meta's measure of ECMP: 1 is even
    entropy = -sum p log2 p / log2 n of a switch's flows over its n links          1 is even, 0 is one link for all

A phase lasts from one line-up of a job's ranks to the next, so an operation is a phase of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import log2
from statistics import mean
from typing import Any

from experiments.results import FlowPath
from topologies.graph import leaves, next_hops
from topologies.model import Topology

LARGE = 0.01
"""Of the largest flow's bytes: smaller flows are acknowledgements and control, and are not counted as flows."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Bytes that left every switch port until an instant."""

    at_ns: int
    label: str
    """Of the line-up."""
    sent_bytes: Mapping[str, int] = field(repr=False)
    down: frozenset[str]
    """Links that were down."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One tier between two line-ups."""

    tier: str
    """`leaf to spine`."""
    label: str
    """The line-up at its beginning."""
    start_ns: int
    end_ns: int
    bytes: int
    """Over the whole tier."""
    index: float


def phases(topology: Topology, readings: Sequence[Reading]) -> list[Phase]:
    """Every tier with several links, in every phase in which it carried anything."""
    tiers = tier_links(topology)
    found = []
    for before, after in pairwise(readings):
        for tier, names in tiers.items():
            usable = links_in_use(topology, before.down & after.down)
            live = [name for name in names if name in usable]
            sent: list[int] = [after.sent_bytes[name] - before.sent_bytes[name] for name in live]
            if len(sent) > 1 and any(sent):
                found.append(
                    Phase(
                        tier=tier,
                        label=before.label,
                        start_ns=before.at_ns,
                        end_ns=after.at_ns,
                        bytes=sum(sent),
                        index=max(sent) * len(sent) / sum(sent),
                    )
                )
    return found


def tier_links(topology: Topology) -> Mapping[str, tuple[str, ...]]:
    """`leaf to spine` -> the interfaces that send that way."""
    found: dict[str, list[str]] = defaultdict(list)
    for link in topology.links:
        for sender, receiver in link.ends():
            if sender.node in topology.switch_named and receiver.node in topology.switch_named:
                one, other = (topology.switch_named[end.node].tier for end in (sender, receiver))
                found[f"{one} to {other}"].append(sender.name)
    return {tier: tuple(names) for tier, names in found.items()}


def entropies(topology: Topology, flows: Sequence[FlowPath]) -> Mapping[str, tuple[float, float]]:
    """Tier -> entropy of its flows and of their bytes, a mean over the switches that had something to choose.

    A switch chooses among equal next hops to one leaf; links that it has no choice about (a spine's) do not count.
    """
    least = LARGE * max((flow.bytes for flow in flows), default=0)
    large = [flow for flow in flows if flow.bytes >= least]
    found = {}
    choices = _choices(topology)
    for tier, names in tier_links(topology).items():
        links_of: dict[str, list[str]] = defaultdict(list)
        node = {end.name: end.node for end in topology.interfaces()}
        for name in names:
            if name in choices:
                links_of[node[name]].append(name)
        counts, octets = Counter[str](), Counter[str]()
        for flow in large:
            for name in set(flow.path) & set(names):
                counts[name] += 1
                octets[name] += flow.bytes
        chosen = [links for links in links_of.values() if len(links) > 1 and any(counts[name] for name in links)]
        if chosen:
            found[tier] = (
                mean(entropy([counts[name] for name in links]) for links in chosen),
                mean(entropy([octets[name] for name in links]) for links in chosen),
            )
    return found


@lru_cache(maxsize=64)
def links_in_use(topology: Topology, down: frozenset[str]) -> frozenset[str]:
    """Interfaces on some shortest path between leaves while these links are down.

    A spine that lost its cable to one of two leaves carries nothing at all, so the other's cable to it idles too.
    """
    found: set[str] = set()
    for leaf in leaves(topology):
        todo = {each.name for each in leaves(topology)}
        while todo:
            hops = {own for switch in todo for own in next_hops(topology, switch, leaf.name, down)}
            found |= {own.name for own in hops}
            todo = {topology.peer_of[own.name].node for own in hops}
    return frozenset(found)


def _choices(topology: Topology) -> frozenset[str]:
    """Interfaces that are one of several equal next hops to some leaf."""
    hops = (next_hops(topology, switch.name, leaf.name) for leaf in leaves(topology) for switch in topology.switches)
    return frozenset(own.name for equal in hops if len(equal) > 1 for own in equal)


def entropy(weights: Sequence[int]) -> float:
    """Of a distribution over so many choices, 0 to 1; 1 where there is nothing to choose."""
    total = sum(weights)
    if len(weights) < 2 or not total:
        return 1.0
    shares = [weight / total for weight in weights if weight]
    return -sum(share * log2(share) for share in shares) / log2(len(weights)) + 0.0


def section(topology: Topology, found: Sequence[Phase], flows: Sequence[FlowPath]) -> list[dict[str, Any]]:
    """`balance` of results.json: a line per tier, the index over its phases weighted by bytes."""
    spread = entropies(topology, flows)
    lines = []
    for tier in tier_links(topology):
        mine = [phase for phase in found if phase.tier == tier]
        if mine:
            by_flows, by_bytes = spread.get(tier, (None, None))
            busiest = max(mine, key=lambda phase: phase.bytes)
            lines.append(
                {
                    "tier": tier,
                    "links": len(tier_links(topology)[tier]),
                    "phases": len(mine),
                    "max_over_mean": round(sum(it.index * it.bytes for it in mine) / sum(it.bytes for it in mine), 4),
                    "in_busiest_phase": round(busiest.index, 4),
                    "flow_entropy": None if by_flows is None else round(by_flows, 4),
                    "byte_entropy": None if by_bytes is None else round(by_bytes, 4),
                }
            )
    return lines


def over_time(found: Sequence[Phase], *, start_ns: int) -> dict[str, dict[str, list[Any]]]:
    """`balance_over_time`: tier -> columns, a value per phase; times from the run's start."""
    columns: dict[str, dict[str, list[Any]]] = {}
    for phase in found:
        mine = columns.setdefault(
            phase.tier, {"from_us": [], "until_us": [], "after": [], "bytes": [], "max_over_mean": []}
        )
        mine["from_us"].append((phase.start_ns - start_ns) / 1e3)
        mine["until_us"].append((phase.end_ns - start_ns) / 1e3)
        mine["after"].append(phase.label)
        mine["bytes"].append(phase.bytes)
        mine["max_over_mean"].append(round(phase.index, 4))
    return columns
