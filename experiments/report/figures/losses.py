"""Drops, marks and pauses over time, each in a strip of its own."""

from html import escape

import numpy as np

from experiments.report.axes import LEFT, PALETTE, TIMES, TOP, Area, Axis, picture, scaled, x_axis
from experiments.report.figure import Absent, Figure, Run

TITLE = "Drops, marks and pauses over time"
STRIPS = {
    "dropped_packets": ("drops", "packets", 1.0, PALETTE[1]),
    "marked_packets": ("ECN marks", "packets", 1.0, PALETTE[0]),
    "pauses_sent": ("pause frames sent", "frames", 1.0, PALETTE[3]),
    "paused_ns": ("time paused, all ports", "us", 1e3, PALETTE[4]),
}
"""Counter -> name, unit, divisor, colour."""
HEIGHT, GAP = 46, 28


def draw_losses(run: Run) -> Figure | Absent:
    """What happened at all ports together in each step."""
    bins = run.bins
    if bins is None:
        return Absent(title=TITLE, why=run.no_ports)
    shown = [name for name in STRIPS if bins.events[name].sum() > 0]
    if not shown:
        return Absent(title=TITLE, why="no packet was dropped or marked and no port paused while ports were sampled")
    divisor, unit = scaled(float(bins.edges_ns[-1]), TIMES)
    axis = Axis(label=f"virtual time ({unit})", low=bins.edges_ns[0] / divisor, high=bins.edges_ns[-1] / divisor)
    parts, y = [], float(TOP)
    for name in shown:
        words, of, scale, colour = STRIPS[name]
        values = bins.events[name] / scale
        area = Area(top=y + 16, bottom=y + 16 + HEIGHT)
        parts.append(f'<text x="{LEFT}" y="{y + 8:.0f}">{escape(words)}: {values.sum():,.0f} {of}</text>')
        parts.append(f'<text x="{LEFT - 5}" y="{area.top + 9:.0f}" text-anchor="end">{values.max():.3g}</text>')
        parts.append(f'<text x="{LEFT - 5}" y="{area.bottom:.0f}" text-anchor="end">0</text>')
        parts.append(f'<path d="M{LEFT} {area.bottom}H{area.right}" class="axis"/>')
        parts.append(_bars(values, area, colour))
        y = area.bottom + GAP - 16
    base = y - GAP + 16
    parts.append(x_axis(Area(top=TOP, bottom=base), axis))
    return Figure(
        title=TITLE,
        svg=picture(TITLE, base + 40, parts),
        note=f"Per step of {(bins.edges_ns[1] - bins.edges_ns[0]) / 1e3:.3g} us, all ports together.",
    )


def _bars(values: "np.ndarray", area: Area, colour: str) -> str:
    step = (area.right - area.left) / len(values)
    most = float(values.max())
    width, base = max(step, 1.0), f"{area.bottom:.0f}"
    boxes = "".join(
        f"M{area.left + at * step:.1f} {base}v-{max(1.0, value / most * HEIGHT):.1f}h{width:.1f}V{base}z"
        for at, value in enumerate(values)
        if value > 0
    )
    return f'<path d="{boxes}" fill="{colour}"/>'
