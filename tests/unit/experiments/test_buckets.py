"""What a bucket of an all-reduce must cost, by hand."""

import pytest

from experiments.buckets import Line, Ring, straightness
from topologies.registry import parse_topology


def ring(**changes: float) -> Ring:
    """Four ranks round one switch; 1 ns per byte; frames of 1,000 B; 600 ns in six steps."""
    given = {"ranks": 4, "switches": 1, "byte_ns": 1.0, "frame_bytes": 1000, "smallest_ns": 6 * 4000.0, **changes}
    return Ring(**given)  # type: ignore[arg-type]


def test_a_switch_holds_back_what_another_segment_hides_but_for_the_last_step_of_each_half() -> None:
    """A segment of 500 B is one packet: 500 ns in the switch in six steps, 500 ns hidden in four."""
    assert ring().latency_ns(8 * 500) == pytest.approx(24_000 + 2 * 500)


def test_every_further_switch_holds_a_packet_of_each_step_once_more() -> None:
    assert ring(switches=3).latency_ns(8 * 500) == pytest.approx(24_000 + 6 * 3 * 500 - 4 * 500)


def test_no_more_is_hidden_than_half_a_steps_latency_less_a_packet() -> None:
    """Segments of 10,000 B: a packet of 1,000 ns is held back, 2,000 - 1,000 ns are hidden."""
    assert ring(switches=2).latency_ns(8 * 10_000) == pytest.approx(24_000 + 6 * 2 * 1000 - 4 * 1000)


def test_where_a_packet_takes_as_long_as_the_latency_nothing_is_hidden() -> None:
    assert ring(byte_ns=10.0).latency_ns(8 * 1000) == pytest.approx(24_000 + 6 * 10_000)


def test_a_ring_counts_the_switches_between_its_neighbours() -> None:
    """Two leaves of two hosts: of four neighbours, two share a leaf and two are three switches apart."""
    found = Ring.of(parse_topology("leaf_spine:leaves=2,hosts=2,spines=2,rate=100G"), smallest_ns=1.0)
    assert (found.ranks, found.switches, found.byte_ns, found.steps) == (4, 2.0, 0.08, 6)


def test_a_line_through_points_and_how_straight_they_lie() -> None:
    line = Line.through([(1, 12), (2, 14), (4, 18)])
    assert (line.offset, line.slope, line.straightness) == pytest.approx((10, 2, 1))
    assert straightness([1, 2, 3], [2, 2, 2]) == pytest.approx(0)
