"""Flowlets: a flow that paused longer than `gap` takes a new path; what it sent before is out of the way by then.

    packets  ||||||   ||||   |||||||
    path       3   |    1  |    2           gap > difference of the paths' delays: nothing is overtaken

`random` is LetFlow (NSDI 2017): slow paths make flows pause, so flowlets drift to fast ones by themselves.  `local`
takes the leaf's least loaded uplink; `congestion` the path whose busiest link is least loaded (CONGA, SIGCOMM 2014).
Loads are what was lately sent towards each link, in its own wire time, and what a flowlet may add: an idle slow link
is no bargain (selector/spreading.h).  A link that is slower than the topology says is not known to be.

A random flow's first path is ECMP's: with `gap=infinite` this is ECMP, with `gap=0` it is `spray`.  By load the first
path is the least loaded as well, as switches do it (facts.md 1.5).
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.policies.base import Policy, Situation, one_of, parameter, whole
from controller.selector.flow_hash import derive_seeds
from controller.selector.selection import MOST_SLOTS, Choice, Selection
from topologies.parameters import count, delay_of

CHOICES = {"random": Choice.HASH, "local": Choice.LOCAL, "congestion": Choice.CONGESTION}
INFINITE = "infinite"
DEFAULT_GAP_NS = 50_000
"""The class default of CONGA's and LetFlow's simulation code (facts.md 2)."""


def _gap(name: str, text: str) -> int | None:
    return None if text == INFINITE else delay_of(name, text)


def _slots(name: str, text: str) -> int:
    return count(name, text, least=1, most=MOST_SLOTS)


@dataclass(frozen=True, kw_only=True)
class Flowlet(Policy):
    """Chooses again after every pause."""

    name: ClassVar[str] = "flowlet"
    summary: ClassVar[str] = "a new path after every pause: random (LetFlow), local, or congestion (CONGA)"

    gap: int | None = parameter(DEFAULT_GAP_NS, _gap, "the shortest pause, for instance 50us, or infinite; in ns")
    choice: str = parameter("random", one_of(*CHOICES), "random, local or congestion")
    seed: int | None = parameter(None, whole, "of the draws; by default the run's seed")
    slots: int = parameter(MOST_SLOTS, _slots, "entries of the flowlet table of the whole fabric")

    def selection(self, situation: Situation) -> Selection:
        """The seeds are ECMP's."""
        choice = CHOICES[self.choice]
        return Selection(
            seeds=derive_seeds("ecmp", situation.seed if self.seed is None else self.seed),
            widths=situation.widths,
            choice=choice,
            routes={} if choice is Choice.HASH else situation.routes,
            cost_ps={} if choice is Choice.HASH else situation.cost_ps,
            gap_ns=self.gap,
            slots=self.slots,
        )
