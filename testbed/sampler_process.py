"""The sampler's own process: reads ports at their instants until told to rest, and hands over what it saw.

board    memory that both processes see: what to do, and the highest queue of each port so far
reader   the work itself; instants are absolute, PHASE_NS after every period
"""

import ctypes
import mmap
import os
import pickle
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from testbed.netlink import NetlinkSocket, Request
from testbed.port.marks import Marks
from testbed.port.reading import Column, Columns, decode_columns, read_raw
from testbed.socket_readings import SocketColumns, SocketReader
from testbed.workers.syscalls import die_with_parent, set_timer_slack
from topologies.errors import TestbedError

PHASE_NS = 377
"""Software's timers fall due at round distances from each other, with 1 ns of slack at best: one that fell due in the
very nanosecond of a sample would fire that nanosecond early.
"""
TIMER_SLACK_NS = 1
"""The least that Linux knows."""

_CHUNK = 1024
"""Readings of one port that are kept raw before they are decoded together."""
_PEAK: Final = struct.Struct("=Q")
_PEAK_OFFSET = 32
"""Of `peak_bytes` in struct fabric_xstats."""
_TIMER_ABSTIME, _CLOCK_MONOTONIC = 1, 1


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that a reader saw."""

    ports: list[Columns]
    sockets: SocketColumns | None


class Board:
    """Memory that both processes see: whether to stop, and the highest queue of each port, so far and of late."""

    def __init__(self, ports: int) -> None:
        self._memory = mmap.mmap(-1, _PEAK.size * (2 * ports + 1))
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

    def see(self, peaks: NDArray[np.int64]) -> None:
        """A sample of all ports."""
        recent = self._recent()
        np.maximum(recent, peaks, out=recent)

    def recent(self) -> list[int]:
        """The highest queue of each port since this was last asked."""
        recent = self._recent()
        found: list[int] = recent.tolist()
        recent[:] = 0
        return found

    def _recent(self) -> NDArray[np.int64]:
        # made anew each time: memory that is looked into cannot be closed
        return np.frombuffer(self._memory, dtype=np.int64, count=self._ports, offset=_PEAK.size * (1 + self._ports))


@dataclass(kw_only=True)
class Reader:
    """The process's work."""

    asks: Sequence[tuple[NetlinkSocket, Sequence[Request]]]
    board: Board
    marks: Marks
    slot: int
    places: NDArray[np.int64]
    """Of the ports in `marks`, in the order of `asks`."""
    period_ns: int
    start_ns: int
    fields: tuple[Sequence[str], Sequence[str]]
    most_samples: int | None = None
    """Odd.  So many are kept: then every other one goes, and the period doubles.  None: the period stays."""
    sockets: SocketReader | None = None
    sockets_every: int = 1
    """Port samples per reading of the sockets."""
    last: bool = False
    """One more sample when the context is left."""
    raw: list[list[bytes]] = field(default_factory=list)
    done: list[list[Columns]] = field(default_factory=list)

    def work(self, ready: int, finish: int) -> Findings:
        """Samples until told to rest; everything it has seen once `finish` has a byte."""
        self.raw, self.done = [[] for _ in self.places], [[] for _ in self.places]
        highest, sample, when_ns = np.zeros(len(self.places), dtype=np.int64), 0, self.start_ns
        while not self.board.stopped():
            self._read(highest)
            if self.sockets is not None and sample % self.sockets_every == 0:
                self.sockets.read()
            if not sample:
                os.write(ready, b"+")
            sample += 1
            if sample == self.most_samples:
                sample = self._thin()
            elif sample % _CHUNK == 0:
                self._decode()
            # An instant that passed meanwhile (the real clock only) is left out: no burst of late samples.
            late = max(0, time.monotonic_ns() - when_ns) // self.period_ns
            when_ns += self.period_ns * (1 + late)
            sleep_until(when_ns + PHASE_NS)
        if self.last:
            os.read(finish, 1)
            self._read(highest)
            if self.sockets is not None:
                self.sockets.read()
        self._decode()
        return Findings(
            ports=[_appended(parts) for parts in self.done],
            sockets=self.sockets.columns() if self.sockets is not None else None,
        )

    def _read(self, highest: NDArray[np.int64]) -> None:
        readings = [reading for socket, asks in self.asks for reading in read_raw(socket, asks)]
        found = [_PEAK.unpack_from(reading, _PEAK_OFFSET)[0] for reading in readings]
        peaks = np.array(found, dtype=np.int64)
        missed = self.marks.exchange(self.slot, self.places, peaks)
        for port in np.flatnonzero(missed > peaks):
            old = readings[port]
            readings[port] = old[:_PEAK_OFFSET] + _PEAK.pack(missed[port]) + old[_PEAK_OFFSET + _PEAK.size :]
        for raw, reading in zip(self.raw, readings, strict=True):
            raw.append(reading)
        self.board.see(peaks)
        for port in np.flatnonzero(peaks > highest):
            self.board.note(int(port), found[port])
        np.maximum(highest, peaks, out=highest)

    def _decode(self) -> None:
        for raw, done in zip(self.raw, self.done, strict=True):
            if raw:
                done.append(decode_columns(raw, *self.fields))
                raw.clear()

    def _thin(self) -> int:
        """Keeps every other sample, the first and this one among them; how many are left."""
        self._decode()
        self.done = [[thinned(_appended(parts))] for parts in self.done]
        self.period_ns *= 2
        if self.sockets is not None:
            self.sockets.thin()
        return len(self.done[0][0].port["now_ns"])


def thinned(columns: Columns) -> Columns:
    """Samples 0, 2, 4 ... of an odd number; a high-water mark takes that of the sample left out before it along."""
    return Columns(
        port={name: _thinned(name, column) for name, column in columns.port.items()},
        classes={
            index: {name: _thinned(name, column) for name, column in found.items()}
            for index, found in columns.classes.items()
        },
    )


def _thinned(name: str, column: Column) -> Column:
    kept = column[::2].copy()
    if "peak" in name:
        kept[1:] = np.maximum(kept[1:], column[1::2])
    return kept


def fork(reader: Reader) -> tuple[int, int, int]:
    """The process, the pipe on which it answers, and the one on which a byte makes it finish."""
    answer, write = os.pipe()
    finish, ours = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(write)
        os.close(finish)
        return child, answer, ours
    try:
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL, parent_pid=parent)
        os.close(answer)
        os.close(ours)
        set_timer_slack(TIMER_SLACK_NS)
        try:
            found: object = reader.work(write, finish)
        except TestbedError as error:
            found = error
        with os.fdopen(write, "wb") as stream:
            pickle.dump(found, stream, protocol=pickle.HIGHEST_PROTOCOL)
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


def sleep_until(when_ns: int) -> None:
    """Absolute and to the nanosecond, which Python's own sleep is not; a signal ends it early."""
    until = _Timespec(*divmod(when_ns, 10**9))
    _LIBC.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(until), None)
