"""A run is watched: nothing of it changes, and what was seen adds up to what the counters say, exactly."""

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from experiments.series.schema import FILES
from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Run

COUNTED = {
    "sent_bytes": "tx_bytes",
    "sent_packets": "tx_packets",
    "marked_packets": "marks",
    "dropped_packets": "drops",
    "pauses_sent": "pauses_sent",
    "pauses_received": "pauses_received",
}
LOSSY = (SCRIPTS / "sampled.py", "--set", "period=7us")
"""Drops, retransmissions and timeouts, with a sampler of its own."""


@pytest.fixture(scope="module")
def unwatched(run_experiment: RunExperiment) -> Run:
    return run_experiment(*LOSSY, "--sample", "off").succeeded()


@pytest.fixture(scope="module")
def watched(run_experiment: RunExperiment) -> Run:
    """At a period that neither divides the other sampler's nor is divided by it."""
    return run_experiment(*LOSSY, "--sample", "50us").succeeded()


@pytest.fixture(scope="module")
def thinned(run_experiment: RunExperiment) -> Run:
    """Adaptive."""
    return run_experiment(*LOSSY, "--sample", "adaptive").succeeded()


def column(run: Run, name: str, key: str) -> NDArray[Any]:
    return np.array(pq.read_table(run.folder.series / f"{name}.parquet", columns=[key])[key].to_pylist())


def check_sums(run: Run) -> None:
    """Last less first is what results.json says, for every port."""
    interfaces, classes = column(run, "ports", "interface"), column(run, "ports", "class")
    for key, counter in COUNTED.items():
        values = column(run, "ports", key)
        for link in run.results.links:
            of_port = values[(interfaces == link.name.split(">")[0]) & (classes == -1)]
            assert of_port[-1] - of_port[0] == getattr(link, counter), (link.name, key)


def test_watching_changes_no_result(unwatched: Run, watched: Run, thinned: Run) -> None:
    """The file byte for byte; in it the series of another sampler, high-water marks included."""
    assert watched.folder.results.read_bytes() == unwatched.folder.results.read_bytes()
    assert thinned.folder.results.read_bytes() == unwatched.folder.results.read_bytes()


def test_watching_changes_nothing_that_chance_decides(run_experiment: RunExperiment) -> None:
    """Gloo's ports come from the guest's random numbers, of which a sampler's process and sockets take their share."""
    small = ("all_reduce", "--topology", "leaf_spine:leaves=2,hosts=2,spines=2", "--set", "sizes=1M,4M", "--sample")
    off, on = (run_experiment(*small, word).succeeded() for word in ("off", "100us"))
    assert on.folder.results.read_bytes() == off.folder.results.read_bytes()
    check_sums(on)


def test_ranks_are_there_without_samples(unwatched: Run, watched: Run) -> None:
    assert sorted(path.name for path in unwatched.folder.series.iterdir()) == ["about.json", "ranks.parquet"]
    ours, theirs = (pq.read_table(run.folder.series / "ranks.parquet") for run in (watched, unwatched))
    assert ours.equals(theirs)
    assert set(ours["kind"].to_pylist()) >= {"operation", "wait"}


def test_series_add_up_to_the_counters(watched: Run, thinned: Run) -> None:
    assert sum(link.drops for link in watched.results.links) > 100
    check_sums(watched)
    check_sums(thinned)


def test_marks_in_the_series_are_the_counters(watched: Run, thinned: Run) -> None:
    """Though another sampler read the hot port between the samples."""
    hot = next(link for link in watched.results.links if link.name.startswith("s1-eth1>"))
    for run in (watched, thinned):
        interfaces, classes = column(run, "ports", "interface"), column(run, "ports", "class")
        marks = column(run, "ports", "queue_max_bytes")[(interfaces == "s1-eth1") & (classes == -1)]
        assert marks.max() == hot.queue_max_bytes


def test_what_is_written_is_as_the_schema_says(watched: Run) -> None:
    for name, schema in FILES.items():
        assert pq.read_schema(watched.folder.series / f"{name}.parquet").equals(schema, check_metadata=True), name


def test_sockets_tell_of_retransmissions(watched: Run) -> None:
    sent_again = column(watched, "sockets", "retransmitted_packets")
    assert sent_again.max() > 0
    assert column(watched, "sockets", "srtt_ns").max() > 10_000


def test_adaptive_keeps_a_bounded_number(thinned: Run) -> None:
    times = np.unique(column(thinned, "ports", "time_ns"))
    assert 100 < len(times) <= 402
    assert len(set(np.diff(times[1:-1]))) <= 2, "one period, or a nanosecond less"
