"""Thresholds in every unit, and the base round trip that BDPs are made of."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.port_policies.base_rtt import base_rtt_ns
from controller.port_policies.threshold import Link, Threshold, parse_threshold, per_gbps
from topologies.errors import UserError
from topologies.registry import parse_topology

LINK = Link(rate_bps=100 * 10**9, delay_ns=1000, frame_bytes=9014, base_rtt_ns=13_000)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("100kB", 100_000),
        ("100KiB", 102_400),
        ("1500", 1500),
        ("0", 0),
        ("65p", 65 * 9014),
        ("2 packets", 2 * 9014),
        ("24us", 300_000),
        ("0.5us", 6250),
        ("1bdp", 162_500),
        ("0.14bdp", 22_750),
        ("2BDP", 325_000),
    ],
)
def test_every_unit_becomes_bytes(text: str, size_bytes: int) -> None:
    assert parse_threshold("kmin", text).bytes_on(LINK) == size_bytes


@pytest.mark.parametrize("text", ["", "x", "-1kB", "10 bananas", "1.5", "us", "bdp", "1e3", "0.1ns"])
def test_nonsense_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(UserError, match=r"^ecn\.kmin: .* write bytes \(100kB\), packets \(65p\), time"):
        parse_threshold("ecn.kmin", text)


@given(
    st.fractions(min_value=0, max_value=10**6, max_denominator=100),
    st.sampled_from(("bytes", "packets", "time", "bdp")),
)
def test_what_is_written_down_can_be_read_again(amount: Fraction, unit: str) -> None:
    if unit in ("bytes", "time"):
        amount = Fraction(int(amount))
    once = Threshold(amount, unit)  # type: ignore[arg-type]
    again = parse_threshold("x", str(once))
    assert again.unit == unit
    assert again.bytes_on(LINK) == pytest.approx(once.bytes_on(LINK), abs=1)


def test_kilobytes_per_gigabit_are_a_time() -> None:
    """Facts 3.1: 3 kB per Gb/s is 24 us of queue at any rate."""
    assert per_gbps(3) == parse_threshold("k", "24us")
    for gbps in (1, 10, 25, 100, 400):
        link = Link(rate_bps=gbps * 10**9, delay_ns=0, frame_bytes=1514, base_rtt_ns=0)
        assert per_gbps(3).bytes_on(link) == 3000 * gbps


def test_the_base_round_trip_is_of_the_longest_path() -> None:
    frame_ns = Fraction(9014 * 8, 100)
    assert base_rtt_ns(parse_topology("star:hosts=2")) == -(-(4 * (1000 + frame_ns)) // 1)
    assert base_rtt_ns(parse_topology("leaf_spine")) == -(-(8 * (1000 + frame_ns)) // 1)
    assert base_rtt_ns(parse_topology("fat_tree:k=4")) == -(-(12 * (1000 + frame_ns)) // 1)


def test_the_base_round_trip_is_of_the_slowest_among_equal_paths() -> None:
    slow = parse_topology("leaf_spine:uplink_rate=10G,uplink_delay=50us")
    expected = 2 * (2 * (1000 + Fraction(9014 * 8, 100)) + 2 * (50_000 + Fraction(9014 * 8, 10)))
    assert base_rtt_ns(slow) == -(-expected // 1)
