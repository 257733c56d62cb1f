"""Ranks in three dimensions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.training.grid import DIMENSIONS, Grid
from topologies.errors import UserError

SIZES = st.fixed_dictionaries({name: st.integers(1, 4) for name in DIMENSIONS})
ORDERS = st.permutations(DIMENSIONS)


@given(SIZES, ORDERS)
def test_every_rank_has_a_place_of_its_own(sizes: dict[str, int], order: list[str]) -> None:
    grid = Grid(sizes=sizes, order=order)
    assert [grid.rank_at(grid.place(rank)) for rank in range(grid.ranks)] == list(range(grid.ranks))


@given(SIZES, ORDERS)
def test_groups_of_a_dimension_share_out_all_ranks_and_their_pairs_are_its_own(
    sizes: dict[str, int], order: list[str]
) -> None:
    grid = Grid(sizes=sizes, order=order)
    for name in DIMENSIONS:
        groups = grid.groups(name)
        assert sorted(rank for group in groups for rank in group) == list(range(grid.ranks))
        for number, group in enumerate(groups):
            assert len(group) == sizes[name]
            assert all(grid.group_of(rank, name) == (number, group) for rank in group)
            assert all(grid.dimension_of(one, other) == name for one in group for other in group if one != other)


def test_the_first_of_the_order_are_neighbours() -> None:
    grid = Grid(sizes={"tp": 4, "pp": 2, "dp": 2}, order=("tp", "dp", "pp"))
    assert grid.groups("tp") == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert grid.group_of(5, "dp")[1] == [1, 5]
    assert grid.group_of(5, "pp")[1] == [5, 13]
    assert grid.dimension_of(0, 5) is None


def test_grids_that_cannot_be_are_refused_with_the_setting() -> None:
    with pytest.raises(UserError, match="order=tp,pp"):
        Grid(sizes={"tp": 1, "pp": 1, "dp": 1}, order=("tp", "pp"))
    with pytest.raises(UserError, match="pp=0"):
        Grid(sizes={"tp": 1, "pp": 0, "dp": 1}, order=DIMENSIONS)
