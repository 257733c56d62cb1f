"""Packet spraying: every packet chooses a path of its own.

    flow --packet--> uplink 1     loads are as even as can be; packets overtake each other where queues differ, and
         --packet--> uplink 3     TCP takes what is late for lost
         --packet--> uplink 2 ...

`random` draws (equal to flowlets with a gap of 0), `round_robin` takes a flow's paths in turn from a hashed start, and
`drill` looks at two drawn uplinks and at the one that was best before, and takes the least loaded (DRILL, SIGCOMM 2017:
d = 2, m = 1; facts.md 2).  DRILL looks at queue lengths, this at the bytes that were lately sent towards an uplink.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.policies.base import Policy, Situation, one_of, parameter, whole
from controller.selector.flow_hash import derive_seeds
from controller.selector.selection import Choice, Selection

CHOICES = {"random": Choice.HASH, "round_robin": Choice.ROUND_ROBIN, "drill": Choice.DRILL}


@dataclass(frozen=True, kw_only=True)
class Spray(Policy):
    """A flowlet of one packet."""

    name: ClassVar[str] = "spray"
    summary: ClassVar[str] = "every packet chooses: random, round_robin, or drill (two choices and memory)"

    choice: str = parameter("random", one_of(*CHOICES), "random, round_robin or drill")
    seed: int | None = parameter(None, whole, "of the draws; by default the run's seed")

    def selection(self, situation: Situation) -> Selection:
        """The seeds are ECMP's, so that a first packet goes where ECMP sends it."""
        choice = CHOICES[self.choice]
        return Selection(
            seeds=derive_seeds("ecmp", situation.seed if self.seed is None else self.seed),
            widths=situation.widths,
            choice=choice,
            routes={} if choice is Choice.HASH else situation.routes,
            cost_ps=situation.cost_ps if choice is Choice.DRILL else {},
            gap_ns=0,
        )
