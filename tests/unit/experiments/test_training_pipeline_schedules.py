"""Orders of micro-batches: complete, free of deadlock, and as idle as the papers say."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.training.pipeline_schedules import (
    SCHEDULES,
    alike,
    bubble_share,
    hop_ns,
    makespan_ns,
    most_in_flight,
    schedule_named,
)
from experiments.training.timeline import Interval, Kind, StepRecord
from topologies.errors import UnknownName

NAMES = st.sampled_from(sorted(SCHEDULES))
STAGES, MICROBATCHES = st.integers(1, 6), st.integers(1, 9)


@given(NAMES, STAGES, MICROBATCHES)
def test_every_microbatch_goes_forward_once_and_then_backward_once(name: str, stages: int, microbatches: int) -> None:
    for stage in range(stages):
        actions = schedule_named(name)(stage, stages, microbatches)
        assert len(actions) == 2 * microbatches
        for number in range(microbatches):
            mine = [action.backward for action in actions if action.microbatch == number]
            assert mine == [False, True]


@given(NAMES, STAGES, MICROBATCHES, st.integers(1, 100), st.integers(1, 100))
def test_idle_share_is_that_of_the_papers(
    name: str, stages: int, microbatches: int, forward: int, backward: int
) -> None:
    took = makespan_ns(name, stages, microbatches, spent_ns=alike(forward, backward))
    assert took == (microbatches + stages - 1) * (forward + backward)
    assert 1 - Fraction(microbatches * (forward + backward), round(took)) == bubble_share(stages, microbatches)


def test_1f1b_holds_as_many_microbatches_as_there_are_stages_behind_gpipe_all() -> None:
    for stage in range(4):
        assert most_in_flight(schedule_named("1f1b")(stage, 4, 8)) == 4 - stage
        assert most_in_flight(schedule_named("gpipe")(stage, 4, 8)) == 8


def test_1f1b_pays_for_a_round_trip_whenever_all_it_holds_is_under_way_gpipe_only_at_the_ends() -> None:
    """Two stages, of which the first holds two micro-batches: a round trip per two of eight."""

    def slower(name: str) -> float:
        took = [makespan_ns(name, 2, 8, spent_ns=alike(10, 20), hop_ns=hop_ns) for hop_ns in (0, 1)]
        return took[1] - took[0]

    assert slower("gpipe") == 2
    assert slower("1f1b") == 2 * 8 / 2


def test_the_slowest_stage_sets_the_pace() -> None:
    took = makespan_ns(
        "gpipe", 3, 100, spent_ns=lambda stage, it: (20 if it.backward else 10) * (3 if stage == 2 else 1)
    )
    assert took == 100 * 90 + 2 * 30


def test_unknown_schedules_are_named() -> None:
    with pytest.raises(UnknownName, match="zigzag"):
        schedule_named("zigzag")


def record(*intervals: Interval) -> list[StepRecord]:
    return [StepRecord(number=0, start_ns=0, end_ns=100, intervals=intervals)]


def moved(name: str, start_ns: int, end_ns: int) -> Interval:
    return Interval(kind=Kind.COMMUNICATION, name=name, start_ns=start_ns, end_ns=end_ns)


def test_a_hop_counts_from_sending_and_only_where_somebody_waited() -> None:
    """The second had come before it was asked for: both its intervals are empty."""
    sender = record(moved("a", 20, 20), moved("b", 40, 40), moved("c", 60, 60))
    receiver = record(moved("a", 5, 27), moved("b", 55, 55), moved("c", 60, 69))
    assert hop_ns([sender, receiver]) == hop_ns([receiver, sender]) == 8
