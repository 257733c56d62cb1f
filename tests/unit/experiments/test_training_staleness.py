"""Clocks of a parameter server: who may go on, and how far ahead anybody ever was."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.training.staleness import Clocks


def test_bound_0_is_lock_step() -> None:
    clocks = Clocks(workers=3, steps=2, bound=0)
    assert [clocks.push(worker) for worker in (2, 0, 1)] == [[], [], [0, 1, 2]]
    assert clocks.largest_lead == 0


def test_without_a_bound_nobody_waits() -> None:
    clocks = Clocks(workers=2, steps=9, bound=None)
    assert [clocks.push(0) for _ in range(9)] == [[0]] * 9
    assert clocks.largest_lead == 8


def test_a_worker_ahead_by_the_bound_waits_for_the_slowest() -> None:
    clocks = Clocks(workers=2, steps=9, bound=2)
    assert [clocks.push(0) for _ in range(3)] == [[0], [0], []]
    assert clocks.push(1) == [0, 1]
    assert clocks.largest_lead == 2


def test_a_worker_that_is_done_is_let_go_and_leads_nobody() -> None:
    clocks = Clocks(workers=2, steps=1, bound=0)
    ends = [(clocks.push(worker), clocks.finished) for worker in (0, 1)]
    assert ends == [([0], False), ([1], True)]
    assert clocks.largest_lead == 0


@pytest.mark.parametrize("bound", [0, 1, 3])
@given(order=st.randoms(use_true_random=False))
def test_no_order_of_pushes_gets_stuck_or_breaks_the_bound(bound: int, order: Random) -> None:
    """Free workers push in any order: all end, and none ever began a step further ahead than the bound."""
    clocks, free = Clocks(workers=4, steps=6, bound=bound), [0, 1, 2, 3]
    while not clocks.finished:
        assert free, "somebody can always go on"
        worker = order.choice(free)
        assert clocks.done[worker] - min(clocks.done) <= bound
        free.remove(worker)
        free += [each for each in clocks.push(worker) if clocks.done[each] < clocks.steps]
    assert clocks.done == [6] * 4
    assert clocks.largest_lead <= bound
