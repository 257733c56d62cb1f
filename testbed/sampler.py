"""Queues over time: chosen ports read every `period_ns`, by a process of its own beside the experiment.

    with Sampler(fabric, interfaces=["leaf1-eth4"], period_ns=10_000) as sampler:
        ...                                         # traffic
    queue = sampler.series()["leaf1-eth4"].of_class(0, "queue_bytes")    # numpy, one number per sample

The process sleeps until each instant and asks the kernel for the chosen ports only, in one system call per network
namespace.  Under the virtual clock that takes no time, and the traffic is the same as without it; samples are taken
at entry and then `PHASE_NS` after every period.  Under the real clock it takes a processor.

High-water marks are forgotten by the kernel at each reading.  What the sampler reads is folded back into
`Fabric.counters()`, at once; a series, the other way round, lacks a mark that somebody else read between two samples.
"""

import ctypes
import mmap
import os
import pickle
import signal
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

import numpy as np

from testbed.fabric import Fabric
from testbed.netlink import NetlinkSocket, Request
from testbed.port.fabric_port import FabricPort
from testbed.port.reading import CLASS_FIELDS, PORT_FIELDS, Column, Columns, decode_columns, question, read_raw
from testbed.workers.syscalls import die_with_parent, set_timer_slack
from topologies.errors import RunFailed, TestbedError, UnknownName, UserError

PORT_DEFAULTS: Final = ("now_ns", "queue_bytes", "peak_bytes", "delivered_bytes", "busy_ns", "shared_bytes")
CLASS_DEFAULTS: Final = (
    *("sent_packets", "sent_bytes", "queue_packets", "queue_bytes", "peak_bytes", "marked"),
    *("dropped_packets_egress", "dropped_packets_shared", "dropped_packets_headroom", "dropped_packets_watchdog"),
    *("pauses_sent", "pauses_received", "paused_ns", "ingress_bytes", "headroom_bytes", "state"),
)
LEAST_PERIOD_NS = 100
"""Below it a sampler would read several times between two packets of 64 B at 400 Gb/s."""
PHASE_NS = 377
"""Software's timers fall due at round distances from each other, with 1 ns of slack at best: one that fell due in the
very nanosecond of a sample would fire that nanosecond early.
"""

_CHUNK = 1024
"""Readings of one port that are kept raw before they are decoded together."""
_PEAK: Final = struct.Struct("=Q")
_PEAK_OFFSET = 32
"""Of `peak_bytes` in struct fabric_xstats."""
TIMER_SLACK_NS = 1
"""The least that Linux knows."""
_TIMER_ABSTIME, _CLOCK_MONOTONIC = 1, 1


@dataclass(frozen=True, kw_only=True)
class Series:
    """One port over time.  Counters count from the making of the fabric; fields as `testbed.port.stats` explains."""

    interface: str
    start_ns: int
    """CLOCK_MONOTONIC at the sampler's entry; `now_ns` of a sample is on the same clock."""
    port: Mapping[str, Column]
    """Of the whole port: field -> one number per sample."""
    classes: Mapping[int, Mapping[str, Column]]
    """Of each class that was ever used."""

    @property
    def time_ns(self) -> Column:
        """Of each sample, since the sampler's entry."""
        return self["now_ns"] - self.start_ns

    def __getitem__(self, name: str) -> Column:
        """A field of the whole port.  Raises UnknownName."""
        if name not in self.port:
            raise UnknownName("sampled field of a port", name, self.port)
        return self.port[name]

    def of_class(self, index: int, name: str) -> Column:
        """A field of one class; zeros where the class was never used.  Raises UnknownName."""
        if index not in self.classes:
            return np.zeros_like(self["now_ns"])
        if name not in self.classes[index]:
            raise UnknownName("sampled field of a class", name, self.classes[index])
        return self.classes[index][name]

    def total(self, name: str) -> Column:
        """A field of the classes, summed over them."""
        columns = [self.of_class(index, name) for index in self.classes] or [self.of_class(0, name)]
        return np.asarray(np.sum(columns, axis=0), dtype=np.int64)


class Sampler:
    """A context manager around the traffic to be watched; `series` afterwards."""

    def __init__(
        self,
        fabric: Fabric,
        *,
        interfaces: Sequence[str],
        period_ns: int,
        port_fields: Sequence[str] = PORT_DEFAULTS,
        class_fields: Sequence[str] = CLASS_DEFAULTS,
    ) -> None:
        """The first sample is at entry.  Raises UnknownName for an interface or a field, UserError for a period or a
        fabric whose ports keep no such statistics.
        """
        if not isinstance(fabric.port, FabricPort):
            raise UserError(f"ports of kind {fabric.port.name} cannot be sampled; leave port.kind out")
        if period_ns < LEAST_PERIOD_NS:
            raise UserError(f"a sampling period of {period_ns} ns is too short; {LEAST_PERIOD_NS} is the least")
        for kind, names, known in (
            ("interface", interfaces, fabric.plan.placed),
            ("field of a port", port_fields, PORT_FIELDS),
            ("field of a class", class_fields, CLASS_FIELDS),
        ):
            for name in names:
                if name not in known:
                    raise UnknownName(kind, name, known)
        self._fabric, self._peaks, self._period_ns = fabric, fabric.port.peaks, period_ns
        self._fields = (tuple(dict.fromkeys(("now_ns", *port_fields))), tuple(class_fields))
        self._interfaces = sorted(set(interfaces), key=lambda name: (fabric.plan.placed[name].host or "", name))
        self._stack = ExitStack()
        self._start_ns = 0
        self._found: dict[str, Columns] | None = None

    def __enter__(self) -> "Sampler":
        """Takes the first sample before it returns.  Raises KernelRefused."""
        with ExitStack() as stack:
            routes = stack.enter_context(self._fabric.port_sockets(self._interfaces))
            self._board = _Board(len(self._interfaces))
            stack.callback(self._board.close)
            stack.enter_context(self._peaks.shared_with(self._highest))
            self._start_ns = time.monotonic_ns()
            reader = _Reader(
                asks=self._asks(routes), board=self._board, period_ns=self._period_ns, start_ns=self._start_ns
            )
            self._child, self._answer = _fork(reader, self._fields)
            stack.callback(self._collect)
            if os.read(self._answer, 1) != b"+":
                raise RunFailed("the sampler ended before its first sample; log.txt says why")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it.  Raises RunFailed when it failed meanwhile, with what it said."""
        self._stack.close()

    def series(self) -> dict[str, Series]:
        """Interface -> what was sampled there, once the context has been left.  Raises RunFailed before."""
        if self._found is None:
            raise RunFailed("a sampler tells its series after its context, not within")
        return {
            name: Series(interface=name, start_ns=self._start_ns, port=found.port, classes=found.classes)
            for name, found in self._found.items()
        }

    def _asks(self, routes: Mapping[str | None, NetlinkSocket]) -> list[tuple[NetlinkSocket, list[Request]]]:
        """In the order of `_interfaces`, which has the ports of one namespace beside each other."""
        placed = self._fabric.plan.placed
        found: dict[str | None, list[Request]] = {}
        for name in self._interfaces:
            found.setdefault(placed[name].host, []).append(question(placed[name].index, name))
        return [(routes[host], asks) for host, asks in found.items()]

    def _highest(self) -> Mapping[str, int]:
        return dict(zip(self._interfaces, self._board.peaks(), strict=True))

    def _collect(self) -> None:
        """Stops the process, takes what it sampled and buries it.

        The signal ends its sleep at once; should it come just before the sleep begins, it ends with the period.
        """
        self._board.stop()
        os.kill(self._child, signal.SIGTERM)
        with os.fdopen(self._answer, "rb") as stream:
            data = stream.read()
        os.waitpid(self._child, 0)
        found = pickle.loads(data) if data else RunFailed("the sampler was killed")
        if isinstance(found, TestbedError):
            raise found
        self._found = dict(zip(self._interfaces, found, strict=True))


class _Board:
    """Memory that both processes see: whether to stop, and the highest queue of each port so far."""

    def __init__(self, ports: int) -> None:
        self._memory = mmap.mmap(-1, _PEAK.size * (ports + 1))
        self._ports = ports

    def close(self) -> None:
        self._memory.close()

    def stop(self) -> None:
        self._memory[0] = 1

    def stopped(self) -> bool:
        return bool(self._memory[0])

    def peaks(self) -> list[int]:
        return [_PEAK.unpack_from(self._memory, _PEAK.size * (1 + port))[0] for port in range(self._ports)]

    def note(self, port: int, peak_bytes: int) -> None:
        _PEAK.pack_into(self._memory, _PEAK.size * (1 + port), peak_bytes)


@dataclass(kw_only=True)
class _Reader:
    """The process's work."""

    asks: Sequence[tuple[NetlinkSocket, Sequence[Request]]]
    board: _Board
    period_ns: int
    start_ns: int
    raw: list[list[bytes]] = field(default_factory=list)
    done: list[list[Columns]] = field(default_factory=list)

    def work(self, ready: int, fields: tuple[Sequence[str], Sequence[str]]) -> list[Columns]:
        """Samples until told to stop; everything it has seen, a port each."""
        ports = sum(len(asks) for _, asks in self.asks)
        self.raw, self.done = [[] for _ in range(ports)], [[] for _ in range(ports)]
        highest, sample, when_ns = [0] * ports, 0, self.start_ns
        while not self.board.stopped():
            self._read(highest)
            if not sample:
                os.write(ready, b"+")
            sample += 1
            if sample % _CHUNK == 0:
                self._decode(fields)
            # An instant that passed meanwhile (the real clock only) is left out: no burst of late samples.
            late = max(0, time.monotonic_ns() - when_ns) // self.period_ns
            when_ns += self.period_ns * (1 + late)
            _sleep_until(when_ns + PHASE_NS - TIMER_SLACK_NS)
        self._decode(fields)
        return [_appended(parts) for parts in self.done]

    def _read(self, highest: list[int]) -> None:
        port = 0
        for socket, asks in self.asks:
            for reading in read_raw(socket, asks):
                self.raw[port].append(reading)
                peak = _PEAK.unpack_from(reading, _PEAK_OFFSET)[0]
                if peak > highest[port]:
                    highest[port] = peak
                    self.board.note(port, peak)
                port += 1

    def _decode(self, fields: tuple[Sequence[str], Sequence[str]]) -> None:
        for raw, done in zip(self.raw, self.done, strict=True):
            if raw:
                done.append(decode_columns(raw, *fields))
                raw.clear()


def _fork(reader: _Reader, fields: tuple[Sequence[str], Sequence[str]]) -> tuple[int, int]:
    """The process's number, and the descriptor on which it says "+" after its first sample and all at its end."""
    answer, write = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(write)
        return child, answer
    try:
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL, parent_pid=parent)
        os.close(answer)
        set_timer_slack(TIMER_SLACK_NS)
        try:
            found: object = reader.work(write, fields)
        except TestbedError as error:
            found = error
        with os.fdopen(write, "wb") as stream:
            pickle.dump(found, stream)
    finally:
        os._exit(0)


def _appended(parts: Sequence[Columns]) -> Columns:
    """One after the other; zeros where a class was not in use yet."""
    lengths = [len(part.port["now_ns"]) for part in parts]
    names = {index: tuple(fields) for part in parts for index, fields in part.classes.items()}
    return Columns(
        port={name: np.concatenate([part.port[name] for part in parts]) for name in parts[0].port},
        classes={
            index: {
                name: np.concatenate(
                    [
                        part.classes[index][name] if index in part.classes else np.zeros(length, dtype=np.int64)
                        for part, length in zip(parts, lengths, strict=True)
                    ]
                )
                for name in names[index]
            }
            for index in sorted(names)
        },
    )


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_LIBC = ctypes.CDLL(None, use_errno=True)


def _sleep_until(when_ns: int) -> None:
    """Absolute and to the nanosecond, which Python's own sleep is not; a signal ends it early."""
    until = _Timespec(*divmod(when_ns, 10**9))
    _LIBC.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(until), None)
