"""Rates, delays and sizes: every spelling people use, what is refused, and that what we print can be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import UserError
from topologies.units import format_delay, format_rate, format_size, parse_delay, parse_rate, parse_size

PAIRS = [(parse_rate, format_rate), (parse_delay, format_delay), (parse_size, format_size)]
SHORT = st.builds(lambda digits, zeros: digits * 10**zeros, st.integers(0, 999_999), st.integers(0, 14))


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("100G", 10**11),
        ("100g", 10**11),
        ("100gbit", 10**11),
        ("100 Gb/s", 10**11),
        ("100Gbit/s", 10**11),
        ("25Gbps", 25 * 10**9),
        ("2.5G", 2_500_000_000),
        ("1.6T", 1_600_000_000_000),
        ("10M", 10**7),
        ("64k", 64_000),
        ("1000000", 10**6),
        ("500 b/s", 500),
        ("500bit/s", 500),
        (1_000_000, 10**6),
    ],
)
def test_rates(text: str | int, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "delay_ns"), [("1us", 1000), ("0.5ms", 500_000), ("20 ns", 20), ("1S", 10**9), ("0", 0), (0, 0)]
)
def test_delays(text: str | int, delay_ns: int) -> None:
    assert parse_delay(text) == delay_ns


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("64M", 64 * 10**6),
        ("64MB", 64 * 10**6),
        ("64MiB", 64 * 2**20),
        ("64Mi", 64 * 2**20),
        ("25kB", 25_000),
        ("1.5KiB", 1536),
        ("1500", 1500),
        ("1500B", 1500),
        (9000, 9000),
    ],
)
def test_sizes(text: str | int, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["100X", "", "G", "-5G", "1e9", "10 20G", "100GiB", "nan", "100G!", "1,5G", "0.3"])
def test_refused_rates_are_quoted_as_written(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_rate(text)
    assert f"'{text}'" in str(caught.value)


@pytest.mark.parametrize("text", ["5", "1m", "1 hour", "-1us", "0.1ns", "us"])
def test_refused_delays(text: str) -> None:
    with pytest.raises(UserError):
        parse_delay(text)


@pytest.mark.parametrize("text", ["64Mbit", "-1", "0.5", "MiB", "5 apples"])
def test_refused_sizes(text: str) -> None:
    with pytest.raises(UserError):
        parse_size(text)


@given(SHORT)
def test_six_digits_survive_print_and_parse(value: int) -> None:
    for parse, show in PAIRS:
        assert parse(show(value)) == value


@given(st.integers(0, 10**18))
def test_anything_printed_can_be_read_back_to_six_digits(value: int) -> None:
    for parse, show in PAIRS:
        assert abs(parse(show(value)) - value) <= value * 5e-6


def test_printed_forms() -> None:
    assert format_rate(10**11) == "100 Gb/s"
    assert format_rate(0) == "0 b/s"
    assert format_rate(999_999_999) == "1000 Mb/s"
    assert format_delay(1500) == "1.5 us"
    assert format_size(16 * 10**6) == "16 MB"
