"""Figures of several runs, a curve for each.  Pure."""

from collections.abc import Callable, Iterator, Sequence

from experiments.report.axes import BYTES, TIMES, Line, lines, scaled, span
from experiments.report.compare.runs import Compared
from experiments.report.figure import Figure
from experiments.report.figures.completion import SPREAD, cdf_span, steps

MOST_CURVES = 6


def overlays(runs: Sequence[Compared]) -> list[Figure]:
    """Those that two runs or more have data for."""
    draws: Sequence[Callable[[Sequence[Compared]], Iterator[Figure]]] = (bandwidth, flows, links, queues)
    return [figure for draw in draws for figure in draw(runs[:MOST_CURVES])]


def bandwidth(runs: Sequence[Compared]) -> Iterator[Figure]:
    """Bus bandwidth by size, a figure for each operation with two sizes at least."""
    for op in dict.fromkeys(row.op for each in runs for row in each.results.rows):
        curves = [Line(name=each.name, points=_by_size(each, op)) for each in runs]
        sizes = {x for curve in curves for x, _ in curve.points}
        if len(sizes) < 2:
            continue
        title = f"Bus bandwidth of {op}"
        y = span("busbw (GB/s)", [value for curve in curves for _, value in curve.points], zero=True)
        svg = lines(title, span("size (MB)", sorted(sizes), log=True), y, [curve for curve in curves if curve.points])
        yield Figure(title=title, svg=svg, note="Of the mean time of each size.")


def _by_size(each: Compared, op: str) -> list[tuple[float, float]]:
    groups: dict[int, list[tuple[float, float]]] = {}
    for row in each.results.rows:
        if row.op == op:
            groups.setdefault(row.bytes, []).append((row.time_us, row.busbw_GBps))
    return [
        (size / 1e6, values[0][1] * values[0][0] * len(values) / sum(time for time, _ in values))
        for size, values in sorted(groups.items())
    ]


def flows(runs: Sequence[Compared]) -> Iterator[Figure]:
    """Completion times and slowdowns of all flows."""
    having = [each for each in runs if each.results.sections.get("flows")]
    if len(having) < 2:
        return
    longest = max(max(each.results.sections["flows"]["fct_us"]) for each in having) * 1e3
    divisor, unit = scaled(longest, TIMES)
    for title, field, factor, label in (
        ("Flow completion times", "fct_us", 1e3 / divisor, f"completion time ({unit})"),
        ("Slowdown of flows", "slowdown", 1.0, "completion time / that on an idle fabric"),
    ):
        values = {each.name: [value * factor for value in each.results.sections["flows"][field]] for each in having}
        every = [value for some in values.values() for value in some]
        curves = [Line(name=name, points=steps(some), stairs=True) for name, some in values.items()]
        x = cdf_span(label, every, log=max(every) > SPREAD * min(every))
        yield Figure(title=title, svg=lines(title, x, span("share of flows", (0, 1)), curves))


def links(runs: Sequence[Compared]) -> Iterator[Figure]:
    """How unevenly links were used: shares of all directions, the busiest first."""
    curves = []
    for each in runs:
        shares = sorted((link.utilisation * 100 for link in each.results.links), reverse=True)
        curves.append(Line(name=each.name, points=[(number + 1, share) for number, share in enumerate(shares)][:200]))
    if not any(value for curve in curves for _, value in curve.points):
        return
    title = "Links by how busy they were"
    x = span("direction of a cable, the busiest first", [at for curve in curves for at, _ in curve.points])
    yield Figure(title=title, svg=lines(title, x, span("used (% of the rate)", (0, 100)), curves))


def queues(runs: Sequence[Compared]) -> Iterator[Figure]:
    """The longest queue of any port over time, from each run's first byte."""
    having = [(each, each.run.bins) for each in runs if each.run.bins is not None]
    if len(having) < 2:
        return
    most = max(float(bins.queue_bytes.max()) for _, bins in having if bins is not None)
    size, size_unit = scaled(most, BYTES)
    end = max(float(bins.edges_ns[-1] - bins.edges_ns[0]) for _, bins in having if bins is not None)
    unit_ns, unit = scaled(end, TIMES)
    curves = []
    for each, bins in having:
        if bins is not None:
            at = ((bins.edges_ns - bins.edges_ns[0]) / unit_ns).tolist()
            longest = (bins.queue_bytes.max(axis=0) / size).tolist()
            points = list(zip(at, [*longest, longest[-1]], strict=True))
            curves.append(Line(name=each.name, points=points, stairs=True))
    title = "The longest queue over time"
    x = span(f"virtual time since the first byte ({unit})", [0.0, end / unit_ns])
    yield Figure(title=title, svg=lines(title, x, span(f"queue ({size_unit})", [0.0, most / size]), curves))
