"""Ports sampled beside an experiment: exact instants, nothing disturbed, no high-water mark lost."""

from itertools import pairwise
from typing import Any

import pytest

from testbed.sampler_process import PHASE_NS
from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Run

HOT = "s1-eth1"
PERIOD_NS = 7_000


@pytest.fixture(scope="module")
def unsampled(run_experiment: RunExperiment) -> Run:
    """A queue that overflows; retransmissions, timeouts."""
    return run_experiment(SCRIPTS / "sampled.py", "--set", "period=0ns").succeeded()


@pytest.fixture(scope="module")
def sampled(run_experiment: RunExperiment) -> Run:
    """The same, watched."""
    return run_experiment(SCRIPTS / "sampled.py", "--set", f"period={PERIOD_NS}ns").succeeded()


@pytest.fixture
def hot(sampled: Run) -> dict[str, list[int]]:
    """The series of the port that overflows."""
    series: dict[str, Any] = sampled.results.sections["series"]
    return dict(series[HOT])


def test_it_is_hard_on_the_port(unsampled: Run) -> None:
    """Or the tests below would compare little."""
    assert sum(link.drops for link in unsampled.results.links) > 100


def test_sampling_changes_no_result(unsampled: Run, sampled: Run) -> None:
    """Times to the nanosecond, bytes, drops, high-water marks; also of what ran after the sampler had ended."""
    assert sampled.results.rows == unsampled.results.rows
    assert sampled.results.links == unsampled.results.links


def test_high_water_marks_are_in_the_books_at_once(unsampled: Run, sampled: Run) -> None:
    assert sampled.results.sections["within"] == unsampled.results.sections["within"]


def test_samples_are_at_their_instants(hot: dict[str, list[int]]) -> None:
    """Or a nanosecond before, where a timer of somebody else woke the processor just then."""
    first, *others = hot["time_ns"]
    assert first == 0
    assert len(others) > 1000
    late = [time_ns - PHASE_NS - PERIOD_NS * number for number, time_ns in enumerate(others, 1)]
    assert set(late) <= {0, -1}
    assert late.count(0) > 0.99 * len(late)


def test_it_ends_at_once(sampled: Run) -> None:
    """Of the virtual clock nothing passes while a sampler ends."""
    assert sampled.results.sections["left_ns"] == 0


def test_the_series_is_the_queue(sampled: Run, hot: dict[str, list[int]]) -> None:
    """Peaks bound the samples around them, the highest is what the books say; counters never fall."""
    highest = max(hot["peak_bytes"])
    assert highest == sampled.results.sections["within"][HOT]
    assert max(hot["queue_bytes"]) > highest / 2
    assert hot["classes_queue_bytes"] == hot["queue_bytes"]
    for (_, later), peak in zip(pairwise(hot["queue_bytes"]), hot["peak_bytes"][1:], strict=True):
        assert peak >= later
    for name in ("delivered_bytes", "sent_bytes", "drops"):
        assert all(later >= earlier for earlier, later in pairwise(hot[name]))
    assert hot["delivered_bytes"][-1] < sampled.results.sections["counted_bytes"], "the second job was not sampled"


def test_a_hosts_port_is_sampled_in_its_own_namespace(sampled: Run) -> None:
    nic = sampled.results.sections["series"]["h1-eth0"]
    assert len(nic["time_ns"]) == len(sampled.results.sections["series"][HOT]["time_ns"])
    assert nic["sent_bytes"][-1] > nic["sent_bytes"][0]


def test_ports_without_such_statistics_are_refused(run_experiment: RunExperiment) -> None:
    run = run_experiment(SCRIPTS / "sampled.py", "--topology", "star:hosts=2", "--set", "port.kind=stock")
    assert run.exit_code == 2
    assert "ports of kind stock cannot be sampled" in run.said
