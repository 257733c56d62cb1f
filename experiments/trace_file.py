"""trace.json: a run in the Chrome trace format, for Perfetto (ui.perfetto.dev) or chrome://tracing.

    process "job 1"      a thread per rank, and one beside it for what overlaps: compute | collectives | waits
    process "links"      per egress port of use: utilisation in percent, queue in bytes; marks and drops as instants
    process "events"     failures and changes of policy, as instants

Format: "Trace Event Format" (Chromium); times are microseconds, fractions allowed.  The file is bounded: MOST_COUNTERS
points are shared among the busiest ports, the others are left out and named in `otherData`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from experiments.results import read_results
from experiments.run_folder import RunFolder, read_json
from experiments.series.schema import WHOLE_PORT
from topologies.json_form import from_json

MOST_COUNTERS: Final = 200_000
"""Points of all counters together: some 25 MB."""
MOST_SLICES: Final = 200_000
LINKS, EVENTS, FIRST_JOB = 1, 2, 100
"""Process ids; job n is FIRST_JOB + n."""
TRACKS: Final[Mapping[str, int]] = {"operation": 0, "wait": 0, "compute": 1, "communication": 2}
"""Kind -> which of a rank's threads: slices of one thread must nest, and communication overlaps compute."""
TRACK_NAMES: Final = ("", " compute", " communication")

Event = dict[str, Any]
Columns = Mapping[str, NDArray[Any]]


def write_trace(run: RunFolder) -> None:
    """From the folder's series and results.  Raises UserError where it is not the folder of a finished run."""
    events: list[Event] = []
    left_out: dict[str, int] = {}
    ranks = _read(run, "ranks")
    slices = list(_ranks(ranks))
    left_out["slices"] = max(0, len(ranks["job"]) - MOST_SLICES)
    events += slices
    if (run.series / "ports.parquet").exists():
        found, left_out["ports"] = _links(_read(run, "ports"), _rates(run))
        events += found
    events += _events(run)
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"left_out": left_out}})
    run.trace.write_text(text + "\n")


def _read(run: RunFolder, name: str) -> Columns:
    table = pq.read_table(run.series / f"{name}.parquet")
    return {key: np.array(table[key].to_pylist()) for key in table.column_names}


def _rates(run: RunFolder) -> Mapping[str, int]:
    topology = from_json(read_json(run.topology))
    return {name: link.rate_bps for name, link in topology.link_of.items()}


def _name(pid: int, name: str, tid: int | None = None) -> Event:
    kind = "process_name" if tid is None else "thread_name"
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid or 0, "args": {"name": name}}


def _ranks(ranks: Columns) -> Iterator[Event]:
    lanes = _lanes(ranks)
    kinds = [TRACKS[str(kind)] for kind in ranks["kind"]]
    threads: dict[tuple[int, int], str] = {}
    for place in range(min(len(kinds), MOST_SLICES)):
        job, rank = int(ranks["job"][place]), int(ranks["rank"][place])
        pid, tid = FIRST_JOB + job, _thread(rank, kinds[place], lanes[place])
        if (pid, tid) not in threads:
            threads[pid, tid] = f"rank {rank} ({ranks['host'][place]}){TRACK_NAMES[kinds[place]]}"
        start, end = int(ranks["start_ns"][place]), int(ranks["end_ns"][place])
        yield {
            "ph": "X",
            "cat": str(ranks["kind"][place]),
            "name": str(ranks["name"][place]),
            "pid": pid,
            "tid": tid,
            "ts": start / 1e3,
            "dur": (end - start) / 1e3,
            "args": {"step": int(ranks["step"][place]), "size_bytes": int(ranks["size_bytes"][place])},
        }
    for pid in sorted({pid for pid, _ in threads}):
        yield _name(pid, f"job {pid - FIRST_JOB}")
    for (pid, tid), words in sorted(threads.items()):
        yield _name(pid, words, tid)


def _lanes(ranks: Columns) -> list[int]:
    """Of each slice: collectives under way at once are drawn beside each other.  Rows are in the order of starts."""
    busy_until: dict[tuple[int, int], list[int]] = {}
    found = []
    for job, rank, kind, start, end in zip(
        *(ranks[key].tolist() for key in ("job", "rank", "kind", "start_ns", "end_ns")), strict=True
    ):
        if kind != "communication":
            found.append(0)
            continue
        ends = busy_until.setdefault((job, rank), [])
        lane = next((number for number, until in enumerate(ends) if until <= start), len(ends))
        ends[lane : lane + 1] = [end]
        found.append(lane)
    return found


def _thread(rank: int, track: int, lane: int) -> int:
    """Threads are shown in this order."""
    return 1000 * (rank + 1) + 10 * track + lane


def _links(ports: Columns, rates: Mapping[str, int]) -> tuple[list[Event], int]:
    """Events of the busiest ports that fit, and how many ports of use were left out."""
    whole = np.flatnonzero(ports["class"] == WHOLE_PORT)
    names, place = np.unique(ports["interface"][whole], return_inverse=True)
    rows = {str(name): whole[place == number] for number, name in enumerate(names)}
    sent = {name: int(ports["sent_bytes"][at[-1]] - ports["sent_bytes"][at[0]]) for name, at in rows.items()}
    busiest = [name for name in sorted(rows, key=lambda name: (-sent[name], name)) if sent[name]]
    events, left, kept = [_name(LINKS, "links")], MOST_COUNTERS, 0
    for name in busiest:
        if 4 * len(rows[name]) > left:
            break
        left -= 4 * len(rows[name])
        kept += 1
        events += _port(name, {key: values[rows[name]] for key, values in ports.items()}, rates[name], kept)
    return events, len(busiest) - kept


def _port(name: str, port: Columns, rate_bps: int, thread: int) -> Iterator[Event]:
    """Utilisation is over the time since the sample before, and so drawn from that sample on."""
    time_us = port["time_ns"] / 1e3
    spans = np.maximum(np.diff(port["time_ns"]), 1)
    share = np.append(np.diff(port["sent_bytes"]) * 8e11 / (spans * rate_bps), 0.0)
    yield _name(LINKS, name, thread)
    for at, used, queue in zip(time_us.tolist(), share.tolist(), port["queue_max_bytes"].tolist(), strict=True):
        yield _counter(f"{name} utilisation", at, "percent", round(used, 3))
        yield _counter(f"{name} queue", at, "bytes", queue)
    for what, key in (("marks", "marked_packets"), ("drops", "dropped_packets")):
        more = np.diff(port[key])
        for row in np.flatnonzero(more):
            yield {
                "ph": "i",
                "s": "t",
                "cat": what,
                "name": what,
                "pid": LINKS,
                "tid": thread,
                "ts": float(time_us[row + 1]),
                "args": {"packets": int(more[row])},
            }


def _counter(name: str, at_us: float, unit: str, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": LINKS, "tid": 0, "ts": at_us, "args": {unit: value}}


def _events(run: RunFolder) -> Iterator[Event]:
    found: Sequence[Mapping[str, Any]] = read_results(run.results).sections.get("events", ())
    zero_ns = read_json(run.series / "about.json")["events_start_ns"] or 0
    yield _name(EVENTS, "events")
    for event in found:
        words = event["what"] if event["kind"] == "failure" else f"{event['where']}: {event['set']}"
        yield {
            "ph": "i",
            "s": "g",
            "cat": event["kind"],
            "name": words,
            "pid": EVENTS,
            "tid": 0,
            "ts": event["in_force_us"] + zero_ns / 1e3,
            "args": {key: str(value) for key, value in event.items()},
        }
