"""Queues as a heat map: the longest queues' ports by time, darker for more bytes."""

from html import escape

import numpy as np

from experiments.report.axes import BYTES, FONT, RIGHT, TIMES, TOP, WIDTH, Area, Axis, fitted, picture, scaled, x_axis
from experiments.report.bins import Bins
from experiments.report.figure import Absent, Figure, Run

TITLE = "Queues over time"
MOST_PORTS, ROW = 20, 16
NAMES = 122
"""Units for the names of ports."""
LEVELS = 7
"""Shades; a rectangle spans equal neighbours of a row, which keeps the page small."""


def draw_queues(run: Run) -> Figure | Absent:
    """The high-water mark of each step."""
    bins = run.bins
    if bins is None:
        return Absent(title=TITLE, why=run.no_ports)
    peaks = bins.queue_bytes.max(axis=1)
    order = [int(row) for row in np.argsort(-peaks, kind="stable")[:MOST_PORTS] if peaks[row] > 0]
    if not order:
        return Absent(title=TITLE, why="no sample found a packet waiting")
    most = float(peaks[order[0]])
    area = Area(left=NAMES, top=TOP + 24, bottom=TOP + 24 + ROW * len(order))
    divisor, unit = scaled(float(bins.edges_ns[-1]), TIMES)
    axis = Axis(label=f"virtual time ({unit})", low=bins.edges_ns[0] / divisor, high=bins.edges_ns[-1] / divisor)
    parts = [_key(most), _cells(bins, order, area, most), *_names(run, bins, order, area), x_axis(area, axis)]
    hidden = int((peaks > 0).sum()) - len(order)
    note = f"The most that waited at once in each step, {len(order)} ports with the longest queues"
    return Figure(
        title=TITLE,
        svg=picture(TITLE, area.bottom + 40, parts),
        note=f"{note}; {hidden} more had one." if hidden else f"{note}.",
    )


def _cells(bins: Bins, order: list[int], area: Area, most: float) -> str:
    """One path per shade."""
    shade = np.ceil(bins.queue_bytes[order] / most * LEVELS).astype(int)
    step = (area.right - area.left) / bins.steps
    drawn: dict[int, list[str]] = {}
    for line, row in enumerate(shade):
        changes = np.flatnonzero(np.diff(row)) + 1
        for begin, end in zip([0, *changes], [*changes, len(row)], strict=True):
            if row[begin]:
                x, width = area.left + begin * step, (end - begin) * step
                drawn.setdefault(int(row[begin]), []).append(
                    f"M{x:.1f} {area.top + line * ROW + 1}h{width:.1f}v{ROW - 2}h-{width:.1f}z"
                )
    frame = f'<path d="M{area.left} {area.top}V{area.bottom}" class="axis"/>'
    return frame + "".join(
        f'<path d="{"".join(rectangles)}" class="heat" fill-opacity="{level / LEVELS:.2f}"/>'
        for level, rectangles in sorted(drawn.items())
    )


def _names(run: Run, bins: Bins, order: list[int], area: Area) -> list[str]:
    return [
        f'<text x="{area.left - 6}" y="{area.top + line * ROW + 12}" text-anchor="end">'
        f"{escape(fitted(run.direction(bins.interfaces[row]), NAMES - 8))}</text>"
        for line, row in enumerate(order)
    ]


def _key(most: float) -> str:
    divisor, unit = scaled(most, BYTES)
    width = 16
    right = WIDTH - RIGHT - 82
    boxes = "".join(
        f'<rect x="{right - (LEVELS - level) * width}" y="{TOP - 4}" width="{width}" height="10" class="heat" '
        f'fill-opacity="{level / LEVELS:.2f}"/>'
        for level in range(1, LEVELS + 1)
    )
    begin = right - (LEVELS - 1) * width - 6
    return (
        f'{boxes}<text x="{begin}" y="{TOP + 5}" text-anchor="end">queue 0</text>'
        f'<text x="{right + width + 5}" y="{TOP + 5}" font-size="{FONT}">{most / divisor:.3g} {unit}</text>'
    )
