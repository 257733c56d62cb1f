"""No load balancing: every packet takes choice 0 of every switch, so the paths of a fabric form one tree.

The baseline that shows what the other links are for, and the simplest policy there can be.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.policies.base import Policy, Situation
from controller.selector.selection import Selection


@dataclass(frozen=True, kw_only=True)
class Single(Policy):
    """One path between two leaves, whatever the flow."""

    name: ClassVar[str] = "single"
    summary: ClassVar[str] = "the first of the equal paths for everything; no balancing"

    def selection(self, situation: Situation) -> Selection:
        """No pair of leaves has anything to choose."""
        return Selection(widths=dict.fromkeys(situation.widths, (1, 1, 1, 1)))
