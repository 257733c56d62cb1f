"""The timeline without a fabric: where time 0 is, and what is said of things that never came."""

from typing import Any

import pytest

from experiments.failure_schedule import parse_failures
from experiments.timeline import Timeline, events_from
from testbed.link_faults import Losses
from topologies.errors import UserError
from topologies.registry import parse_topology

NOTHING: Any = None
FABRIC = parse_topology("leaf_spine:leaves=2,spines=2,hosts=1")


def test_time_zero_is_the_run_or_an_operation() -> None:
    assert (events_from("run"), events_from("operation")) == ("run", "operation")
    with pytest.raises(UserError, match="--events-from noon: write run or operation"):
        events_from("noon")


def zero(timeline: Timeline) -> int | None:
    return timeline.start_ns


def test_only_the_first_beginning_counts() -> None:
    with Timeline(NOTHING, NOTHING, steps=(), failures=(), zero="operation") as timeline:
        timeline.ready()
        assert zero(timeline) is None
        timeline.begin(5)
        timeline.begin(9)
        timeline.stop()
        assert zero(timeline) == 5
        assert (timeline.events, timeline.missed(), timeline.losses()) == ([], [], Losses())


def test_a_run_counts_from_its_start() -> None:
    with Timeline(NOTHING, NOTHING, steps=(), failures=()) as timeline:
        timeline.ready()
        assert timeline.start_ns is not None


def test_what_never_came_is_said() -> None:
    failures = parse_failures("at 3ms link leaf1-spine1 down", FABRIC)
    timeline = Timeline(NOTHING, NOTHING, steps=(), failures=failures)
    assert timeline.missed() == ["the failure 'link leaf1-spine1 down' at 3 ms never came: the experiment ended before"]


def test_that_the_controller_never_heard_of_a_rate_is_no_fault() -> None:
    failures = parse_failures("at 3ms link leaf1-spine1 rate 25G", FABRIC)
    timeline = Timeline(NOTHING, NOTHING, steps=(), failures=failures, detection_ns=10**9)
    assert len(timeline.missed()) == 1
