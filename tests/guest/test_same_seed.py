"""The same seed gives the same packets, whatever else the machine does; and packets are spaced as on a real wire."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.pcap_merge import RUN_FILE
from tests.guest.captures import Seen, read_capture
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

FABRIC = "leaf_spine:leaves=2,hosts=2,spines=2,rate=100G"
RATE_BPS = 100e9
ARGUMENTS = ("--topology", FABRIC, "--set", "sizes=1M,4M", "--pcap", "hosts")
HOSTS = ("h1", "h2", "h3", "h4")


@pytest.fixture(scope="module")
def first(run_experiment: RunExperiment) -> Run:
    """Seed 5 in a folder with a short name."""
    return run_experiment("all_reduce", *ARGUMENTS, "--seed", "5").succeeded()


@pytest.fixture(scope="module")
def again(run_experiment: RunExperiment, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Seed 5 again: a long name with a space, another working directory, every CPU busy."""
    parent = tmp_path_factory.mktemp("a folder whose name is quite a bit longer than the other")
    with every_cpu_busy():
        return run_experiment("all_reduce", *ARGUMENTS, "--seed", "5", out=parent / "the same run, again").succeeded()


@pytest.fixture(scope="module")
def other(run_experiment: RunExperiment) -> Run:
    """Seed 6."""
    return run_experiment("all_reduce", *ARGUMENTS, "--seed", "6").succeeded()


@contextmanager
def every_cpu_busy() -> Iterator[None]:
    """A spinning process on each CPU that we may use."""
    spinners = [
        subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"])
        for cpu in os.sched_getaffinity(0)
    ]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def captures(run: Run) -> Mapping[str, Path]:
    return {path.name: path for path in sorted(run.folder.pcap.iterdir())}


def hashes(run: Run) -> Mapping[str, str]:
    return {name: sha256(path.read_bytes()).hexdigest() for name, path in captures(run).items()}


def test_results_are_equal_to_the_byte(first: Run, again: Run) -> None:
    assert first.folder.results.read_bytes() == again.folder.results.read_bytes()


def test_looking_changes_nothing(run_experiment: RunExperiment) -> None:
    """The demo's sixteen hosts: fabrics of up to seven forgave calls that a sampler makes and these did not."""
    never, often = (
        run_experiment("all_reduce", "--set", "sizes=1M", "--sample", period).succeeded() for period in ("off", "17us")
    )
    assert never.folder.results.read_bytes() == often.folder.results.read_bytes()


def test_captures_are_equal_to_the_byte(first: Run, again: Run) -> None:
    assert list(captures(first)) == [*(f"{host}-eth0.pcapng" for host in HOSTS), RUN_FILE]
    assert hashes(first) == hashes(again)


def test_another_seed_is_another_run(first: Run, other: Run) -> None:
    """Other initial sequence numbers and ports, and so other hashes: no capture is the same.

    The times may be: flows that share no link fill theirs, whichever spine they take.
    """
    assert not set(hashes(first).values()) & set(hashes(other).values())
    assert [path.sport for path in first.results.paths] != [path.sport for path in other.results.paths]


def test_captures_hold_every_packet(first: Run) -> None:
    """As many frames as the NIC counted, both ways, on the ring's flows; nothing dropped by the kernel (P25)."""
    links = {link.name: link for link in first.results.links}
    for host, (leaf, port) in zip(HOSTS, (("leaf1", 1), ("leaf1", 2), ("leaf2", 1), ("leaf2", 2)), strict=True):
        seen = read_capture(first.folder.pcap / f"{host}-eth0.pcapng")
        sent = links[f"{host}-eth0>{leaf}-eth{port}"]
        received = links[f"{leaf}-eth{port}>{host}-eth0"]
        assert sum(frame.outbound for frame in seen) == sent.tx_packets
        assert sum(not frame.outbound for frame in seen) == received.rx_packets
        assert sum(frame.size_bytes for frame in seen if frame.outbound) == sent.tx_bytes


@pytest.mark.parametrize("host", HOSTS)
def test_frames_are_never_closer_than_their_serialisation_time(host: str, first: Run) -> None:
    """Neither those of one flow nor all that a NIC sends or receives: a link carries one bit after the other.

    A stamp is the moment of a frame's last bit, in whole nanoseconds.
    """
    seen = read_capture(first.folder.pcap / f"{host}-eth0.pcapng")
    assert {frame.size_bytes for frame in seen} >= {9014}
    assert all(frame.size_bytes <= 9014 for frame in seen), "a super-packet (P04)"
    for outbound in (True, False):
        assert_spaced([frame for frame in seen if frame.outbound == outbound])


def assert_spaced(frames: list[Seen]) -> None:
    assert len(frames) > 1000
    tight = 0
    for before, after in pairwise(frames):
        serialisation_ns = after.size_bytes * 8e9 / RATE_BPS
        gap_ns = after.time_ns - before.time_ns
        assert gap_ns >= serialisation_ns - 1, (before, after)
        tight += before.flow == after.flow and gap_ns <= serialisation_ns + 1
    assert tight > 100, "back to back frames are what this is about"
