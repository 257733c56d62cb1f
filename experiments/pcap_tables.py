"""`./run pcap DIR`: what a run's captures say of each flow and interface, as tables.

A flow is counted where it leaves its sender's side of a capture: in frames that are outbound at an interface.  Where
several interfaces of its path were captured each has a row of its own, because marks are made and packets lost between.

    again         segments whose bytes had all passed this interface before (the same sequence numbers): retransmissions
    reordered     segments that begin below the highest byte seen so far, and are not sent again
    ce_percent    of its segments with payload
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from experiments.pcap_reading import CE, ECT, Frame, Segment, frames
from experiments.run_folder import RunFolder
from topologies.errors import UserError

Row = dict[str, Any]
_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31


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

    def _place(self, segment: Segment) -> None:
        if self._highest is None:
            self._highest = segment.sequence
        ahead = (segment.sequence - self._highest) % _WRAP
        begin = self._highest + (ahead if ahead < _HALF else ahead - _WRAP)
        if begin in self._seen:
            self.again += 1
        elif begin < self._highest:
            self.reordered += 1
        self._seen.add(begin)
        self._highest = max(self._highest, begin + segment.payload_bytes)


@dataclass(kw_only=True)
class Port:
    """One interface's file."""

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


def read_ports(run: RunFolder) -> dict[str, Port]:
    """Interface -> what its capture holds.  Raises UserError where the run captured nothing."""
    paths = sorted(run.pcap.glob("*.pcapng"))
    if not paths:
        raise UserError(f"{run.path} has no captures; run it with --pcap hosts (or all, or names)")
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> Port:
    found = Port()
    for frame in frames(path):
        found.add(frame)
    return found


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
