"""Run folders as a run with sampling leaves them, made by arithmetic: what is in them is known."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.results import FlowPath, LinkUse, Results, write_results
from experiments.run_folder import RunFolder, write_json
from topologies.json_form import to_json
from topologies.model import Topology

PERIOD_NS = 10_000
COUNTERS = ["sent_packets", "marked_packets", "dropped_packets", "pauses_sent", "pauses_received", "paused_ns"]
Rows = Iterable[Mapping[str, Any]]


def write(folder: Path, name: str, rows: Rows) -> None:
    """One file of the folder's series."""
    (folder / "series").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), folder / "series" / f"{name}.parquet")


def port(interface: str, number: int, *, sent_bytes: int, queue_bytes: int = 0, **counters: int) -> dict[str, Any]:
    """Sample number so and so of a whole port."""
    return {
        "time_ns": number * PERIOD_NS,
        "interface": interface,
        "class": -1,
        "queue_bytes": queue_bytes,
        "queue_max_bytes": queue_bytes,
        "sent_bytes": sent_bytes,
        **dict.fromkeys(COUNTERS, 0),
        **counters,
    }


def rank(number: int, kind: str, name: str, span: tuple[int, int], *, step: int = 0, job: int = 1) -> dict[str, Any]:
    """What a rank did; rank 0 is on h1."""
    start, end = span
    return {
        "job": job,
        "rank": number,
        "host": f"h{number + 1}",
        "kind": kind,
        "name": name,
        "step": step,
        "start_ns": start,
        "end_ns": end,
        "size_bytes": 0,
    }


def link_uses(topology: Topology, **changes: Mapping[str, Any]) -> tuple[LinkUse, ...]:
    """Every direction, idle but for `changes`: interface name with _ for - -> fields."""
    idle = {"tx_bytes": 0, "tx_packets": 0, "rx_packets": 0, "drops": 0, "utilisation": 0.0}
    return tuple(
        LinkUse(
            name=f"{one.name}>{other.name}",
            rate_bps=link.rate_bps,
            **{**idle, **changes.get(one.name.replace("-", "_"), {})},
        )
        for link in topology.links
        for one, other in link.ends()
    )


def flow(topology: Topology, *path: str, size_bytes: int = 10**6, sport: int = 4000) -> FlowPath:
    """From the first interface's host to the host behind the last interface."""
    source, destination = path[0], topology.peer_of[path[-1]].name
    address = {nic.name: str(nic.ip) for nic in topology.host_interfaces()}
    return FlowPath(
        src=address[source],
        dst=address[destination],
        proto="tcp",
        sport=sport,
        dport=5000,
        mark=0,
        packets=100,
        bytes=size_bytes,
        path=path,
    )


def results(topology: Topology, **changes: Any) -> Results:
    """A valid run that measured nothing but what `changes` say."""
    values: dict[str, Any] = {
        "valid": True,
        "experiment": "schedule",
        "topology": topology.name,
        "policy": "ecmp",
        "seed": 1,
        "clock": "virtual",
        "ranks": len(topology.hosts),
        "rows": (),
        "links": link_uses(topology),
    }
    return Results(**{**values, **changes})


def save(path: Path, topology: Topology, found: Results, **asked: Any) -> RunFolder:
    """A folder without a series."""
    path.mkdir(exist_ok=True)
    made = RunFolder(path)
    write_results(made.results, found)
    write_json(made.topology, to_json(topology))
    write_json(made.manifest, {"asked": {"policy": "ecmp", **asked}, "real": ["TCP"], "modelled": ["time"]})
    return made


def busy_folder(path: Path, topology: Topology, *, samples: int, ranks: int) -> RunFolder:
    """Everything that a figure can be drawn of: each port sends at half its rate, queues, marks, drops and pauses."""
    hosts = list(topology.host_interfaces())
    leaf = topology.peer_of[hosts[0].name].name
    values = [float(number + 1) for number in range(40)]
    flows = {
        "line": [1] * 40,
        "pattern": ["permutation"] * 40,
        "fct_us": [10 * value for value in values],
        "slowdown": values,
    }
    used = {end.name.replace("-", "_"): {"utilisation": 0.5, "tx_bytes": 10**6} for end in topology.interfaces()}
    paths = (flow(topology, hosts[1].name, leaf), flow(topology, hosts[2].name, leaf))
    made = save(path, topology, results(topology, links=link_uses(topology, **used), flows=flows, paths=paths))
    write(path, "ports", _ports(topology, samples))
    write(path, "sockets", _sockets(topology, samples))
    write(path, "ranks", _steps(ranks))
    return made


def _ports(topology: Topology, samples: int) -> Iterable[Mapping[str, Any]]:
    for place, end in enumerate(topology.interfaces()):
        half_bytes = topology.link_of[end.name].rate_bps * PERIOD_NS // (16 * 10**9)
        for number in range(samples):
            yield port(
                end.name,
                number,
                sent_bytes=half_bytes * number,
                queue_bytes=1000 * ((number + place) % 50),
                marked_packets=number // 3,
                dropped_packets=number // 7,
                pauses_sent=number // 9,
                paused_ns=number * 100,
            )


def _sockets(topology: Topology, samples: int) -> Iterable[Mapping[str, Any]]:
    hosts = list(topology.host_interfaces())
    for number in range(samples):
        for place, (one, other) in enumerate(pairwise(hosts)):
            if place < 8:
                yield {
                    "time_ns": number * PERIOD_NS,
                    "host": one.node,
                    "local_address": str(one.ip),
                    "local_port": 4000,
                    "remote_address": str(other.ip),
                    "remote_port": 5000,
                    "cwnd_packets": 10 + number * place % 90,
                    "srtt_ns": 30_000 + 100 * (number % 50),
                    "delivered_packets": number * (place + 1),
                }


def _steps(ranks: int) -> Iterable[Mapping[str, Any]]:
    for number in range(ranks):
        for step in range(8):
            begin, busy = step * 500_000, 200_000 if number == 1 else 100_000
            yield rank(number, "compute", "forward", (begin, begin + busy), step=step)
            yield rank(number, "communication", "gradients", (begin + busy, begin + 450_000), step=step)
