"""The arithmetic of the stock port: a policer and a netem that must agree to the nanosecond."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.host_settings import HostSettings
from testbed.plan import Plan
from testbed.port.interface import Egress
from testbed.port.stock import TICK_NS, StockPort, netem_time_ns, policer_rate, policer_time_ns
from topologies.errors import UserError
from topologies.registry import parse_topology

RATES = [10**7, 10**8, 10**9, 10**10, 25 * 10**9, 40 * 10**9, 10**11, 2 * 10**11, 4 * 10**11, 8 * 10**11]


def _egress(**changed: object) -> Egress:
    plan = Plan(topology=parse_topology("star:hosts=2"), settings=HostSettings(), tag="test")
    egress = plan.egresses["h1-eth0"]
    return Egress(**{**{name: getattr(egress, name) for name in egress.__dataclass_fields__}, **changed})


@pytest.mark.parametrize("rate_bps", RATES)
def test_policer_and_netem_take_the_same_time_for_every_frame(rate_bps: int) -> None:
    rate = policer_rate(rate_bps // 8, 9038)
    assert [n for n in range(42, 9039) if policer_time_ns(n, rate) != netem_time_ns(n, rate_bps // 8)] == []


def test_the_plain_rate_would_not_do() -> None:
    """The smallest failing input: at 100 Gb/s the kernel's reciprocal says 719 ns for 9,000 B, and exact is 720."""
    assert netem_time_ns(9000, 12_500_000_000) == 720
    assert policer_time_ns(9000, 12_500_000_000) == 719
    assert policer_time_ns(9000, policer_rate(12_500_000_000, 9000)) == 720


@settings(deadline=None)  # it looks at every length of frame
@given(st.integers(min_value=10**5, max_value=10**11))
def test_a_rate_is_matched_or_refused(rate_bytes: int) -> None:
    try:
        rate = policer_rate(rate_bytes, 1514)
    except UserError:
        return
    assert 0 <= rate_bytes - rate <= rate_bytes * (2**-31 + rate_bytes * 2**-62) + 1
    assert policer_time_ns(1514, rate) == netem_time_ns(1514, rate_bytes)


def test_the_buffer_is_cut_to_whole_ticks() -> None:
    port, egress = StockPort(), _egress(rate_bps=4 * 10**11, buffer_bytes=200_000)
    held = port.held_bytes(egress)
    assert 0 <= 200_000 - held < TICK_NS * 50
    assert held == 198_400


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rate_bps": 10**9 + 1}, "whole number of bytes"),
        ({"rate_bps": 8 * 10**11, "buffer_bytes": 9_014}, "less than one frame"),
    ],
)
def test_what_cannot_be_exact_is_refused_by_link(changed: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        StockPort().check(_egress(**changed))
    assert "link h1-s1" in str(refused.value)
