"""trace.json by its format's rules: every event complete, slices of a thread nested, counters and instants in place."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import trace_file
from experiments.run_folder import RunFolder, write_json
from tests.unit.experiments.report_folders import busy_folder, rank, results, save, write
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=3")
NEEDED = {"X": {"ts", "dur", "tid", "cat"}, "C": {"ts", "args"}, "i": {"ts", "s", "tid"}, "M": {"args"}}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = busy_folder(tmp_path / "run", STAR, samples=21, ranks=3)
    write_json(made.series / "about.json", {"start_ns": 0, "events_start_ns": 5000})
    return made


def events(run: RunFolder, kind: str) -> list[dict[str, Any]]:
    trace_file.write_trace(run)
    return [event for event in json.loads(run.trace.read_text())["traceEvents"] if event["ph"] == kind]


def test_every_event_is_complete(run: RunFolder) -> None:
    trace_file.write_trace(run)
    for event in json.loads(run.trace.read_text())["traceEvents"]:
        assert NEEDED[event["ph"]] | {"name", "pid"} <= set(event), event


def test_every_track_has_a_name_and_its_times_are_in_order(run: RunFolder) -> None:
    trace_file.write_trace(run)
    found = json.loads(run.trace.read_text())["traceEvents"]
    named = {
        kind: {
            (event["pid"], event.get("tid") if kind == "thread_name" else None)
            for event in found
            if event["name"] == kind
        }
        for kind in ("process_name", "thread_name")
    }
    told = [event for event in found if event["ph"] != "M"]
    assert {(event["pid"], None) for event in told} <= named["process_name"]
    assert {(event["pid"], event["tid"]) for event in told if event["ph"] in "Xi"} <= named["thread_name"]
    counters: dict[tuple[int, str], list[float]] = {}
    for event in told:
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            counters.setdefault((event["pid"], event["name"]), []).append(event["ts"])
    assert all(times == sorted(set(times)) for times in counters.values())


def check_nesting(slices: Sequence[dict[str, Any]]) -> None:
    """On one thread a slice ends before another begins, or contains it."""
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in slices:
        threads.setdefault((each["pid"], each["tid"]), []).append((each["ts"], -each["dur"]))
    for found in threads.values():
        open_until: list[float] = []
        for begin, minus in sorted(found):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or begin - minus <= open_until[-1]
            open_until.append(begin - minus)


def test_a_slice_per_interval_on_a_thread_per_rank(run: RunFolder) -> None:
    slices = events(run, "X")
    assert len(slices) == 3 * 8 * 2
    check_nesting(slices)
    assert {each["dur"] for each in slices if each["cat"] == "compute"} == {100.0, 200.0}


def test_collectives_that_overlap_are_beside_each_other(tmp_path: Path) -> None:
    made = save(tmp_path / "run", STAR, results(STAR))
    spans = [(0, 100_000), (50_000, 150_000), (100_000, 200_000)]
    write(made.path, "ranks", [rank(0, "communication", f"bucket {at}", span) for at, span in enumerate(spans)])
    write_json(made.series / "about.json", {"start_ns": 0, "events_start_ns": None})
    slices = events(made, "X")
    check_nesting(slices)
    assert len({each["tid"] for each in slices}) == 2


def test_counters_are_the_series(run: RunFolder) -> None:
    """Half the rate at all times; 0 at the end, where nothing is known."""
    found = [event for event in events(run, "C") if event["name"] == "s1-eth1 utilisation"]
    assert [event["args"]["percent"] for event in found] == pytest.approx([50.0] * 20 + [0.0], abs=0.01)
    assert [event["ts"] for event in found] == [10.0 * number for number in range(21)]
    marks = [event for event in events(run, "i") if event["name"] == "marks" and event["cat"] == "marks"]
    ports = pq.read_table(run.series / "ports.parquet")
    assert len({event["tid"] for event in marks}) == len(set(ports["interface"].to_pylist()))
    assert sum(event["args"]["packets"] for event in marks) == 6 * (20 // 3)


def test_failures_are_instants_at_their_time(tmp_path: Path) -> None:
    said = {"kind": "failure", "at_us": 3.0, "what": "link h1-s1 down", "links": 1, "in_force_us": 4.0}
    made = save(tmp_path / "run", STAR, results(STAR, events=[said]))
    write(made.path, "ranks", [rank(0, "wait", "go", (0, 1))])
    write_json(made.series / "about.json", {"start_ns": 0, "events_start_ns": 5000})
    (instant,) = events(made, "i")
    assert (instant["name"], instant["ts"], instant["s"]) == ("link h1-s1 down", 9.0, "g")


def test_its_size_is_bounded_and_it_says_what_is_missing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "MOST_COUNTERS", 4 * 21 * 2)
    monkeypatch.setattr(trace_file, "MOST_SLICES", 5)
    assert len({event["name"] for event in events(run, "C")}) == 4
    left_out = json.loads(run.trace.read_text())["otherData"]["left_out"]
    assert left_out == {"ports": 4, "slices": 43}
    assert len(events(run, "X")) == 5
    assert np.all(np.array([event["dur"] for event in events(run, "X")]) > 0)
