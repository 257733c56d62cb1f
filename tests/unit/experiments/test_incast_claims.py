"""What an incast is held to: first flights, and how late a timer may be."""

import pytest

from experiments.workloads.incast_claims import first_flight_bytes, late_us


@pytest.mark.parametrize(
    ("each_bytes", "mtu", "window", "expected"),
    [
        (1_000_000, 9000, 10, 7 * 9014),  # 64 KiB of the receiver's first window
        (1_000_000, 1500, 10, 10 * 1514),  # the initial window
        (10_000, 9000, 10, 10_000 + 2 * 66),  # all there is
    ],
)
def test_a_first_flight_is_the_least_of_three(each_bytes: int, mtu: int, window: int, expected: int) -> None:
    assert first_flight_bytes(each_bytes, mtu=mtu, initial_window=window, header_bytes=52) == expected


@pytest.mark.parametrize(
    ("timeout_us", "late"), [(1_000, 2_000), (63_000, 2_000), (64_000, 9_000), (200_000, 9_000), (512_000, 65_000)]
)
def test_timers_are_coarser_the_longer_they_are(timeout_us: int, late: int) -> None:
    assert late_us(timeout_us) == late
