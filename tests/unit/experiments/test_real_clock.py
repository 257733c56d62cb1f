"""The real clock's verdict: an overloaded machine is told so with the rate that it could do, a rested one is not."""

import time

import pytest

from experiments.real_clock import (
    CpuTime,
    Observed,
    Watch,
    calibration_faults,
    faults,
    idle_shares,
    parse_stat,
    percentile,
    verdict,
)
from testbed.calibration import Calibrated, rate_bps
from topologies.errors import UserError
from topologies.registry import parse_topology

STAT = """\
cpu  300 0 100 500 100 0 0 0 50 0
cpu0 100 0 50 200 50 0 0 0 25 0
cpu1 200 0 50 300 50 10 20 30 25 0
intr 12345
"""
GIGABIT = 10**9


def judge(*, idle: float, late_ns: int = 1000, rate_bps: int = GIGABIT, reached: float = 0.5) -> list[str]:
    observed = Observed(idle={"cpu0": 0.9, "cpu1": idle}, late_ns=[late_ns] * 100)
    return verdict(observed, rate_bps=rate_bps, reached_bps=reached * rate_bps, frame_bytes=1514)


def test_processors_are_read_one_by_one_and_waiting_for_a_disk_is_idle() -> None:
    assert parse_stat(STAT) == {"cpu0": CpuTime(idle=250, total=400), "cpu1": CpuTime(idle=350, total=660)}
    with pytest.raises(UserError, match="no processor"):
        parse_stat("intr 1")


def test_idle_is_a_share_of_the_time_between_readings() -> None:
    before = {"cpu0": CpuTime(idle=100, total=1000), "cpu1": CpuTime(idle=0, total=10)}
    after = {"cpu0": CpuTime(idle=125, total=1100), "cpu2": CpuTime(idle=0, total=10)}
    assert idle_shares(before, after) == {"cpu0": 0.25}


def test_a_rested_machine_is_valid() -> None:
    assert judge(idle=0.5) == []
    assert judge(idle=0.10) == []


def test_an_overloaded_processor_is_named_with_the_rate_that_would_do() -> None:
    reasons = judge(idle=0.0)
    assert reasons[0] == "cpu1 was idle for 0.0% of the time, 10% is the least"
    assert "450 Mb/s" in reasons[-1]  # it reached 500 Mb/s with all it had; a tenth must stay idle
    assert len(reasons) == 2


def test_the_advised_rate_is_valid_where_work_follows_the_rate() -> None:
    assert judge(idle=0.101, rate_bps=450_000_000, reached=1.0) == []


def test_late_timers_are_held_against_the_time_of_frames() -> None:
    assert judge(idle=0.9, late_ns=96_000) == []  # 8 frames of 1514 B at 1 Gb/s: 96.9 us
    reasons = judge(idle=0.9, late_ns=960_000)
    assert "960.0 us late" in reasons[0]
    assert "links of 100 Mb/s would do" in reasons[-1]
    assert judge(idle=0.9, late_ns=960_000, rate_bps=GIGABIT // 10) == []  # the same at a tenth of the rate


def test_a_run_is_judged_by_the_link_that_came_closest_to_its_rate() -> None:
    fabric = parse_topology("star:hosts=2,rate=1G")
    observed = Observed(idle={"cpu0": 0.0}, late_ns=[])
    sent = {"h1-eth0": 1000, "s1-eth2": 62_500_000}
    reasons = faults(observed, fabric, sent, busy_ns=10**9)
    assert "links of 450 Mb/s would do" in reasons[-1]
    assert faults(None, fabric, sent, busy_ns=10**9) == []


def test_under_the_virtual_clock_nothing_is_watched() -> None:
    with Watch(real_clock=False) as watch:
        pass
    assert watch.observed is None


def test_percentiles_are_observed_values() -> None:
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([], 0.99) == 0


def test_a_watch_sees_this_machine() -> None:
    with Watch() as watch:
        time.sleep(0.1)
    observed = watch.observed
    assert observed is not None
    assert observed.idle
    assert all(0 <= share <= 1 for share in observed.idle.values())
    assert len(observed.late_ns) > 5
    assert min(observed.late_ns) < 50_000_000


def burst(interface: str, measured_bps: float) -> Calibrated:
    return Calibrated(interface=interface, asked_bps=10**9, measured_bps=measured_bps, frames=16)


def test_a_cable_that_does_not_do_its_rate_alone_is_named_with_one_that_would_do() -> None:
    (said,) = calibration_faults([burst("h1-eth0", 0.99e9), burst("s1-eth1", 0.4e9), burst("s1-eth2", 0.8e9)])
    assert said.startswith("calibration: 16 frames alone passed s1-eth1 at 400 Mb/s, 1 Gb/s was asked for, and 1 more")
    assert "links of 66 Mb/s would do" in said
    assert calibration_faults([burst("h1-eth0", 1.05e9)]) == []


def test_a_rate_is_that_of_the_frames_after_the_first() -> None:
    assert rate_bps([0, 1_000, 2_000], wire_bytes=125) == 1e9
