"""One capture of a run: every packet of every interface in order of time, with what it was part of."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from experiments.pcap_comments import Event, Narrator, Phase, events, phases
from experiments.pcap_merge import RUN_FILE, merge, write_run_capture
from experiments.pcap_reading import frames, interfaces
from experiments.pcap_tables import read_traffic, step_rows
from experiments.results import LinkUse
from experiments.run_folder import RunFolder, write_json
from testbed.pcapng import Direction, InterfaceBlock, file_head, file_tail, packet
from tests.unit.experiments import report_folders
from tests.unit.experiments.test_pcap_tables import segment
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=3")
ZERO_NS = 1_767_225_612_000_000_000
SEND, RECEIVE = Direction.OUTBOUND, Direction.INBOUND


def write(folder: Path, name: str, *packets: tuple[int, bytes, Direction]) -> Path:
    """A capture as the testbed leaves it: stamps since ZERO_NS."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.pcapng"
    head = file_head(InterfaceBlock(name=name, description=f"{name} to s1", speed_bps=10**11, snap_bytes=128))
    blocks = [packet(ZERO_NS + at, data, len(data), way) for at, data, way in packets]
    tail = file_tail(stamp_ns=ZERO_NS + 9999, received=len(packets) + 1, dropped=1)
    path.write_bytes(head + b"".join(blocks) + tail)
    return path


def silent() -> Narrator:
    return Narrator(STAR, {}, [])


def tshark(path: Path, *fields: str) -> list[tuple[str, ...]]:
    """Fields of every packet, from a tshark that has nothing to complain of."""
    argv = ["tshark", "-n", "-r", str(path), "-T", "fields", *(word for field in fields for word in ("-e", field))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if not line.startswith("Running as user")] == []
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def test_packets_come_in_order_of_time_with_their_interface_s_name(tmp_path: Path) -> None:
    one = write(tmp_path, "h1-eth0", (100, segment(0, 9), SEND), (300, segment(9, 9), SEND))
    other = write(tmp_path, "h2-eth0", (200, segment(0, 9), RECEIVE), (300, segment(0, 9), SEND))
    merge([one, other], target := tmp_path / RUN_FILE, silent())
    found = tshark(target, "frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction")
    assert found == [
        ("1767225612.000000100", "h1-eth0", "0x00000002"),
        ("1767225612.000000200", "h2-eth0", "0x00000001"),
        ("1767225612.000000300", "h1-eth0", "0x00000002"),
        ("1767225612.000000300", "h2-eth0", "0x00000002"),
    ]
    assert interfaces(target) == ["h1-eth0", "h2-eth0"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".pcapng"] == []


def test_capinfos_knows_each_interface_s_speed_and_losses(tmp_path: Path) -> None:
    paths = [write(tmp_path, name, (at, segment(0, 9), SEND)) for at, name in enumerate(("h1-eth0", "s1-eth1"))]
    merge(paths, target := tmp_path / RUN_FILE, silent())
    said = subprocess.run(["capinfos", str(target)], capture_output=True, text=True, check=True).stdout
    for line in ("Number of interfaces in file: 2", "Speed = 100000000000", "Number of stat entries = 1"):
        assert line in said
    assert said.count("Time precision = nanoseconds (9)") == 2


def test_a_packet_says_what_its_sender_did_or_else_its_receiver(tmp_path: Path) -> None:
    """h1 sends to h2; h1's operation ends at 200, h2's at 400."""
    path = write(tmp_path, "h1-eth0", *((at, segment(at, 9), SEND) for at in (50, 100, 200, 400)))
    told = {
        "h1": [Phase(begin_ns=ZERO_NS + 100, text="send step 0"), Phase(begin_ns=ZERO_NS + 200, text="")],
        "h2": [Phase(begin_ns=ZERO_NS + 90, text="receive step 0"), Phase(begin_ns=ZERO_NS + 400, text="")],
    }
    merge([path], target := tmp_path / RUN_FILE, Narrator(STAR, told, []))
    assert [frame.comments for frame in frames(target)] == [(), ("send step 0",), ("receive step 0",), ()]
    assert [comment for (comment,) in tshark(target, "frame.comment")] == ["", "send step 0", "receive step 0", ""]


def test_what_happened_is_told_at_the_next_packet_or_at_the_last(tmp_path: Path) -> None:
    path = write(tmp_path, "h1-eth0", *((at, segment(at, 9), SEND) for at in (100, 200, 300)))
    happened = [Event(at_ns=ZERO_NS + at, text=f"event {at}") for at in (150, 160, 300, 900)]
    merge([path], target := tmp_path / RUN_FILE, Narrator(STAR, {}, happened))
    assert [frame.comments for frame in frames(target)] == [(), ("event 150", "event 160"), ("event 300", "event 900")]


def span(host: str, kind: str, name: str, step: int, when: tuple[int, int], job: int = 1) -> dict[str, Any]:
    return {"host": host, "job": job, "kind": kind, "name": name, "step": step, "start_ns": when[0], "end_ns": when[1]}


def test_phases_tell_all_that_is_under_way_and_nothing_else() -> None:
    rows = [
        span("h1", "communication", "bucket 1", 4, (100, 300)),
        span("h1", "communication", "bucket 2", 4, (200, 300)),
        span("h1", "compute", "backward", 4, (0, 250)),
        span("h1", "wait", "end", 0, (300, 900)),
        span("h1", "operation", "all_reduce", 5, (300, 400)),
        span("h2", "operation", "barrier", 0, (500, 500)),
    ]
    found = phases(rows, zero_ns=1000)
    assert [(phase.begin_ns, phase.text) for phase in found["h1"]] == [
        (1100, "bucket 1 step 4"),
        (1200, "bucket 1 step 4; bucket 2 step 4"),
        (1300, "all_reduce step 5"),
        (1400, ""),
    ]
    assert [(phase.begin_ns, phase.text) for phase in found["h2"]] == [(1500, "")]


def test_jobs_are_told_apart_where_there_are_several() -> None:
    rows = [span("h1", "operation", "x", 0, (0, 9), job=1), span("h2", "operation", "x", 0, (0, 9), job=2)]
    found = phases(rows, zero_ns=0)
    assert [found[host][0].text for host in ("h1", "h2")] == ["job 1 x step 0", "job 2 x step 0"]


def test_events_are_failures_repairs_and_changes_of_ports() -> None:
    sections = {
        "events": [
            {"kind": "failure", "at_us": 200.0, "in_force_us": 200.001, "what": "link a-b down", "links": 1},
            {"kind": "ports", "in_force_us": 100.0, "where": "every switch", "set": {"ecn.kmin": "9kB"}},
        ],
        "failures": [{"what": "link a-b down", "detected_us": 1200.001, "repaired_us": None}],
    }
    found = events(sections, zero_ns=1000)
    assert [(event.at_ns, event.text) for event in found] == [
        (101_000, "event at 100.000 us: ports of every switch set to ecn.kmin=9kB"),
        (201_001, "event at 200.001 us: link a-b down"),
        (1_201_001, "event at 1200.001 us: link a-b down: noticed by the controller"),
    ]


def run_folder(path: Path) -> RunFolder:
    """A finished run of one operation at rank 0, with a capture at both ends of what it sent."""
    run = report_folders.save(path, STAR, report_folders.results(STAR, links=link_uses()))
    report_folders.write(path, "ranks", [report_folders.rank(0, "operation", "all_reduce", (50, 250), step=7)])
    write_json(run.series / "about.json", {"start_ns": 5, "wall_start_ns": ZERO_NS, "events_start_ns": None})
    for name, way in (("h1-eth0", SEND), ("h2-eth0", RECEIVE)):
        write(run.pcap, name, *((at, segment(at, 100), way) for at in (0, 100, 200, 200)))
    return run


def link_uses() -> tuple[LinkUse, ...]:
    return report_folders.link_uses(STAR)


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ("both", ["h1-eth0.pcapng", "h2-eth0.pcapng", RUN_FILE]),
        ("each", ["h1-eth0.pcapng", "h2-eth0.pcapng"]),
        ("run", [RUN_FILE]),
    ],
)
def test_a_run_has_the_files_that_were_asked_for(tmp_path: Path, files: Any, left: list[str]) -> None:
    run = run_folder(tmp_path / "run")
    write_run_capture(run, files)
    assert sorted(path.name for path in run.pcap.iterdir()) == left
    assert list(read_traffic(run).ports) == ["h1-eth0", "h2-eth0"]


def test_a_run_without_captures_is_left_alone(tmp_path: Path) -> None:
    write_run_capture(RunFolder(tmp_path), "both")
    assert list(tmp_path.iterdir()) == []


def test_steps_count_a_packet_once_however_often_it_was_seen(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    write_run_capture(run, "both")
    rows = {row.pop("in flight"): row for row in step_rows(read_traffic(run))}
    assert set(rows) == {"(nothing)", "all_reduce step 7"}
    sent = {"packets": 3, "bytes": 3 * 54, "again": 1, "reordered": 0, "ce_percent": 0.0}
    assert rows["all_reduce step 7"] == sent


def test_equal_captures_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_run_capture(run_folder(tmp_path / name), "both")
    one, other = (tmp_path / name / "pcap" / RUN_FILE for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
