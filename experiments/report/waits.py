"""Who waited for whom in a training job: its steps out of the recorded intervals, and training's own accounts of them.

Only jobs that compute have steps; of the others `step` counts equal names, and ranks begin together at line-ups.  Pure.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from experiments.report.series import Columns
from experiments.training.accounting import Span, account, common, union
from experiments.training.diagnosis import held_up_ns
from experiments.training.timeline import Interval, Kind, StepRecord

KINDS = tuple(kind.value for kind in Kind)


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Shares of the time of the measured steps that all ranks took part in; keys are ranks."""

    host: Mapping[int, str]
    waited: Mapping[int, float]
    """For ranks that had not begun a collective yet, with nothing computed meanwhile."""
    held_up: Mapping[int, float]
    """By which all others would have gone on earlier without this rank (experiments/training/diagnosis.py)."""
    halted: Mapping[int, float]
    """Communicating with nothing computed meanwhile: waiting and the network."""


def job_waits(ranks: Columns, job: int) -> Waits | None:
    """None for a job without steps of compute that all its ranks share."""
    rows = _rows(ranks, job)
    records = job_records(ranks, job)
    if records is None:
        return None
    members = sorted(set(ranks["rank"][rows].tolist()))
    accounts = account(records)
    total = {rank: sum(record.end_ns - record.start_ns for record in records[at]) for at, rank in enumerate(members)}
    blame = held_up_ns(records)
    mean_ns = max(1.0, sum(total.values()) / len(total))
    waiting, exposed = defaultdict[int, int](int), defaultdict[int, int](int)
    for each in accounts:
        waiting[members[each.rank]] += each.waiting_ns
        exposed[members[each.rank]] += each.exposed_ns
    return Waits(
        host={int(ranks["rank"][row]): str(ranks["host"][row]) for row in rows},
        waited={rank: waiting[rank] / max(1, total[rank]) for rank in members},
        held_up={rank: blame[at] / mean_ns for at, rank in enumerate(members)},
        halted={rank: exposed[rank] / max(1, total[rank]) for rank in members},
    )


def job_records(ranks: Columns, job: int) -> list[list[StepRecord]] | None:
    """By rank in order, and by step, of the measured steps that all ranks took part in; None where there is none."""
    rows = _rows(ranks, job)
    if not len(rows) or not (ranks["kind"][rows] == Kind.COMPUTE.value).any():
        return None
    found = step_records(ranks, rows)
    numbers = sorted(set.intersection(*(set(steps) for steps in found.values())))
    return [[found[rank][number] for number in numbers] for rank in sorted(found)] if numbers else None


def _rows(ranks: Columns, job: int) -> NDArray[np.int64]:
    """Of the intervals of measured steps."""
    return np.flatnonzero((ranks["job"] == job) & np.isin(ranks["kind"], KINDS) & (ranks["step"] >= 0))


def all_communicate(ranks: Columns, job: int) -> list[Span]:
    """When all ranks of a job were in a communication; of a job that computes nothing, in an operation."""
    mine = ranks["job"] == job
    computes = (ranks["kind"][mine] == Kind.COMPUTE.value).any()
    kinds = [Kind.COMMUNICATION.value] if computes else [Kind.COMMUNICATION.value, "operation"]
    rows = np.flatnonzero(mine & np.isin(ranks["kind"], kinds))
    spans: dict[int, list[Span]] = defaultdict(list)
    for row in rows:
        spans[int(ranks["rank"][row])].append((int(ranks["start_ns"][row]), int(ranks["end_ns"][row])))
    return reduce(common, map(union, spans.values())) if spans else []


def step_records(ranks: Columns, rows: NDArray[np.int64]) -> dict[int, dict[int, StepRecord]]:
    """Rank -> number -> step, from the beginning of its first interval to the end of its last.

    Where a name comes again within a step of a rank, a number is added, so that a collective's name is its own.
    """
    intervals: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    seen: dict[tuple[int, int, str], int] = defaultdict(int)
    for row in sorted((int(each) for each in rows), key=lambda each: int(ranks["start_ns"][each])):
        key, name = (int(ranks["rank"][row]), int(ranks["step"][row])), str(ranks["name"][row])
        seen[(*key, name)] += 1
        intervals[key].append(
            Interval(
                kind=Kind(str(ranks["kind"][row])),
                name=f"{name} #{seen[(*key, name)]}",
                start_ns=int(ranks["start_ns"][row]),
                end_ns=int(ranks["end_ns"][row]),
            )
        )
    found: dict[int, dict[int, StepRecord]] = defaultdict(dict)
    for (rank, number), parts in intervals.items():
        found[rank][number] = StepRecord(
            number=number, start_ns=parts[0].start_ns, end_ns=max(part.end_ns for part in parts), intervals=tuple(parts)
        )
    return found
