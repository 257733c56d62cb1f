"""Where the time of a training step went: compute, communication hidden behind it, communication waited for.  Pure.

    step = compute + exposed + idle
    exposed = waiting (a slower rank has not begun this collective yet) + network (all have; the bytes are under way)
    communication = exposed + overlapped
    halting = exposed / step: the share of the step in which the GPU stands still for the network or for somebody else

Intervals are half-open; times are nanoseconds of the one clock that all ranks share.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.training.timeline import Kind, StepRecord

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class StepAccount:
    """One step of one rank."""

    rank: int
    step: int
    step_ns: int
    compute_ns: int
    overlapped_ns: int
    waiting_ns: int
    network_ns: int
    idle_ns: int
    sent_bytes: int
    """Sizes of the arrays that were communicated, each once."""

    @property
    def exposed_ns(self) -> int:
        """Communication that nothing hides."""
        return self.waiting_ns + self.network_ns

    @property
    def halting(self) -> float:
        """Share of the step."""
        return self.exposed_ns / self.step_ns if self.step_ns else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For results.json: microseconds and shares."""
        found = {
            name.removesuffix("_ns") + "_us" if name.endswith("_ns") else name: value / 1e3
            if name.endswith("_ns")
            else value
            for name, value in asdict(self).items()
        }
        return {**found, "halting": round(self.halting, 6)}


def union(spans: Iterable[Span]) -> list[Span]:
    """The same instants as disjoint spans in order."""
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The instants in both; each argument is disjoint and in order."""
    found, left, right = [], 0, 0
    while left < len(one) and right < len(other):
        start, end = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if start < end:
            found.append((start, end))
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return found


def without(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The instants in `one` only; each argument is disjoint and in order."""
    found = []
    for start, end in one:
        for taken_start, taken_end in other:
            if taken_end <= start or taken_start >= end:
                continue
            if taken_start > start:
                found.append((start, taken_start))
            start = taken_end
        if start < end:
            found.append((start, end))
    return found


def length(spans: Iterable[Span]) -> int:
    """Of disjoint spans, together."""
    return sum(end - start for start, end in spans)


def account(records: Sequence[Sequence[StepRecord]]) -> list[StepAccount]:
    """records[rank][step] -> an account of every step of every rank, step by step."""
    found = []
    for across in zip(*records, strict=True):
        begun = _last_to_begin(across)
        found += [_account(rank, record, begun) for rank, record in enumerate(across)]
    return found


def _last_to_begin(across: Sequence[StepRecord]) -> Mapping[str, int]:
    """Collective -> when the last rank began it."""
    begun: dict[str, int] = {}
    for record in across:
        for interval in record.intervals:
            if interval.kind is Kind.COMMUNICATION:
                begun[interval.name] = max(begun.get(interval.name, 0), interval.start_ns)
    return begun


def under_way(across: Sequence[StepRecord]) -> list[Span]:
    """When bytes of a step were under way: all ranks had begun a collective, and not all had ended it."""
    begun = _last_to_begin(across)
    return union(
        (begun[each.name], each.end_ns)
        for record in across
        for each in record.intervals
        if each.kind is Kind.COMMUNICATION
    )


def _account(rank: int, record: StepRecord, begun: Mapping[str, int]) -> StepAccount:
    compute = union((each.start_ns, each.end_ns) for each in record.intervals if each.kind is Kind.COMPUTE)
    messages = [each for each in record.intervals if each.kind is Kind.COMMUNICATION]
    communication = union((each.start_ns, each.end_ns) for each in messages)
    exposed = without(communication, compute)
    # Where several are under way at once, one that all ranks have begun makes the time the network's.
    moving = union((begun[each.name], each.end_ns) for each in messages)
    network_ns = length(common(exposed, moving))
    step_ns = record.end_ns - record.start_ns
    return StepAccount(
        rank=rank,
        step=record.number,
        step_ns=step_ns,
        compute_ns=length(compute),
        overlapped_ns=length(communication) - length(exposed),
        waiting_ns=length(exposed) - network_ns,
        network_ns=network_ns,
        idle_ns=step_ns - length(compute) - length(exposed),
        sent_bytes=sum(each.size_bytes for each in messages),
    )


def stragglers(records: Sequence[Sequence[StepRecord]]) -> dict[int, int]:
    """Rank -> how often it was the last to begin a collective that somebody had begun before it, most often first."""
    found: dict[int, int] = defaultdict(int)
    for across in zip(*records, strict=True):
        arrivals: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for rank, record in enumerate(across):
            for interval in record.intervals:
                if interval.kind is Kind.COMMUNICATION:
                    arrivals[interval.name].append((interval.start_ns, rank))
        for order in arrivals.values():
            first, last = min(order), max(order)
            if last[0] > first[0]:
                found[last[1]] += 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def summary(accounts: Sequence[StepAccount]) -> list[dict[str, Any]]:
    """A row per rank over all steps that count: means in microseconds, and the share of halting."""
    rows = []
    for rank in sorted({each.rank for each in accounts}):
        mine = [each for each in accounts if each.rank == rank and each.step >= 0]
        step_ns = sum(each.step_ns for each in mine)
        row: dict[str, Any] = {"rank": rank, "steps": len(mine)}
        for name in ("step", "compute", "overlapped", "waiting", "network", "idle"):
            row[f"{name}_us"] = round(sum(getattr(each, f"{name}_ns") for each in mine) / len(mine) / 1e3, 3)
        row["halting"] = round(sum(each.exposed_ns for each in mine) / step_ns, 4)
        rows.append(row)
    return rows
