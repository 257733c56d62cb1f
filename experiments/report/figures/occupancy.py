"""Cumulative distribution of queue lengths: what an experiment measured itself, else of the sampled ports."""

import numpy as np

from experiments.report.axes import BYTES, Line, lines, scaled, span
from experiments.report.figure import Absent, Figure, Run

TITLE = "Queue occupancy"
MOST_CURVES, POINTS = 4, 101


def draw_occupancy(run: Run) -> Figure | Absent:
    """Share of the time in which a queue was not longer."""
    section = run.results.sections.get("queue_cdf")
    if section:
        found = [(str(entry["name"]), [(float(x), float(y)) for x, y in entry["points"]]) for entry in section]
        note = "As the experiment sampled the port that its flows share."
    elif run.bins is None:
        return Absent(title=TITLE, why=run.no_ports)
    else:
        found = _sampled(run)
        note = f"Samples of the {len(found)} ports with the longest queues, each held until the next."
    if not found:
        return Absent(title=TITLE, why="no sample found a packet waiting")
    divisor, unit = scaled(max(x for _, points in found for x, _ in points), BYTES)
    curves = [Line(name=name, points=[(x / divisor, y) for x, y in points], stairs=True) for name, points in found]
    values = [x for curve in curves for x, _ in curve.points]
    svg = lines(TITLE, span(f"queue ({unit})", values, zero=True), span("share of time", (0, 1)), curves)
    return Figure(title=TITLE, svg=svg, note=note)


def _sampled(run: Run) -> list[tuple[str, list[tuple[float, float]]]]:
    """Weighted by time, within the steps in which anything was sent."""
    bins, ports = run.bins, run.series.ports
    assert bins is not None
    assert ports is not None
    order = np.argsort(-bins.queue_bytes.max(axis=1), kind="stable")[:MOST_CURVES]
    found = []
    for name in (bins.interfaces[int(row)] for row in order if bins.queue_bytes[row].max() > 0):
        rows = np.flatnonzero(ports["interface"] == name)
        at = np.clip(ports["time_ns"][rows].astype(float), bins.edges_ns[0], bins.edges_ns[-1])
        held = np.append(np.diff(at), 0.0)
        lengths = ports["queue_bytes"][rows]
        by_length = np.argsort(lengths, kind="stable")
        share = np.cumsum(held[by_length]) / max(held.sum(), 1.0)
        wanted = np.linspace(0, 1, POINTS)
        picked = np.minimum(np.searchsorted(share, wanted - 1e-12), len(rows) - 1)
        found.append(
            (
                run.direction(name),
                [(float(lengths[by_length][k]), float(y)) for k, y in zip(picked, wanted, strict=True)],
            )
        )
    return found
