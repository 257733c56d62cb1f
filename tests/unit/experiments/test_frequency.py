"""What small windows cost: rounds of slow start counted by hand."""

from pathlib import Path as FilePath

import pytest

from experiments.frequency import SEGMENT_BYTES, Path, idle_rounds_ns, parts
from experiments.workloads.repeated import COUNTED, Transfer, count, uncorked


def test_a_window_doubles_until_it_fills_the_round_trip() -> None:
    """10, 20, 40, 80 segments of 1 ns against 51 ns: three rounds wait, the fourth does not."""
    assert idle_rounds_ns(1000, 10, 1000, segment_ns=1, round_ns=51) == [41, 31, 11]


def test_a_window_that_slow_start_left_early_waits_until_the_end() -> None:
    """It stays at 20: of 100 segments, 10 and four times 20 go with a wait after them, the last 10 without."""
    assert idle_rounds_ns(100, 10, 20, segment_ns=1, round_ns=51) == [41, 31, 31, 31, 31]


def test_the_last_window_waits_for_nothing() -> None:
    assert idle_rounds_ns(10, 10, 99, segment_ns=1, round_ns=51) == []
    assert idle_rounds_ns(11, 10, 99, segment_ns=1, round_ns=51) == [41]
    assert idle_rounds_ns(31, 10, 99, segment_ns=1, round_ns=51) == [41, 31]


def test_a_window_as_large_as_the_round_trip_never_waits() -> None:
    assert idle_rounds_ns(1000, 51, 99, segment_ns=1, round_ns=51) == []


def test_the_parts_are_latency_per_transfer_bytes_with_headers_and_waits() -> None:
    one = Transfer(
        start_ns=0, end_ns=9, cwnd_before=10, cwnd_start=10, cwnd_end=20, mss_bytes=1000, retransmitted=0, rtt_us=1
    )
    path = Path(rate_bps=8e9, switches=2, byte_ns=20_000)
    found = parts([one, one], path, size_bytes=11_000, each_ns=100)
    segment_ns = 1000 + SEGMENT_BYTES
    assert found.latency_ns == pytest.approx(2 * (100 + 2 * segment_ns)), "two switches take in the last segment"
    assert found.bytes_ns == pytest.approx(2 * 11 * segment_ns)
    assert found.slow_start_ns == pytest.approx(2 * (20_000 + 3 * segment_ns - 10 * segment_ns))
    assert found.rounds == 2


def test_a_first_flight_is_cut_where_the_receivers_window_is_smaller() -> None:
    """Jumbo frames: ten segments of 8,948 B do not fit into 64 KiB."""
    start = {"start_ns": 0, "end_ns": 9, "cwnd_before": 10, "cwnd_start": 10, "cwnd_end": 20, "retransmitted": 0}
    assert Transfer(**start, mss_bytes=8948, rtt_us=1, rwnd_start_bytes=65535).is_cut
    assert not Transfer(**start, mss_bytes=1448, rtt_us=1, rwnd_start_bytes=65535).is_cut


def test_counters_of_tcp_are_summed_under_their_names(tmp_path: FilePath) -> None:
    names = [counter for counters in COUNTED.values() for counter in counters]
    (tmp_path / "netstat").write_text(
        f"TcpExt: {' '.join(names)} Other\nTcpExt: {' '.join(str(place + 1) for place in range(len(names)))} 99\n"
    )
    assert count(tmp_path) == {
        "hystart_exits": 3,
        "timeouts": 3,
        "slow_start_retransmissions": 4,
        "kept_by_own_queue": 5,
    }


def test_corking_is_off_inside_and_as_it_was_afterwards(tmp_path: FilePath) -> None:
    setting = tmp_path / "tcp_autocorking"
    setting.write_text("1\n")
    with uncorked(setting):
        assert setting.read_text() == "0"
    assert setting.read_text() == "1\n"
