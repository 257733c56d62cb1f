"""Bars of the busiest directions of cables."""

from html import escape

from experiments.report.axes import RIGHT, TOP, WIDTH, Area, Axis, fitted, picture, x_axis
from experiments.report.figure import Absent, Figure, Run
from topologies.drawing import SCALE

TITLE = "Busiest links"
MOST, ROW, NAMES = 20, 17, 122


def draw_links(run: Run) -> Figure | Absent:
    """Share of the rate over the time in which operations ran, as results.json has it."""
    links = sorted(run.results.links, key=lambda link: (-link.utilisation, -link.tx_bytes))[:MOST]
    if not links or not links[0].utilisation:
        return Absent(title=TITLE, why="the experiment measured no time in which operations ran")
    area = Area(left=NAMES, top=TOP, right=WIDTH - RIGHT - 36, bottom=TOP + ROW * len(links))
    axis = Axis(label="used (% of the rate)", low=0, high=max(100.0, links[0].utilisation * 100))
    parts = [x_axis(area, axis)]
    for line, link in enumerate(links):
        y, right = TOP + line * ROW, area.x(axis, link.utilisation * 100)
        colour = next(colour for end, _, colour in SCALE if link.utilisation < end)
        name = fitted(run.direction(link.name.split(">")[0]), NAMES - 8)
        parts.append(
            f'<text x="{NAMES - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{NAMES}" y="{y + 2}" width="{right - NAMES:.1f}" height="{ROW - 5}" fill="{colour}"/>'
            f'<text x="{right + 5:.1f}" y="{y + 12}">{link.utilisation * 100:.1f}</text>'
        )
    note = f"{len(links)} of {len(run.results.links)} directions, over the time in which operations ran."
    return Figure(title=TITLE, svg=picture(TITLE, area.bottom + 40, parts), note=note)
