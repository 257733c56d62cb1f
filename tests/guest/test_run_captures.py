"""Captures of whole runs, as a user asks for them: series, counters and packets say the same, and Wireshark is content.

One incast under three policies on one fabric: a lossy port drops, one with DCTCP marks, one with PFC pauses.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.pcap_merge import RUN_FILE
from experiments.pcap_reading import CE, Frame, frames, interfaces
from experiments.run_folder import read_json
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

POLICIES = "lossy;dctcp:kmin=60kB,kmax=60kB;roce"
INCAST = ("--topology", "star:hosts=5", "--set", "fan_in=4", "--set", "sizes=1M", "--set", "repetitions=1")
WINDOW_NS = (100_000, 500_000)


@pytest.fixture(scope="module")
def incast(run_experiment: RunExperiment) -> Run:
    """Every interface captured: the data class and its pauses, which is all that there is."""
    chosen = ("--set", f"policies={POLICIES}", "--set", "buffers=500k", "--pcap", "all:class=3", "--sample", "50us")
    return run_experiment("incast", *INCAST, *chosen).succeeded()


@pytest.fixture(scope="module")
def broken(run_experiment: RunExperiment) -> Run:
    """A link fails in the first operation, of which 0.4 ms are captured."""
    fabric = ("--topology", "leaf_spine:leaves=2,hosts=2,spines=2", "--set", "sizes=1M")
    failure = ("--failure", "at 150us link leaf1-spine1 down", "--events-from", "operation")
    return run_experiment(
        "all_reduce", *fabric, *failure, "--pcap", "hosts:window=100us-500us,snap=96,files=run"
    ).succeeded()


def tshark(path: Path, *fields: str) -> list[tuple[str, ...]]:
    """Fields of every packet, from a tshark that has nothing to complain of."""
    argv = ["tshark", "-n", "-r", str(path), "-T", "fields", *(word for field in fields for word in ("-e", field))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300)
    assert [line for line in done.stderr.splitlines() if not line.startswith("Running as user")] == []
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def seen_by_port(run: Run) -> dict[str, list[Frame]]:
    """What left each interface."""
    found: dict[str, list[Frame]] = {name: [] for name in interfaces(run.folder.pcap / RUN_FILE)}
    for frame in frames(run.folder.pcap / RUN_FILE):
        if frame.outbound:
            found[frame.interface].append(frame)
    return found


def last_less_first(run: Run, interface: str, key: str) -> int:
    """Of the whole port's series."""
    table = pq.read_table(run.folder.series / "ports.parquet", columns=["interface", "class", key])
    names, classes = (np.array(table[name].to_pylist()) for name in ("interface", "class"))
    values = np.array(table[key].to_pylist())[(names == interface) & (classes == -1)]
    return int(values[-1] - values[0])


def dropped_at(port: str, sent: dict[str, list[Frame]], addresses: dict[str, str]) -> int:
    """What hosts sent to the host behind a switch port, less what left that port."""
    host = addresses[port]
    towards = [
        frame
        for name, left in sent.items()
        if name.startswith("h")
        for frame in left
        if frame.segment is not None and frame.segment.destination == host
    ]
    return len(towards) - sum(not frame.pauses for frame in sent[port])


def test_series_counters_and_packets_say_the_same(incast: Run) -> None:
    """Bytes, packets, marks, drops and pauses of every port, to the unit: the issue allows 0.1 %."""
    sent, topology = seen_by_port(incast), read_json(incast.folder.topology)
    addresses = dict(_addresses_by_switch_port(topology))
    for link in incast.results.links:
        port = link.name.split(">")[0]
        from_switch = port in addresses
        said = {
            "sent_bytes": (link.tx_bytes, sum(frame.size_bytes for frame in sent[port])),
            "sent_packets": (link.tx_packets, len(sent[port])),
            "pauses_sent": (link.pauses_sent, sum(any(frame.pauses) for frame in sent[port])),
            "marked_packets": (link.marks, _marks(sent[port]) if from_switch else 0),
            "dropped_packets": (link.drops, dropped_at(port, sent, addresses) if from_switch else 0),
        }
        for key, (counter, packets) in said.items():
            assert last_less_first(incast, port, key) == counter == packets, (port, key)
    totals = [sum(getattr(link, key) for link in incast.results.links) for key in ("marks", "drops", "pauses_sent")]
    assert min(totals) > 20, f"marks, drops and pauses: {totals}"


def _marks(left: list[Frame]) -> int:
    """On a star, a marked packet was marked by the one port that it passed."""
    return sum(frame.segment is not None and frame.segment.ecn == CE for frame in left)


def _addresses_by_switch_port(topology: Any) -> Iterator[tuple[str, str]]:
    for link in topology["links"]:
        for one, other in ((link["a"], link["b"]), (link["b"], link["a"])):
            if other.get("ip"):
                yield one["name"], other["ip"].split("/")[0]


def test_wireshark_has_nothing_to_complain_of(incast: Run, broken: Run) -> None:
    for path in [*incast.folder.pcap.glob("*.pcapng"), broken.folder.pcap / RUN_FILE]:
        assert tshark(path, "frame.number")


def test_a_run_s_capture_is_in_order_and_names_its_interfaces(incast: Run) -> None:
    found = tshark(incast.folder.pcap / RUN_FILE, "frame.time_epoch", "frame.interface_name")
    stamps = [int(stamp.replace(".", "")) for stamp, _ in found]
    assert stamps == sorted(stamps)
    single = {path.stem: len(tshark(path, "frame.number")) for path in incast.folder.pcap.glob("*-eth*.pcapng")}
    names = [name for _, name in found]
    assert {name: names.count(name) for name in single} == single
    assert len(single) == 10


def test_packets_say_which_operation_they_are_of(incast: Run) -> None:
    """All but the two bytes with which senders greet passed while one of their ends was in an operation.

    But for what a sender took for lost and sent again needlessly: it may pass when all is over.
    """
    told = [
        frame.comments
        for frame in frames(incast.folder.pcap / RUN_FILE)
        if frame.segment and frame.segment.payload_bytes > 2
    ]
    assert len(told) > 1000
    assert {each for each in told if each} == {(f"job {job} incast step 0",) for job in (1, 2, 3)}
    assert told.count(()) < 0.01 * len(told)


def test_a_window_a_length_and_an_event_are_in_the_file(broken: Run) -> None:
    """The window counts from the first operation, to the nanosecond."""
    assert [path.name for path in broken.folder.pcap.iterdir()] == [RUN_FILE]
    about = read_json(broken.folder.series / "about.json")
    begin_ns, end_ns = (about["wall_start_ns"] + about["events_start_ns"] + at for at in WINDOW_NS)
    found = tshark(broken.folder.pcap / RUN_FILE, "frame.time_epoch", "frame.cap_len", "frame.comment")
    stamps = [int(stamp.replace(".", "")) for stamp, *_ in found]
    assert begin_ns <= stamps[0] < begin_ns + 20_000
    assert begin_ns + 50_000 < stamps[-1] < end_ns
    assert max(int(length) for _, length, *_ in found) == 96
    said = [comment[0].split(",")[0] for _, _, *comment in found if comment and comment[0].startswith("event")]
    assert said[0] == "event at 150.000 us: link leaf1-spine1 down"


def test_tables_tell_what_a_step_sent_and_what_happened(incast: Run, broken: Run) -> None:
    steps = pcap_command(incast)
    for job in (1, 2, 3):
        assert f"job {job} incast step 0" in steps
    assert "event at 150.000 us: link leaf1-spine1 down" in pcap_command(broken)


def pcap_command(run: Run) -> str:
    """`./run pcap DIR`."""
    argv = [sys.executable, "-m", "experiments", "pcap", str(run.folder.path)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
