"""One capture for a whole run: `pcap/run.pcapng`, all interfaces by name, packets in order of time, with comments.

    pcap/h1-eth0.pcapng --+
    pcap/h2-eth0.pcapng --+--> run.pcapng  <-- operations and events of the run
    pcap/s1-eth1.pcapng --+

Each packet is read once and written once; what is in memory is a packet and a buffer per interface.  A packet that
was seen at several interfaces is there several times: Wireshark's judgement of retransmissions is for the files of
single interfaces, which stay beside it unless `files=run` was asked for.
"""

import heapq
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow.parquet as pq

from experiments import pcap_comments
from experiments.pcap import Files
from experiments.pcap_comments import Narrator
from experiments.pcap_reading import INTERFACE, PACKET, STATISTICS, addresses, blocks, interface, stamp_ns
from experiments.results import read_results
from experiments.run_folder import RunFolder, read_json
from experiments.series.recording import ABOUT
from testbed.pcapng import InterfaceBlock, comments, file_head, moved_packet, moved_statistics
from topologies.json_form import from_json

RUN_FILE: Final = "run.pcapng"
BUFFERS_BYTES: Final = 64 << 20
"""For reading, over all files."""
MOST_BUFFER_BYTES, LEAST_BUFFER_BYTES = 1 << 18, 1 << 12


def write_run_capture(run: RunFolder, files: Files) -> None:
    """Makes run.pcapng of a run that has ended and its series are written; without captures there is nothing to do."""
    if files == "each" or not (paths := interface_files(run)):
        return
    merge(paths, run.pcap / RUN_FILE, narrator(run))
    if files == "run":
        for path in paths:
            path.unlink()


def interface_files(run: RunFolder) -> list[Path]:
    """The captures of single interfaces, in the topology's order."""
    if not run.pcap.is_dir():
        return []
    topology = from_json(read_json(run.topology))
    found = (run.pcap / f"{end.name}.pcapng" for end in topology.interfaces())
    return [path for path in found if path.exists()]


def narrator(run: RunFolder) -> Narrator:
    """What is to be said of this run's packets."""
    about = read_json(run.series / ABOUT)
    zero_ns, began_ns = int(about["wall_start_ns"]), about["events_start_ns"]
    spans = pq.read_table(run.series / "ranks.parquet").to_pylist()
    happened = []
    if began_ns is not None:
        happened = pcap_comments.events(read_results(run.results).sections, zero_ns=zero_ns + int(began_ns))
    topology = from_json(read_json(run.topology))
    return Narrator(topology, pcap_comments.phases(spans, zero_ns=zero_ns), happened)


def merge(paths: Sequence[Path], target: Path, told: Narrator) -> None:
    """Raises UserError where a file is not one of ours.  The file appears whole or not at all."""
    partial = target.with_suffix(".partial")
    with ExitStack() as stack:
        _allow_files(len(paths))
        sources = [_Source(path, number, len(paths), stack) for number, path in enumerate(paths)]
        output = stack.enter_context(partial.open("wb", buffering=MOST_BUFFER_BYTES))
        output.write(file_head(*(source.interface for source in sources)))
        _write_packets(sources, output, told)
        for source in sources:
            for body in source.statistics:
                output.write(moved_statistics(body, interface=source.number))
    partial.replace(target)


class _Source:
    """One interface's file."""

    def __init__(self, path: Path, number: int, of: int, stack: ExitStack) -> None:
        buffer_bytes = max(LEAST_BUFFER_BYTES, min(MOST_BUFFER_BYTES, BUFFERS_BYTES // of))
        self.number = number
        self.statistics: list[bytes] = []
        self._blocks = blocks(path, stack.enter_context(path.open("rb", buffering=buffer_bytes)))
        self.interface = self._head()

    def _head(self) -> InterfaceBlock:
        return next(interface(body) for kind, body in self._blocks if kind == INTERFACE)

    def packets(self) -> Iterator[tuple[int, int, bytes]]:
        """Stamp, number of the interface, body."""
        for kind, body in self._blocks:
            if kind == PACKET:
                yield stamp_ns(body), self.number, body
            elif kind == STATISTICS:
                self.statistics.append(body)


def _write_packets(sources: Sequence[_Source], output: BinaryIO, told: Narrator) -> None:
    """One packet behind, because the last one takes what happened after it."""
    before: tuple[int, bytes, list[str]] | None = None
    known: dict[tuple[str, ...], bytes] = {}
    for at_ns, number, body in heapq.merge(*(source.packets() for source in sources)):
        if before is not None:
            _write(output, *before, known)
        before = number, body, told.of(at_ns, addresses(body))
    if before is not None:
        number, body, texts = before
        _write(output, number, body, [*texts, *told.rest()], known)


def _write(output: BinaryIO, number: int, body: bytes, texts: list[str], known: dict[tuple[str, ...], bytes]) -> None:
    """`known` spares the making of options that the packets before had as well; it holds one entry per phase."""
    key = tuple(texts)
    if key not in known:
        known[key] = comments(texts)
    output.write(moved_packet(body, interface=number, more_options=known[key]))


def _allow_files(count: int) -> None:
    """As many open files as there are interfaces, and some for the rest of us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
