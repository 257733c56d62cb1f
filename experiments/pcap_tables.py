"""`./run pcap DIR`: what a run's captures say of each flow and interface, as tables.

A flow is counted where it leaves its sender's side of a capture: in frames that are outbound at an interface.  Where
several interfaces of its path were captured each has a row of its own, because marks are made and packets lost between.

    again         segments whose bytes had all passed this interface before (the same sequence numbers): retransmissions
    reordered     segments that begin below the highest byte seen so far, and are not sent again
    ce_percent    of its segments with payload

Where the run has one capture of all (pcap_merge.py) it is read, and its comments give two tables more: what each
operation and step sent, counted where a flow was first seen to leave an interface, and what happened to the fabric.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from experiments.pcap_comments import EVENT
from experiments.pcap_merge import RUN_FILE, interface_files
from experiments.pcap_reading import CE, ECT, Frame, Segment, frames, interfaces
from experiments.run_folder import RunFolder
from topologies.errors import UserError

Row = dict[str, Any]
_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31
NOTHING: Final = "(nothing)"
"""Of packets that passed while neither end was in an operation: acknowledgements, connections being set up."""


@dataclass(kw_only=True)
class Flow:
    """One direction of a connection at one interface."""

    packets: int = 0
    bytes: int = 0
    data_packets: int = 0
    ce: int = 0
    ect: int = 0
    again: int = 0
    reordered: int = 0
    first_ns: int = 0
    last_ns: int = 0
    last_again: bool = False
    """Of the latest segment with payload."""
    last_reordered: bool = False
    _highest: int | None = None
    """Sequence number after the highest byte, unwrapped."""
    _seen: set[int] = field(default_factory=set)
    """Where segments began, unwrapped."""

    def add(self, frame: Frame, segment: Segment) -> None:
        """One more of its segments."""
        self.first_ns = self.first_ns if self.packets else frame.time_ns
        self.last_ns = frame.time_ns
        self.packets += 1
        self.bytes += frame.size_bytes
        if not segment.payload_bytes:
            return
        self.data_packets += 1
        self.ce += segment.ecn == CE
        self.ect += segment.ecn in ECT
        self._place(segment)

    def take(self, frame: Frame, segment: Segment, of: "Flow") -> None:
        """One more segment, of a flow that has judged it: its place among the others is told by that."""
        self.packets += 1
        self.bytes += frame.size_bytes
        if segment.payload_bytes:
            self.data_packets += 1
            self.ce += segment.ecn == CE
            self.ect += segment.ecn in ECT
            self.again += of.last_again
            self.reordered += of.last_reordered

    def _place(self, segment: Segment) -> None:
        if self._highest is None:
            self._highest = segment.sequence
        ahead = (segment.sequence - self._highest) % _WRAP
        begin = self._highest + (ahead if ahead < _HALF else ahead - _WRAP)
        self.last_again = begin in self._seen
        self.last_reordered = begin < self._highest and not self.last_again
        self.again += self.last_again
        self.reordered += self.last_reordered
        self._seen.add(begin)
        self._highest = max(self._highest, begin + segment.payload_bytes)


@dataclass(kw_only=True)
class Port:
    """What one interface saw."""

    packets: int = 0
    bytes: int = 0
    xoff_out: int = 0
    xoff_in: int = 0
    xon_out: int = 0
    xon_in: int = 0
    flows: dict[str, Flow] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        """One more frame, in the file's order."""
        self.packets += 1
        self.bytes += frame.size_bytes
        if frame.pauses:
            name = f"{'xoff' if any(frame.pauses) else 'xon'}_{'out' if frame.outbound else 'in'}"
            setattr(self, name, getattr(self, name) + 1)
        if frame.segment is not None and frame.outbound:
            self.flows.setdefault(frame.segment.flow, Flow()).add(frame, frame.segment)


@dataclass(kw_only=True)
class Traffic:
    """Everything that a run's captures hold."""

    ports: dict[str, Port] = field(default_factory=dict)
    """By interface."""
    steps: dict[str, Flow] = field(default_factory=dict)
    """All that was sent meanwhile, by operation and step; empty for captures without comments."""
    events: list[str] = field(default_factory=list)
    _first: dict[str, str] = field(default_factory=dict)
    """Flow -> the interface that it was first seen to leave."""

    def add(self, frame: Frame) -> None:
        """One more frame, in order of time."""
        self.ports[frame.interface].add(frame)
        in_flight = ""
        for text in frame.comments:
            if text.startswith(EVENT):
                self.events.append(text)
            else:
                in_flight = text
        segment = frame.segment
        if (
            segment is not None
            and frame.outbound
            and self._first.setdefault(segment.flow, frame.interface) == (frame.interface)
        ):
            self._count(in_flight, frame, segment)

    def _count(self, in_flight: str, frame: Frame, segment: Segment) -> None:
        """Whether bytes were sent before is the flow's to say, and the step's to count."""
        flow = self.ports[frame.interface].flows[segment.flow]
        self.steps.setdefault(in_flight or NOTHING, Flow()).take(frame, segment, flow)


def read_traffic(run: RunFolder) -> Traffic:
    """The run's one capture, or those of its interfaces.  Raises UserError where the run captured nothing."""
    whole, found = run.pcap / RUN_FILE, Traffic()
    paths = [whole] if whole.exists() else interface_files(run)
    if not paths:
        raise UserError(f"{run.path} has no captures; run it with --pcap hosts (or all, or names)")
    for path in paths:
        found.ports |= {name: Port() for name in interfaces(path)}
        for frame in frames(path):
            found.add(frame)
    return found


def step_rows(traffic: Traffic) -> list[Row]:
    """In order of time; nothing where no packet has a comment."""
    if set(traffic.steps) <= {NOTHING}:
        return []
    return [
        {
            "in flight": name,
            "packets": step.packets,
            "bytes": step.bytes,
            "again": step.again,
            "reordered": step.reordered,
            "ce_percent": _percent(step.ce, step.data_packets),
        }
        for name, step in traffic.steps.items()
    ]


def flow_rows(ports: Mapping[str, Port]) -> list[Row]:
    """The biggest flow first: the top of this table are the top talkers."""
    rows = [
        {
            "interface": interface,
            "flow": name,
            "packets": flow.packets,
            "bytes": flow.bytes,
            "gbps": round(flow.bytes * 8 / (flow.last_ns - flow.first_ns), 3) if flow.last_ns > flow.first_ns else 0.0,
            "again": flow.again,
            "reordered": flow.reordered,
            "ect_percent": _percent(flow.ect, flow.data_packets),
            "ce_percent": _percent(flow.ce, flow.data_packets),
        }
        for interface, port in ports.items()
        for name, flow in port.flows.items()
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], row["flow"], row["interface"]))


def port_rows(ports: Mapping[str, Port]) -> list[Row]:
    """Every captured interface: frames both ways, pauses by direction, retransmissions of what leaves it."""
    return [
        {
            "interface": interface,
            "packets": port.packets,
            "bytes": port.bytes,
            "flows": len(port.flows),
            "again": sum(flow.again for flow in port.flows.values()),
            "xoff_out": port.xoff_out,
            "xoff_in": port.xoff_in,
            "xon_out": port.xon_out,
            "xon_in": port.xon_in,
        }
        for interface, port in ports.items()
    ]


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def text(rows: Sequence[Row]) -> str:
    """Columns with a heading, numbers to the right."""
    cells = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)] if rows else [["nothing"]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_line(row, widths) for row in cells)


def _line(row: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(
        cell.ljust(width) if not cell[:1].isdigit() else cell.rjust(width)
        for cell, width in zip(row, widths, strict=True)
    ).rstrip()
