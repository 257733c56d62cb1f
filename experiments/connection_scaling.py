r"""More TCP connections per pair of ranks: how much of what ECMP's collisions cost do they win back?

    leaf1 ==u uplinks==> spines ==> leaf2      interleaved ring: u hosts per leaf, u line-rate flows out of each leaf,
    h1 h2 ..             u of them  h3 h4 ..   u uplinks: with a hash per flow, some uplink gets two and some none
                                               with 16 connections per pair there are 16 u flows a sixteenth as large

Each seed hashes anew what is otherwise the same all-reduce (the controller changes the policy's seed while the ranks
stand).  Meta's queue-pair scaling is this: up to 40% (facts.md 1.3).  A policy that does not hash the port sees one
flow however many connections there are.

    ./run experiments/connection_scaling.py --topology leaf_spine:leaves=2,hosts=4,spines=4

Expected: time falls by the ratio of the mean of the busiest uplink's share, 1.31x on two uplinks and 1.69x on four from
one connection to sixteen (facts.md 1.8), and the index max/mean falls with every step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, cast

from pydantic import Field

from experiments.balance import phases
from experiments.experiment import Experiment, main
from experiments.placement import MEANING, place
from experiments.settings import Integers, Size, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.split_rings import START, Round, Rounds, kept, program, times
from topologies.errors import RunFailed
from topologies.graph import leaves

if TYPE_CHECKING:
    from experiments.lab import Lab

BANDS = {2: (1.15, 1.5), 4: (1.3, 1.9)}
"""Uplinks -> the gain from 1 to 16 connections that issue 4 and facts.md 7.2 accept, over 20 seeds."""
BLIND = 0.05
"""A policy that does not hash ports gains nothing: 1.00 +- this."""


class Settings(BaseSettings):
    """The sweep."""

    policies: Words = Field(
        default=written("e_ecmp"), description="load balancers with a parameter `seed`, as --policy names them"
    )
    blind: str = Field(
        default="e_ecmp:field=no", description="a load balancer that does not hash ports; empty leaves it out"
    )
    connections: Integers = Field(default=written("1,4,16"), description="TCP connections per pair of ranks")
    seeds: int = Field(default=20, ge=1, description="of the hash, each one all-reduce per number of connections")
    size: Size = Field(default=written("2M"), ge=4, description="bytes of the array")
    spread: str = Field(default="split", description="split: a part per connection; round_robin: parts of `chunk`")
    chunk: Size = Field(default=written("128KiB"), ge=4, description="bytes of a part with round_robin")
    placement: str = Field(default="interleaved", description=MEANING)
    warmup: int = Field(default=1, ge=0, description="all-reduces before the first seed: TCP's slow start belongs here")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One number of connections under one policy."""

    policy: str
    connections: int
    times_ns: Sequence[int]
    """A seed each."""
    indices: Sequence[float]
    """max/mean of the uplinks, a seed each."""


def run(lab: "Lab", settings: Settings) -> None:
    """A job per policy and number of connections; all seeds within it."""
    policies = [*settings.policies, *([settings.blind] if settings.blind else [])]
    points = [sweep(lab, settings, policy, number) for policy in policies for number in settings.connections]
    lab.add("connection_scaling", [line for policy in policies for line in lines(points, policy)])
    for policy in settings.policies:
        _claim(lab, settings, [point for point in points if point.policy == policy])
    if settings.blind:
        _claim_blind(lab, [point for point in points if point.policy == settings.blind])


def sweep(lab: "Lab", settings: Settings, policy: str, connections: int) -> Point:
    """One job, one round per seed."""
    labels = [f"seed {lab.seed + number}" for number in range(settings.seeds)]
    rounds = Rounds(
        size_bytes=settings.size,
        connections=connections,
        spread=settings.spread,
        chunk_bytes=settings.chunk,
        labels=labels,
        warmup=settings.warmup,
    )
    first = len(lab.readings)
    found = lab.job(
        program,
        rounds,
        hosts=place(lab.topology, settings.placement, seed=lab.seed),
        connections=connections,
        at_line_up=partial(use_seed, lab, policy),
    )
    measured = times(cast("list[list[Round]]", found))
    lab.add_busy_ns(sum(each.time_ns for each in measured))
    measured = kept(measured)
    if wrong := sum(each.wrong for each in measured):
        raise RunFailed(f"{policy}, {connections} connections: {wrong} elements of the sums are wrong")
    labelled = [
        phase.index
        for phase in phases(lab.topology, lab.readings[first:])
        if phase.label.startswith(f"{START} seed") and phase.tier.startswith("leaf to")
    ]
    return Point(policy=policy, connections=connections, times_ns=[each.time_ns for each in measured], indices=labelled)


def use_seed(lab: "Lab", policy: str, label: str) -> None:
    """At the line-up `seed N` the policy hashes with seed N."""
    word, _, seed = label.partition(" ")
    if word == "seed" and seed.isdigit():
        lab.use_policy(f"{policy}{',' if ':' in policy else ':'}seed={seed}")


def lines(points: Sequence[Point], policy: str) -> list[dict[str, object]]:
    """A line per number of connections; the gain is over the fewest."""
    mine = sorted((point for point in points if point.policy == policy), key=lambda point: point.connections)
    return [
        {
            "policy": policy,
            "connections": point.connections,
            "seeds": len(point.times_ns),
            "mean_us": round(mean(point.times_ns) / 1e3, 3),
            "worst_us": round(max(point.times_ns) / 1e3, 3),
            "gain": round(gain(mine[0], point), 4),
            "max_over_mean": round(mean(point.indices), 4) if point.indices else None,
        }
        for point in mine
    ]


def gain(one: Point, other: Point) -> float:
    """How many times faster the mean over seeds has become."""
    return mean(one.times_ns) / mean(other.times_ns)


def _claim(lab: "Lab", settings: Settings, points: Sequence[Point]) -> None:
    ordered = sorted(points, key=lambda point: point.connections)
    uplinks = _uplinks(lab)
    if {1, 16} <= {point.connections for point in points} and uplinks in BANDS:
        by_number: Mapping[int, Point] = {point.connections: point for point in points}
        least, most = BANDS[uplinks]
        found = gain(by_number[1], by_number[16])
        lab.add_claim(
            f"{points[0].policy}: 16 connections instead of 1 on {uplinks} uplinks, a mean over {settings.seeds} seeds",
            expected=f"{least} to {most} times faster",
            measured=f"{found:.3f}",
            holds=least <= found <= most,
        )
    indices = [mean(point.indices) for point in ordered if point.indices]
    lab.add_claim(
        f"{points[0].policy}: the more connections, the more even the uplinks",
        expected="max/mean falls with every step",
        measured=", ".join(f"{index:.3f}" for index in indices),
        holds=all(after < before for before, after in pairwise(indices)),
    )


def _claim_blind(lab: "Lab", points: Sequence[Point]) -> None:
    ordered = sorted(points, key=lambda point: point.connections)
    found = gain(ordered[0], ordered[-1])
    lab.add_claim(
        f"{points[0].policy}: a hash that does not see ports gains nothing from {ordered[-1].connections} connections",
        expected=f"1.00 +- {BLIND}",
        measured=f"{found:.3f}",
        holds=abs(found - 1) <= BLIND,
    )


def _uplinks(lab: "Lab") -> int:
    """Of the first leaf: cables to other switches."""
    leaf = leaves(lab.topology)[0]
    peers = [lab.topology.peer_of[end.name].node for end in lab.topology.interfaces_of[leaf.name]]
    return sum(peer in lab.topology.switch_named for peer in peers)


EXPERIMENT = Experiment(
    name="connection_scaling",
    question="How much of what ECMP's collisions cost do more connections per pair of ranks win back?",
    settings=Settings,
    run=run,
    topology="leaf_spine:leaves=2,hosts=2,spines=2",
)

if __name__ == "__main__":
    main(EXPERIMENT)
