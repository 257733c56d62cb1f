"""Ranks in three dimensions: which of them share a layer, a pipeline, and a copy of the model.  Pure.

    tp   tensor parallel: the same layers, cut up        fastest in the order means next to each other: in one rack
    pp   pipeline parallel: consecutive layers
    dp   data parallel: the same parameters, other data

Two ranks of one group differ in that dimension only, so every pair of ranks belongs to one dimension or to none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from topologies.errors import UserError

DIMENSIONS = ("tp", "pp", "dp")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How many ranks along each dimension."""

    sizes: Mapping[str, int]
    order: Sequence[str]
    """Dimensions, the one whose ranks are neighbours first; Megatron-LM's own default is tp, dp, pp."""

    def __post_init__(self) -> None:
        """Raises UserError in the words of the settings that grids are made of."""
        if sorted(self.order) != sorted(DIMENSIONS):
            raise UserError(f"--set order={','.join(self.order)}: write {', '.join(DIMENSIONS)} in some order")
        for name in DIMENSIONS:
            if self.sizes[name] < 1:
                raise UserError(f"--set {name}={self.sizes[name]}: write 1 or more")

    @property
    def ranks(self) -> int:
        """All of them."""
        return prod(self.sizes.values())

    def place(self, rank: int) -> dict[str, int]:
        """Dimension -> this rank's number in it."""
        found = {}
        for name in self.order:
            rank, found[name] = divmod(rank, self.sizes[name])
        return found

    def rank_at(self, place: Mapping[str, int]) -> int:
        """The inverse of `place`."""
        found = 0
        for name in reversed(self.order):
            found = found * self.sizes[name] + place[name]
        return found

    def groups(self, dimension: str) -> list[list[int]]:
        """Ranks that differ in this dimension only, in its order."""
        others = [name for name in DIMENSIONS if name != dimension]
        found = []
        for fixed in product(*(range(self.sizes[name]) for name in others)):
            place = dict(zip(others, fixed, strict=True))
            found.append([self.rank_at({**place, dimension: number}) for number in range(self.sizes[dimension])])
        return found

    def group_of(self, rank: int, dimension: str) -> tuple[int, list[int]]:
        """Its number among `groups`, and its ranks."""
        return next((number, ranks) for number, ranks in enumerate(self.groups(dimension)) if rank in ranks)

    def dimension_of(self, one: int, other: int) -> str | None:
        """Along which these two differ; None where it is more than one, or none."""
        here, there = self.place(one), self.place(other)
        different = [name for name in DIMENSIONS if here[name] != there[name]]
        return different[0] if len(different) == 1 else None
