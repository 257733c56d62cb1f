"""The figures of a report, in the order in which the page shows them."""

from collections.abc import Callable

from experiments.report.figure import Absent, Figure, Run
from experiments.report.figures.completion import draw_completion_times, draw_slowdowns
from experiments.report.figures.links import draw_links
from experiments.report.figures.losses import draw_losses
from experiments.report.figures.occupancy import draw_occupancy
from experiments.report.figures.queues import draw_queues
from experiments.report.figures.sockets import draw_round_trips, draw_windows
from experiments.report.figures.steps import draw_steps

FIGURES: tuple[Callable[[Run], Figure | Absent], ...] = (
    draw_steps,
    draw_links,
    draw_queues,
    draw_losses,
    draw_completion_times,
    draw_slowdowns,
    draw_occupancy,
    draw_windows,
    draw_round_trips,
)
"""Beside the picture of the fabric, which has the slider (fabric.py)."""
