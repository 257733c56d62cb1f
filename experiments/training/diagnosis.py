"""Who holds up everybody: from when ranks arrive at collectives, and from how busy each link was.  Pure.

A rank that computes slowly comes last, and nobody else is late: `held_up_ns` counts what its coming last has cost.
A slow NIC cannot be seen so, because everybody comes late to the next collective together.  But where all ranks send as
much, its link is the one that needs longest for it: `slow_links` compares times in which a port was sending.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from experiments.training.timeline import Kind, StepRecord

LATE = 0.02
"""Of the steps' time: what a rank must have cost to be named; ranks that compute alike cost each other 0.1%."""
LONGER = 1.25
"""Times the median of all ports: how long a port must have been sending to be named."""

STEADY = 0.8
"""Of a port's highest speed while sending: what the lowest of a sound one is at least; samples cut packets in two."""
SENT_ENOUGH = 0.5
"""Of the time between two samples: of a port that sent for less, one packet more or less would be a speed."""


@dataclass(frozen=True, kw_only=True)
class PortUse:
    """One direction of a link over a job, as its port counted it."""

    interface: str
    link: str
    host: str
    """At this end or the other."""
    busy_ns: int
    """Time in which it was sending."""
    sent_bytes: int
    speeds_gbps: tuple[float, float] = (0.0, 0.0)
    """Lowest and highest while it was sending, sample by sample."""

    @property
    def is_unsteady(self) -> bool:
        """Whether it was now fast, now slow."""
        lowest, highest = self.speeds_gbps
        return lowest < STEADY * highest

    @property
    def speed_gbps(self) -> float:
        """While it was sending."""
        return self.sent_bytes * 8 / self.busy_ns if self.busy_ns else 0.0


def speeds_gbps(now_ns: Sequence[int], busy_ns: Sequence[int], sent_bytes: Sequence[int]) -> tuple[float, float]:
    """Lowest and highest speed while sending, of the steps between samples in which a port sent for long enough."""
    found = [
        (sent - sent_before) * 8 / (busy - busy_before)
        for (now_before, now), (busy_before, busy), (sent_before, sent) in zip(
            pairwise(now_ns), pairwise(busy_ns), pairwise(sent_bytes), strict=True
        )
        if busy - busy_before >= SENT_ENOUGH * (now - now_before) > 0
    ]
    return (min(found), max(found)) if found else (0.0, 0.0)


def held_up_ns(records: Sequence[Sequence[StepRecord]]) -> dict[int, int]:
    """Rank -> time by which all others would have begun collectives earlier without it, in the steps that count.

    Only the last to come is to blame, only for the time since the one before it, and only as far as it took longer
    since its step began than all others since theirs: who began late because the ring left it last is a victim itself.
    """
    found: dict[int, int] = defaultdict(int)
    for across in zip(*records, strict=True):
        if across[0].number < 0:
            continue
        arrivals: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for rank, record in enumerate(across):
            for interval in record.intervals:
                if interval.kind is Kind.COMMUNICATION:
                    arrivals[interval.name].append((interval.start_ns, rank, interval.start_ns - record.start_ns))
        for order in arrivals.values():
            if len(order) > 1:
                *others, (last_ns, rank, own_ns) = sorted(order)
                longer_ns = own_ns - max(other_ns for _, _, other_ns in others)
                found[rank] += max(0, min(last_ns - others[-1][0], longer_ns))
    return {rank: found.get(rank, 0) for rank in range(len(records))}


def longer_compute_ns(records: Sequence[Sequence[StepRecord]], rank: int) -> int:
    """By how much this rank computed longer than any other, over the steps in which it did: what it must cost all."""
    found = 0
    for across in zip(*records, strict=True):
        spent_ns = [
            sum(each.end_ns - each.start_ns for each in record.intervals if each.kind is Kind.COMPUTE)
            for record in across
        ]
        others_ns = max(spent_ns[:rank] + spent_ns[rank + 1 :], default=spent_ns[rank])
        if across[0].number >= 0:
            found += max(0, spent_ns[rank] - others_ns)
    return found


def late_ranks(held_up: Mapping[int, int], *, total_ns: int) -> list[int]:
    """Ranks that have cost more than LATE of the time of all steps, the worst first."""
    found = [rank for rank, cost_ns in held_up.items() if cost_ns > LATE * total_ns]
    return sorted(found, key=lambda rank: (-held_up[rank], rank))


def slow_links(ports: Sequence[PortUse]) -> list[PortUse]:
    """Ports that were sending for much longer than most, the longest first; at most one per link."""
    usual_ns = median(port.busy_ns for port in ports)
    found: dict[str, PortUse] = {}
    for port in sorted(ports, key=lambda each: (-each.busy_ns, each.interface)):
        if port.busy_ns > LONGER * usual_ns:
            found.setdefault(port.link, port)
    return list(found.values())
