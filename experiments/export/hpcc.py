"""A run as HPCC's simulator (ns-3) writes one, for people with scripts for its files.  Columns as in scratch/third.cc:

    fct.txt        sip dip sport dport size_bytes start_ns fct_ns standalone_fct_ns        addresses in hex
    qlen.txt       time: ns, then per switch port: switch port n0 n1 n2 ...                n_i: samples of i kB
    pfc.txt        time_ns node node_type port type      at the port that is paused; 1 pause, 0 resume; type 1: switch
    topology.txt   its input: nodes switches links / the switches / node node rate delay error_rate
    nodes.txt      ours: node, name, address in fct.txt

Nodes are numbered as it numbers them: hosts first; its scripts take a node out of an address, so addresses are its, not
ours.  dport is 100, and 200 of an incast: fct_analysis.py tells them apart by that.  standalone_fct is ideal_ns of
workloads/completion.py.  Time 0 is the start of the experiment's `run`, or for a schedule the schedule's.

Flows are those of a schedule; elsewhere what a connection carried one way during one operation, by the run's capture,
timed from its first to its last packet with data.  Pauses come from captures where they have the port, else from its
series: then as many pauses as were counted, at the time of the sample, and no resumes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.export.written import Written
from experiments.pcap_comments import EVENT
from experiments.pcap_merge import RUN_FILE
from experiments.pcap_reading import Frame, Segment, frames, interfaces
from experiments.results import read_results
from experiments.run_folder import RunFolder, read_json
from experiments.series.recording import ABOUT
from experiments.series.schema import WHOLE_PORT
from experiments.workloads.completion import ideal_ns
from topologies.json_form import from_json
from topologies.model import Topology

NORMAL_PORT, INCAST_PORT = 100, 200
FIRST_SOURCE_PORT = 10_000
TCP_HEADERS_BYTES: Final = 14 + 20 + 32
"""Ethernet, IPv4, TCP with the timestamp that Linux always puts."""
PAUSE, RESUME = 1, 0
HOST, SWITCH = 0, 1


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Names as HPCC's numbers."""

    topology: Topology

    @property
    def numbers(self) -> dict[str, int]:
        """Hosts, then switches, from 0."""
        named = [*(host.name for host in self.topology.hosts), *(switch.name for switch in self.topology.switches)]
        return {name: number for number, name in enumerate(named)}

    @property
    def ports(self) -> dict[str, int]:
        """Interface -> its number at its node, from 1: 0 is the simulator's loopback."""
        of_nodes = self.topology.interfaces_of.values()
        return {end.name: number for ends in of_nodes for number, end in enumerate(ends, start=1)}


def address(node: int) -> int:
    """As third.cc's node_id_to_ip makes it."""
    return 0x0B000001 + node // 256 * 0x10000 + node % 256 * 0x100


def export_hpcc(run: RunFolder) -> Written:
    """Raises UserError where the folder is not that of a finished run."""
    results = read_results(run.results)
    topology = from_json(read_json(run.topology))
    nodes, written = Nodes(topology=topology), Written.into(run)
    written.add("topology.txt", "".join(_topology(nodes)))
    written.add("nodes.txt", "".join(f"{at} {name} {address(at):08x}\n" for name, at in nodes.numbers.items()))
    seen = _Seen.of(run)
    flows = results.sections.get("flows")
    if flows and {"source", "destination", "size_bytes", "start_us", "fct_us", "ideal_us"} <= set(flows):
        written.add("fct.txt", "".join(_scheduled(nodes, flows)))
    elif seen.flows:
        written.add("fct.txt", "".join(_captured(nodes, seen)))
    else:
        written.left_out["fct.txt"] = (
            "left out: times of flows come from schedule.py, or captures: run with --pcap hosts"
        )
    if (run.series / "ports.parquet").exists():
        written.add("qlen.txt", "".join(_queues(nodes, run)))
    else:
        written.left_out["qlen.txt"] = "left out: the run has no samples of ports (--sample)"
    written.add("pfc.txt", "".join(_pauses(nodes, run, seen, written)))
    return written


def _topology(nodes: Nodes) -> Iterator[str]:
    topology, numbers = nodes.topology, nodes.numbers
    yield f"{len(numbers)} {len(topology.switches)} {len(topology.links)}\n"
    yield " ".join(str(numbers[switch.name]) for switch in topology.switches) + "\n"
    for link in topology.links:
        ends = f"{numbers[link.a.node]} {numbers[link.b.node]}"
        yield f"{ends} {link.rate_bps / 1e9:g}Gbps {link.delay_ns / 1e6:g}ms 0\n"


def _scheduled(nodes: Nodes, flows: Mapping[str, Any]) -> Iterator[str]:
    patterns = flows.get("pattern", ())
    ports: Counter[str] = Counter()
    for number, source in enumerate(flows["source"]):
        incast = len(patterns) > number and patterns[number] == "incast"
        yield _flow(
            nodes,
            source,
            flows["destination"][number],
            ports=(FIRST_SOURCE_PORT + ports[source], INCAST_PORT if incast else NORMAL_PORT),
            size_bytes=flows["size_bytes"][number],
            times_ns=[round(flows[key][number] * 1000) for key in ("start_us", "fct_us", "ideal_us")],
        )
        ports[source] += 1


def _flow(
    nodes: Nodes, source: str, destination: str, *, ports: tuple[int, int], size_bytes: int, times_ns: Iterable[int]
) -> str:
    """`times_ns`: start, completion, alone."""
    ends = (address(nodes.numbers[host]) for host in (source, destination))
    words = [*(f"{end:08x}" for end in ends), *ports, size_bytes, *times_ns]
    return " ".join(map(str, words)) + "\n"


@dataclass(kw_only=True)
class _Flow:
    first_ns: int
    last_ns: int
    size_bytes: int = 0
    begin: int | None = None
    end: int = 0

    def add(self, frame: Frame, segment: Segment) -> None:
        """Sizes are of distinct bytes, by sequence numbers: what was sent again counts once."""
        self.last_ns = frame.time_ns
        if self.begin is None:
            self.begin = self.end = segment.sequence
        ahead = (segment.sequence + segment.payload_bytes - self.end) % 2**32
        if ahead < 2**31:
            self.size_bytes += ahead
            self.end = (self.end + ahead) % 2**32


@dataclass(kw_only=True)
class _Seen:
    """What captures of the whole run say."""

    zero_ns: int = 0
    interfaces: set[str] = field(default_factory=set)
    flows: dict[tuple[str, str, int, int, str], _Flow] = field(default_factory=dict)
    """By addresses, ports, and what was in flight."""
    pauses: list[tuple[int, str, int]] = field(default_factory=list)
    """Time, interface that is told, PAUSE or RESUME; a line for each class that the frame is about."""

    @classmethod
    def of(cls, run: RunFolder) -> "_Seen":
        """Empty where there are no captures, or only parts of what passed."""
        path = run.pcap / RUN_FILE
        words = str(read_json(run.manifest)["asked"].get("pcap", ""))
        if not path.exists() or any(key in words for key in ("window=", "class=", "dscp=")):
            return cls()
        found = cls(zero_ns=int(read_json(run.series / ABOUT)["wall_start_ns"]), interfaces=set(interfaces(path)))
        for frame in frames(path):
            found._add(frame)
        return found

    def _add(self, frame: Frame) -> None:
        if frame.pauses and not frame.outbound:
            told = [(frame.time_ns, frame.interface, PAUSE if quanta else RESUME) for quanta in frame.pauses]
            self.pauses += told
        segment = frame.segment
        in_flight = [text for text in frame.comments if not text.startswith(EVENT)]
        if segment is None or not segment.payload_bytes or not in_flight:
            return
        key = (segment.source, segment.destination, segment.sport, segment.dport, in_flight[0])
        if key not in self.flows:
            self.flows[key] = _Flow(first_ns=frame.time_ns, last_ns=frame.time_ns)
        self.flows[key].add(frame, segment)


def _captured(nodes: Nodes, seen: _Seen) -> Iterator[str]:
    hosts = {str(nic.ip): nic.node for nic in nodes.topology.host_interfaces()}
    for (source, destination, sport, dport, _), flow in sorted(seen.flows.items(), key=lambda pair: pair[1].first_ns):
        alone_ns = ideal_ns(
            nodes.topology, hosts[source], hosts[destination], flow.size_bytes, header_bytes=TCP_HEADERS_BYTES
        )
        times_ns = (flow.first_ns - seen.zero_ns, flow.last_ns - flow.first_ns, round(alone_ns))
        yield _flow(
            nodes,
            hosts[source],
            hosts[destination],
            ports=(sport, dport),
            size_bytes=flow.size_bytes,
            times_ns=times_ns,
        )


def _queues(nodes: Nodes, run: RunFolder) -> Iterator[str]:
    """One dump at the end: its lines count from the beginning, as the simulator's do."""
    table = pq.read_table(run.series / "ports.parquet", columns=["time_ns", "interface", "class", "queue_bytes"])
    table = table.filter(pc.equal(table["class"], WHOLE_PORT))
    counts: dict[str, Counter[int]] = {}
    for interface, queue_bytes in zip(table["interface"].to_pylist(), table["queue_bytes"].to_pylist(), strict=True):
        counts.setdefault(interface, Counter())[queue_bytes // 1000] += 1
    yield f"time: {max(table['time_ns'].to_pylist(), default=0)}\n"
    for switch in nodes.topology.switches:
        for end in nodes.topology.interfaces_of[switch.name]:
            of_port = counts.get(end.name, Counter())
            line = [nodes.numbers[switch.name], nodes.ports[end.name]]
            yield " ".join(map(str, [*line, *(of_port[size] for size in range(max(of_port, default=-1) + 1))])) + "\n"


def _pauses(nodes: Nodes, run: RunFolder, seen: _Seen, written: Written) -> Iterator[str]:
    told = [(at_ns - seen.zero_ns, interface, kind) for at_ns, interface, kind in seen.pauses]
    sampled = [pause for pause in _sampled_pauses(run) if pause[1] not in seen.interfaces]
    if sampled:
        written.left_out["pfc.txt"] = "resumes left out at ports without a capture; their pauses have times of samples"
    node_of = {end.name: end.node for end in nodes.topology.interfaces()}
    for at_ns, interface, kind in sorted([*told, *sampled]):
        node = node_of[interface]
        node_type = SWITCH if node in nodes.topology.switch_named else HOST
        yield f"{at_ns} {nodes.numbers[node]} {node_type} {nodes.ports[interface]} {kind}\n"


def _sampled_pauses(run: RunFolder) -> Iterator[tuple[int, str, int]]:
    path = run.series / "ports.parquet"
    if not path.exists():
        return
    columns = ["time_ns", "interface", "class", "pauses_received"]
    table = pq.read_table(path, columns=columns)
    before: dict[str, int] = {}
    for row in table.filter(pc.equal(table["class"], WHOLE_PORT)).to_pylist():
        new = row["pauses_received"] - before.setdefault(row["interface"], row["pauses_received"])
        before[row["interface"]] = row["pauses_received"]
        yield from [(row["time_ns"], row["interface"], PAUSE)] * new
