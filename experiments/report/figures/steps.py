"""What each rank did and when: compute, communication, waiting, on the run's time."""

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from experiments.report.axes import PALETTE, TIMES, TOP, Area, Axis, fitted, picture, scaled, x_axis
from experiments.report.figure import Absent, Figure, Run
from experiments.report.series import Columns
from experiments.training.accounting import union

TITLE = "Steps of each rank"
KINDS = {"compute": PALETTE[4], "communication": PALETTE[0], "operation": PALETTE[0], "wait": PALETTE[3]}
"""Of ranks.parquet -> colour.  An operation is a communication that an experiment named itself."""
MOST_RANKS, MOST_STEPS, ROW = 24, 4, 17
NAMES = 84


def draw_steps(run: Run) -> Figure | Absent:
    """The last job's ranks; of a long training the steps in its middle."""
    ranks = run.series.ranks
    if ranks is None:
        return Absent(title=TITLE, why=run.series.missing["ranks"])
    job = max(set(ranks["job"].tolist()))
    rows = np.flatnonzero(ranks["job"] == job)
    steps = training_steps(ranks, rows)
    shown = steps[max(0, (len(steps) - MOST_STEPS) // 2) :][:MOST_STEPS]
    begin, end = _window(ranks, rows, shown)
    rows = rows[(ranks["end_ns"][rows] > begin) & (ranks["start_ns"][rows] < end)]
    if shown:  # an operation is then the whole step
        rows = rows[ranks["kind"][rows] != "operation"]
    members = chosen(ranks, rows)
    divisor, unit = scaled(float(end), TIMES)
    area = Area(left=NAMES, top=TOP + 24, bottom=TOP + 24 + ROW * len(members))
    axis = Axis(label=f"virtual time ({unit})", low=begin / divisor, high=max(end, begin + 1) / divisor)
    parts = [_legend({str(kind) for kind in ranks["kind"][rows]}), x_axis(area, axis)]
    for line, rank in enumerate(members):
        mine = rows[ranks["rank"][rows] == rank]
        name = fitted(f"{ranks['host'][mine[0]]} ({rank})", NAMES - 8)
        y = area.top + line * ROW
        parts.append(f'<text x="{NAMES - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        parts += _bars(ranks, mine, area, y, begin, end)
    return Figure(
        title=TITLE,
        svg=picture(TITLE, area.bottom + 40, parts),
        note=_note(ranks, rows, int(job), members, steps, shown),
    )


def training_steps(ranks: Columns, rows: NDArray[np.int64]) -> list[int]:
    """Numbers of measured steps of a job that computes; none of others, where the column counts equal names."""
    computing = rows[ranks["kind"][rows] == "compute"]
    return sorted({int(step) for step in ranks["step"][computing] if step >= 0})


def _window(ranks: Columns, rows: NDArray[np.int64], steps: Sequence[int]) -> tuple[int, int]:
    """From the beginning of the first of these training steps to the end of the last; all where there are none."""
    kinds = np.isin(ranks["kind"][rows], ["compute", "communication"])
    inside = rows[kinds & np.isin(ranks["step"][rows], steps)] if steps else rows
    return int(ranks["start_ns"][inside].min()), int(ranks["end_ns"][inside].max())


def _note(
    ranks: Columns,
    rows: NDArray[np.int64],
    job: int,
    members: Sequence[int],
    steps: Sequence[int],
    shown: Sequence[int],
) -> str:
    everybody = len(np.unique(ranks["rank"][rows]))
    note = f"Job {job}, {len(members)} of {everybody} ranks: host (rank)"
    return f"{note}; steps {shown[0]} to {shown[-1]} of {len(steps)}." if shown else f"{note}."


def chosen(ranks: Columns, rows: NDArray[np.int64]) -> list[int]:
    """At most MOST_RANKS: those that computed longest, and others at equal distances."""
    members = sorted({int(rank) for rank in ranks["rank"][rows]})
    if len(members) <= MOST_RANKS:
        return members
    computing = rows[ranks["kind"][rows] == "compute"]
    length = np.zeros(members[-1] + 1)
    np.add.at(length, ranks["rank"][computing], ranks["end_ns"][computing] - ranks["start_ns"][computing])
    longest = sorted(members, key=lambda rank: (-length[rank], rank))[: MOST_RANKS // 4]
    others = [rank for rank in members if rank not in longest]
    spread = others[:: -(-len(others) // (MOST_RANKS - len(longest)))]
    return sorted([*longest, *spread])


def _bars(ranks: Columns, rows: NDArray[np.int64], area: Area, y: float, begin: int, end: int) -> Iterator[str]:
    """A path for each kind; communication runs beside compute, so it has the lower half of the row."""
    pixel = (area.right - area.left) / max(1, end - begin)
    for kind, colour in KINDS.items():
        of_kind = rows[ranks["kind"][rows] == kind]
        spans = [
            (round((max(int(start), begin) - begin) * pixel * 2), round((min(int(stop), end) - begin) * pixel * 2))
            for start, stop in zip(ranks["start_ns"][of_kind], ranks["end_ns"][of_kind], strict=True)
        ]
        top, height = (y + 1, 7) if kind == "compute" else (y + 8, 7)
        boxes = "".join(
            f"M{area.left + start / 2:.1f} {top}h{(stop - start) / 2:.1f}v{height}h-{(stop - start) / 2:.1f}z"
            for start, stop in union((start, max(stop, start + 1)) for start, stop in spans)
        )
        if boxes:
            yield f'<path d="{boxes}" fill="{colour}"/>'


def _legend(kinds: set[str]) -> str:
    parts, x = [], NAMES
    for kind, colour in KINDS.items():
        if kind in kinds:
            parts.append(f'<rect x="{x}" y="{TOP - 4}" width="14" height="10" fill="{colour}"/>')
            parts.append(f'<text x="{x + 19}" y="{TOP + 5}">{kind}</text>')
            x += 40 + len(kind) * 7
    return "".join(parts)
