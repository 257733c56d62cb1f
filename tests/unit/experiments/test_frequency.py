"""What small windows cost: rounds of slow start counted by hand."""

import pytest

from experiments.frequency import SEGMENT_BYTES, idle_rounds_ns, parts
from experiments.workloads.repeated import Transfer


def test_a_window_doubles_until_it_fills_the_round_trip() -> None:
    """10, 20, 40, 80 segments of 1 ns against 51 ns: three rounds wait, the fourth does not."""
    assert idle_rounds_ns(1000, 10, segment_ns=1, round_ns=50) == [41, 31, 11]


def test_the_last_window_waits_for_nothing() -> None:
    assert idle_rounds_ns(10, 10, segment_ns=1, round_ns=50) == []
    assert idle_rounds_ns(11, 10, segment_ns=1, round_ns=50) == [41]
    assert idle_rounds_ns(31, 10, segment_ns=1, round_ns=50) == [41, 31]


def test_a_window_as_large_as_the_round_trip_never_waits() -> None:
    assert idle_rounds_ns(1000, 51, segment_ns=1, round_ns=50) == []


def test_the_parts_are_latency_per_transfer_bytes_with_headers_and_waits() -> None:
    one = Transfer(
        start_ns=0, end_ns=9, cwnd_before=10, cwnd_start=10, cwnd_end=20, mss_bytes=1000, retransmitted=0, rtt_us=1
    )
    found = parts([one, one], size_bytes=11_000, rate_bps=8e9, each_ns=100, round_ns=20_000)
    segment_ns = 1000 + SEGMENT_BYTES
    assert found.latency_ns == 200
    assert found.bytes_ns == pytest.approx(2 * 11 * segment_ns)
    assert found.slow_start_ns == pytest.approx(2 * (20_000 + segment_ns - 10 * segment_ns))
    assert found.rounds == 2
