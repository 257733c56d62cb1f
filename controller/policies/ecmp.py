"""Equal-cost multi-path: every flow keeps the path that a hash of its 5-tuple gives it.

    flow --hash(5-tuple, seed of tier 1)--> uplink --hash(5-tuple, seed of tier 2)--> uplink ...

What nearly every Ethernet fabric does, and what fails for training jobs: few, large flows collide, and the busiest
link decides.  With `polarised=yes` all tiers use one seed, as switches of one make with their factory setting do: the
second tier then repeats the choice of the first and uses one of its links only.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.policies.base import Policy, Situation, parameter, whole, yes_no
from controller.selector.flow_hash import derive_seeds
from controller.selector.selection import Selection


@dataclass(frozen=True, kw_only=True)
class Ecmp(Policy):
    """Hashes the 5-tuple, with a seed per tier."""

    name: ClassVar[str] = "ecmp"
    summary: ClassVar[str] = "a hash of the 5-tuple per tier; a flow keeps its path"

    seed: int | None = parameter(None, whole, "of the hashes; by default the run's seed")
    polarised: bool = parameter(False, yes_no, "yes: all tiers hash with the same seed")

    def selection(self, situation: Situation) -> Selection:
        """Full width everywhere; the seeds are all there is to decide."""
        seeds = derive_seeds(self.name, situation.seed if self.seed is None else self.seed)
        if self.polarised:
            seeds = (seeds[0],) * 4
        return Selection(seeds=seeds, widths=situation.widths)
