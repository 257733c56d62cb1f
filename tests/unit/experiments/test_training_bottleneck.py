"""Which port the bytes of a step waited for: counters by hand, and the words and tables made of them."""

from pathlib import Path

import numpy as np
import pytest

from experiments.report.bottlenecks import bottleneck_summary, bottleneck_table, sentences
from experiments.report.figure import Run
from experiments.report.series import read_series
from experiments.training.accounting import under_way
from experiments.training.bottleneck import Load, PortSeries, Verdict, bottleneck, judge, of_steps, window
from experiments.training.timeline import Interval, Kind, StepRecord
from tests.unit.experiments.report_folders import PERIOD_NS, port, rank, results, write
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=4")
TIMES = np.arange(0, 1001, 100)


def load(interface: str, sending_ns: int, sent_bytes: int, queue_bytes: int = 0) -> Load:
    """Of a window of 1000 ns under way."""
    return Load(
        interface=interface,
        sending=sending_ns / 1000,
        sent_bytes=sent_bytes,
        sending_ns=sending_ns,
        queue_bytes=queue_bytes,
    )


def test_a_port_that_sends_while_the_others_rest_is_the_bottleneck_because_it_is_slow() -> None:
    found = judge([load("a", 480, 6000), load("b", 960, 6000, 77), load("c", 490, 6000)], under_way_ns=1000)
    assert found is not None
    assert (found.verdict, found.busiest.interface, found.is_slow) == (Verdict.LINK, "b", True)
    assert found.usual == pytest.approx(0.485)
    assert (found.longest.interface, found.longest.queue_bytes) == ("b", 77)


def test_or_because_it_has_more_to_carry() -> None:
    found = judge([load("a", 480, 6000), load("b", 960, 12_000), load("c", 480, 6000)], under_way_ns=1000)
    assert found is not None
    assert (found.verdict, found.is_slow) == (Verdict.LINK, False)


def test_alike_ports_are_nobodys_fault_and_idle_ones_are_latencys() -> None:
    busy, idle = ([load(name, ns, 6000) for name in "abc"] for ns in (900, 400))
    one, other = judge(busy, under_way_ns=1000), judge(idle, under_way_ns=1000)
    assert one is not None
    assert other is not None
    assert (one.verdict, other.verdict) == (Verdict.EVEN, Verdict.LATENCY)


def test_acknowledgements_are_not_what_a_port_is_compared_with() -> None:
    data, answers = [load(name, 900, 6000) for name in "ab"], [load(name, 20, 100) for name in "cdefg"]
    found = judge([*data, *answers], under_way_ns=1000)
    assert found is not None
    assert found.verdict is Verdict.EVEN
    assert judge([load("a", 0, 0)], under_way_ns=1000) is None


def test_bytes_are_under_way_from_the_last_to_begin_to_the_last_to_end() -> None:
    def step(begin: int, end: int) -> StepRecord:
        sent = Interval(kind=Kind.COMMUNICATION, name="bucket0", start_ns=begin, end_ns=end)
        return StepRecord(number=0, start_ns=0, end_ns=1000, intervals=(sent,))

    assert under_way([step(100, 500), step(300, 450)]) == [(300, 500)]


def test_a_window_reaches_from_the_sample_before_to_the_sample_after() -> None:
    assert window(TIMES, (150, 220)) == (1, 3)
    assert window(TIMES, (200, 300)) == (2, 3)
    assert window(TIMES, (950, 1050)) is None


def test_what_the_window_has_beside_the_step_counts_on_both_sides() -> None:
    """Two steps of 40 ns between the same two samples; the port sends all the time that bytes are under way."""
    sending = np.where(TIMES >= 300, 80, 0)
    series = PortSeries(
        interface="a", time_ns=TIMES, sending_ns=sending, sent_bytes=sending * 12, queue_max_bytes=TIMES * 0
    )
    found = of_steps([series], {0: [(210, 250)], 1: [(255, 295)], 2: []})
    assert {step: one.busiest.sending for step, one in found.items()} == {0: 1.0, 1: 1.0}
    assert {one.under_way_ns for one in found.values()} == {80}
    assert bottleneck([], (0, 1), [(0, 1)]) is None


def run_of(tmp_path: Path, slow: str) -> Run:
    """Two steps of 1 ms whose second half is a collective: `slow` sends all the while at half the others' rate."""
    write(
        tmp_path,
        "ranks",
        [
            rank(number, kind, "gradients", (step * 10**6 + begin, step * 10**6 + end), step=step)
            for step in (0, 1)
            for number in range(4)
            for kind, begin, end in (("compute", 0, 500_000), ("communication", 500_000, 10**6))
        ],
    )
    rows = []
    for nic in STAR.host_interfaces():
        for sample in range(201):
            step, inside = divmod(sample * PERIOD_NS, 10**6)
            moved = step * 500_000 + max(0, inside - 500_000)
            busy = moved if nic.name == slow else moved // 2
            queue = 5000 if nic.name == slow else 0
            row = port(nic.name, sample, sent_bytes=moved * 6, queue_bytes=queue)
            rows.append({**row, "sending_ns": busy})
    write(tmp_path, "ports", rows)
    return Run(results(STAR), STAR, read_series(tmp_path / "series"))


def test_a_report_says_the_link_its_share_and_its_speed(tmp_path: Path) -> None:
    assert list(sentences(run_of(tmp_path, "h3-eth0"))) == [
        "In 2 of 2 steps h3 > s1 (link h3-s1) was the bottleneck: it sent for 100% of the time under way, others for "
        "50%; at 48 Gb/s, where others send at 96.  The longest queue, 5 kB, was at h3 > s1."
    ]


def test_the_tables_have_a_line_per_step_and_one_for_all(tmp_path: Path) -> None:
    run = run_of(tmp_path, "h2-eth0")
    by_step, together = bottleneck_table(run), bottleneck_summary(run)
    assert by_step is not None
    assert together is not None
    assert [line[:6] for line in by_step.cells] == [
        ("1", str(step), "500.0", "500.0", "one link", "h2 > s1") for step in (0, 1)
    ]
    assert [line[1] for line in together.cells] == ["2 of 2"]


def test_runs_without_times_of_sending_say_nothing(tmp_path: Path) -> None:
    run = run_of(tmp_path, "h2-eth0")
    assert run.series.ports is not None
    write(tmp_path, "ports", [port("h1-eth0", number, sent_bytes=number) for number in range(9)])
    older = Run(results(STAR), STAR, read_series(tmp_path / "series"))
    assert list(sentences(older)) == []
    assert bottleneck_table(older) is None
