"""Cumulative distributions of flow completion times and slowdowns, a curve per traffic pattern."""

from collections.abc import Mapping, Sequence

from experiments.report.axes import TIMES, Axis, Line, lines, scaled, span
from experiments.report.figure import Absent, Figure, Run

TIMES_TITLE, SLOWDOWN_TITLE = "Flow completion times", "Slowdown of flows"
MOST_CURVES, MOST_POINTS = 6, 200
LEAST_FLOWS = 3
"""Of a line of the schedule, to have a curve of its own."""
LEAST_RANGE = 0.9
"""The axis begins at this share of the longest at the latest."""
SPREAD = 20
"""From this ratio of the longest to the shortest on, the axis is logarithmic."""


def draw_completion_times(run: Run) -> Figure | Absent:
    """From the first byte to the last."""
    flows = run.results.sections.get("flows")
    if not flows:
        return Absent(title=TIMES_TITLE, why="this experiment measures no flows of their own")
    divisor, unit = scaled(max(flows["fct_us"]) * 1e3, TIMES)
    scaled_flows = {**flows, "fct_us": [value * 1e3 / divisor for value in flows["fct_us"]]}
    return _cdf(TIMES_TITLE, scaled_flows, "fct_us", f"completion time ({unit})")


def draw_slowdowns(run: Run) -> Figure | Absent:
    """Over the time that an idle fabric would take."""
    flows = run.results.sections.get("flows")
    if not flows:
        return Absent(title=SLOWDOWN_TITLE, why="this experiment measures no flows of their own")
    return _cdf(SLOWDOWN_TITLE, flows, "slowdown", "completion time / that on an idle fabric")


def _cdf(title: str, flows: Mapping[str, Sequence[float]], field: str, label: str) -> Figure:
    values = [float(value) for value in flows[field]]
    groups: dict[str, list[float]] = {}
    names = [f"{pattern} (line {line})" for pattern, line in zip(flows["pattern"], flows["line"], strict=True)]
    if len(set(names)) > MOST_CURVES or min(names.count(name) for name in set(names)) < LEAST_FLOWS:
        names = [str(pattern) for pattern in flows["pattern"]]
    for name, value in zip(names, values, strict=True):
        groups.setdefault(name, []).append(value)
    if len(groups) > MOST_CURVES:
        groups = {"all flows": values}
    log = max(values) > SPREAD * min(values)
    curves = [Line(name=name, points=steps(members), stairs=True) for name, members in groups.items()]
    svg = lines(title, cdf_span(label, values, log=log), span("share of flows", (0, 1)), curves)
    return Figure(title=title, svg=svg, note=f"{len(values)} flows.")


def cdf_span(label: str, values: Sequence[float], *, log: bool) -> Axis:
    """An axis that does not blow a hair's breadth up to the whole width."""
    return span(label, [*values, *([] if log else [LEAST_RANGE * max(values)])], log=log)


def steps(values: Sequence[float], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """Points of the empirical distribution, thinned to so many; both ends are kept."""
    ordered = sorted(values)
    points = [(ordered[0], 0.0), *((value, (number + 1) / len(ordered)) for number, value in enumerate(ordered))]
    every = max(1, len(points) // most)
    kept = points[::every]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
