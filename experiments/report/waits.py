"""Who waited for whom in a job, from when its ranks began what they all take part in.  Pure.

A rank waits from its own beginning of a collective to the beginning of the last rank; the last rank holds up all others
from the beginning of the last but one to its own.  Collectives are told apart by step, name and how often before.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.report.series import Columns
from experiments.training.accounting import Span, length, union, without

TOGETHER = ("communication", "operation")
"""Kinds that ranks take part in together."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Shares of the time in which any rank of the job computed or communicated, in measured steps; keys are ranks."""

    host: Mapping[int, str]
    waited: Mapping[int, float]
    held_up: Mapping[int, float]
    halted: Mapping[int, float]
    """Neither computing nor idle: communicating with nothing beside it.  Empty for a job that computes nothing."""


def job_waits(ranks: Columns, job: int) -> Waits:
    """Of the measured steps, whose numbers begin at 0; of all that was recorded where there are only others."""
    rows = np.flatnonzero(ranks["job"] == job)
    measured = rows[ranks["step"][rows] >= 0]
    rows = measured if len(measured) else rows
    together: dict[tuple[int, str, int], dict[int, int]] = defaultdict(dict)
    spans: dict[str, dict[int, list[Span]]] = {"compute": defaultdict(list), "together": defaultdict(list)}
    seen: dict[tuple[int, int, str], int] = defaultdict(int)
    for row in rows[np.argsort(ranks["start_ns"][rows], kind="stable")]:
        rank, kind, span = int(ranks["rank"][row]), str(ranks["kind"][row]), _span(ranks, int(row))
        if kind == "compute":
            spans["compute"][rank].append(span)
        elif kind in TOGETHER:
            key = (int(ranks["step"][row]), str(ranks["name"][row]))
            together[(*key, seen[(rank, *key)])][rank] = span[0]
            seen[(rank, *key)] += 1
            spans["together"][rank].append(span)
    return _shares(ranks, rows, together, spans)


def _shares(
    ranks: Columns,
    rows: "np.ndarray",
    together: Mapping[tuple[int, str, int], Mapping[int, int]],
    spans: Mapping[str, Mapping[int, list[Span]]],
) -> Waits:
    host = {int(ranks["rank"][row]): str(ranks["host"][row]) for row in rows}
    total = max(1, length(union(span for kind in spans.values() for found in kind.values() for span in found)))
    waited: dict[int, list[Span]] = {rank: [] for rank in host}
    held: dict[int, list[Span]] = {rank: [] for rank in host}
    for begun in together.values():
        if len(begun) < 2:
            continue
        *_, (before, _), (last, straggler) = sorted((start, rank) for rank, start in begun.items())
        held[straggler].append((before, last))
        for rank, start in begun.items():
            waited[rank].append((start, last))
    halted = {
        rank: length(without(union(spans["together"][rank]), union(computing))) / total
        for rank, computing in sorted(spans["compute"].items())
        if rank in spans["together"]
    }
    return Waits(
        host=host,
        waited={
            rank: length(without(union(found), union(spans["compute"].get(rank, [])))) / total
            for rank, found in waited.items()
        },
        held_up={rank: length(union(found)) / total for rank, found in held.items()},
        halted=halted,
    )


def _span(ranks: Columns, row: int) -> Span:
    return int(ranks["start_ns"][row]), int(ranks["end_ns"][row])
