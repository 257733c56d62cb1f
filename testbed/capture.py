"""Packets into files that Wireshark opens: one pcapng per interface, and not one packet missing.

    with Capture(interfaces=fabric.taps(["h1-eth0", "s1-eth2"]), directory=folder / "pcap") as capture:
        ...
    capture.faults()            empty, or why the run cannot be trusted

Where the tap is.  Every cable of a host is tapped at its switch end: what the switch port receives is what the NIC
sent, what the port sends is what the NIC gets.  So no host needs a process or a socket, and a NIC that merges arrivals
(GRO) cannot show packets that were never on a wire.

What a stamp says.  The moment the last bit of the frame passes the interface.  The kernel shows a packet to a tap when
it leaves its port's discipline, which is one propagation delay after its last bit went onto the cable; for a departing
packet the delay is taken off again.

What is kept.  A `Selection` of packets, by the kernel; of these, those stamped within a window, by the writer: it
counts from an instant that `begin` tells, and until then packets of the last second are held.

One process writes all files.  It is forked with the taps open and live, so the capture begins when the context is
entered; on leaving, the taps are shut, and it reads until it has written as many packets as the kernel counted.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from testbed.namespace import Namespace, is_guest
from testbed.packet_filter import EVERYTHING, Selection
from testbed.packet_ring import Packet, PacketRing, RingReader
from testbed.pcapng import Direction, InterfaceBlock, file_head, file_tail, packet
from topologies.errors import RunFailed

SNAP_BYTES = 128
"""All headers and the beginning of the payload."""
MEMORY_BYTES = 256 << 20
"""For all rings together on a machine, where packets arrive while the writer waits for a processor."""
GUEST_MEMORY_BYTES = 16 << 20
"""The same in the guest, where every page of a ring can cost one of the host's 65,530 mappings per process; under the
virtual clock no time passes, and so nothing arrives, while the writer has anything to read."""
MOST_RING_BYTES, LEAST_RING_BYTES = 64 << 20, 128 << 10
_PR_SET_PDEATHSIG = 1
_STOP, _BEGIN = b"stop", b"begin "
HOLD_NS = 10**9
"""How long a packet is kept that may lie in a window whose beginning is not known yet; more than enough for the word to
come, which takes a process switch."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which packets, by the time of their stamps since the capture's `begin`."""

    begin_ns: int = 0
    end_ns: int | None = None
    """Not within; None: to the end of the run."""

    def placed(self, start_ns: int) -> "Window":
        """The same on a clock that shows `start_ns` at time 0."""
        end_ns = None if self.end_ns is None else start_ns + self.end_ns
        return Window(begin_ns=start_ns + self.begin_ns, end_ns=end_ns)

    def holds(self, at_ns: int) -> bool:
        """Whether the instant is within."""
        return at_ns >= self.begin_ns and not self.over(at_ns)

    def over(self, at_ns: int) -> bool:
        """Whether the instant is behind it."""
        return self.end_ns is not None and at_ns >= self.end_ns


ALWAYS = Window(begin_ns=-(1 << 63))
"""Of stamps: leaves nothing out."""


@dataclass(frozen=True, kw_only=True)
class Tap:
    """An interface to capture and the device at which its packets are seen."""

    interface: str
    description: str
    rate_bps: int
    device: str
    namespace: Namespace | None
    """Where the device is; None: where the calling thread is."""
    delay_ns: int
    """Propagation delay of what the interface sends."""

    @property
    def mirrored(self) -> bool:
        """Whether the device is the other end of the interface's cable."""
        return self.device != self.interface


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What became of one interface's packets."""

    packets: int
    """In the file."""
    dropped: int
    """Lost by the kernel for want of memory."""


@dataclass(kw_only=True)
class _File:
    """An open file and the packets that may still be overtaken by an earlier stamp."""

    tap: Tap
    ring: PacketRing
    stream: BinaryIO
    reader: RingReader | None = None
    """Made by the process that writes."""
    pending: list[tuple[int, int, bytes]] = field(default_factory=list)
    window: Window | None = ALWAYS
    """Of stamps; None: not known yet."""
    packets: int = 0
    """Taken from the kernel."""
    written: int = 0
    seen: int = 0
    dropped: int = 0
    last_ns: int = 0

    def read(self) -> None:
        """Takes what the kernel has ready; writes what can no longer be overtaken."""
        for arrived in self.reader.read() if self.reader is not None else ():
            self._add(arrived)
        if self.window is None:
            self.pending = [held for held in self.pending if held[0] > self.last_ns - HOLD_NS]
            return
        self._write(self.last_ns - self.tap.delay_ns)
        if self.window.over(self.last_ns - self.tap.delay_ns):
            self.ring.stop()

    def place(self, window: Window) -> None:
        """Its window is known now."""
        self.window = window
        self.pending = [held for held in self.pending if window.holds(held[0])]

    def _add(self, arrived: Packet) -> None:
        self.last_ns, leaving, length, data = arrived
        outbound = leaving != self.tap.mirrored
        stamp = self.last_ns - self.tap.delay_ns if outbound else self.last_ns
        direction = Direction.OUTBOUND if outbound else Direction.INBOUND
        if self.window is None or self.window.holds(stamp):
            self.pending.append((stamp, self.packets, packet(stamp, data, length, direction)))
        self.packets += 1

    def _write(self, until_ns: int) -> None:
        self.pending.sort()
        end = len(self.pending)
        while end and self.pending[end - 1][0] > until_ns:
            end -= 1
        self.stream.write(b"".join(block for _, _, block in self.pending[:end]))
        self.written += end
        del self.pending[:end]

    def shut(self) -> None:
        """Takes no more from the wire, and asks the kernel how many it saw."""
        self.ring.stop()
        statistics = self.ring.statistics()
        self.seen += statistics.seen
        self.dropped += statistics.dropped

    @property
    def complete(self) -> bool:
        """Whether every packet that the kernel saw is accounted for; of use once the tap is shut."""
        return self.packets + self.dropped >= self.seen

    def finish(self) -> Captured:
        """Writes the rest and closes the file."""
        if self.window is not None:
            self._write(self.last_ns)
        self.stream.write(file_tail(stamp_ns=self.last_ns, received=self.seen, dropped=self.dropped))
        self.stream.close()
        self.ring.close()
        return Captured(packets=self.written, dropped=self.dropped)


class Capture:
    """A running capture; a context manager."""

    def __init__(
        self,
        *,
        interfaces: Iterable[Tap],
        directory: Path,
        snap_bytes: int = SNAP_BYTES,
        selection: Selection = EVERYTHING,
        window: Window | None = None,
    ) -> None:
        """Nothing is open yet; `directory` is made if needed.  No interfaces: no process, no directory."""
        self._taps = tuple(interfaces)
        self._directory, self._snap_bytes = directory, snap_bytes
        self._selection, self._window = selection, window
        self._start_ns: int | None = None
        self._end_ns = 0
        self._captured: dict[str, Captured] = {}
        self._pid = 0

    def __enter__(self) -> "Capture":
        """Live when this returns.  Raises RunFailed when an interface cannot be tapped."""
        if not self._taps:
            return self
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            files = [self._open(tap, undo) for tap in self._taps]
            command_read, self._command = os.pipe()
            self._answer, answer_write = os.pipe()
            sys.stdout.flush()
            self._pid = os.fork()
            if self._pid == 0:
                os.close(self._command)
                os.close(self._answer)
                _writer_process(files, self._window, command_read, answer_write)
            os.close(command_read)
            os.close(answer_write)
        return self

    def begin(self, start_ns: int) -> None:
        """Time 0 of the window, on the monotonic clock; of use once.  The writer may be dead: leaving tells."""
        if self._pid and self._window is not None and self._start_ns is None:
            self._start_ns = start_ns
            with suppress(BrokenPipeError):
                os.write(self._command, _BEGIN + str(time.time_ns() - time.monotonic_ns() + start_ns).encode())

    def __exit__(self, *_: object) -> None:
        """Shuts the taps and waits until every packet is in its file.  Raises RunFailed when the writer died."""
        if not self._pid:
            return
        pid, self._pid = self._pid, 0
        self._end_ns = time.monotonic_ns()
        try:
            os.write(self._command, _STOP)
        except BrokenPipeError:
            os.close(self._command)
        else:
            os.close(self._command)
        with os.fdopen(self._answer, "rb") as answer:
            said = answer.read()
        _pid, status = os.waitpid(pid, 0)
        if status != 0 or not said:
            raise RunFailed(f"the capture's writer ended with status {status}: {said.decode(errors='replace')}")
        self._captured = {name: Captured(**numbers) for name, numbers in json.loads(said).items()}

    @property
    def captured(self) -> Mapping[str, Captured]:
        """Interface -> packets written and lost, once the context was left."""
        return self._captured

    @property
    def whole(self) -> Mapping[str, Captured]:
        """`captured` where nothing was asked to be left out, else nothing."""
        return self._captured if self._window is None and self._selection == EVERYTHING else {}

    def faults(self) -> list[str]:
        """A sentence for each interface whose file is not complete, and one for a window that never came."""
        lost = [
            f"capture at {name}: the kernel dropped {captured.dropped} packets; capture fewer interfaces"
            for name, captured in self._captured.items()
            if captured.dropped
        ]
        return [*lost, *self._missed_window()]

    def _missed_window(self) -> list[str]:
        if self._window is None or not self._taps:
            return []
        if self._start_ns is None:
            return ["the captures' window never began: no rank began an operation"]
        ran_ns = self._end_ns - self._start_ns
        if ran_ns >= self._window.begin_ns:
            return []
        return [f"the captures' window begins at {self._window.begin_ns / 1e6:g} ms; the run ended at {ran_ns / 1e6:g}"]

    def _open(self, tap: Tap, undo: ExitStack) -> _File:
        memory = GUEST_MEMORY_BYTES if is_guest() else MEMORY_BYTES
        ring_bytes = max(LEAST_RING_BYTES, min(MOST_RING_BYTES, memory // len(self._taps)))
        try:
            with tap.namespace.entered() if tap.namespace is not None else nullcontext():
                ring = PacketRing(
                    tap.device, ring_bytes=ring_bytes, snap_bytes=self._snap_bytes, selection=self._selection
                )
        except OSError as error:
            raise RunFailed(f"cannot capture at {tap.interface} (through {tap.device}): {error.strerror}") from error
        undo.callback(ring.close)
        stream = (self._directory / f"{tap.interface}.pcapng").open("wb", buffering=1 << 18)
        undo.callback(stream.close)
        block = InterfaceBlock(
            name=tap.interface, description=tap.description, speed_bps=tap.rate_bps, snap_bytes=self._snap_bytes
        )
        stream.write(file_head(block))
        stream.flush()
        return _File(tap=tap, ring=ring, stream=stream, window=ALWAYS if self._window is None else None)


def _writer_process(files: list[_File], window: Window | None, command: int, answer: int) -> None:
    """The child: never returns."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run; it stops the capture in its own time
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        captured = _write_until_told(files, window, command)
        numbers = {name: {"packets": it.packets, "dropped": it.dropped} for name, it in captured.items()}
        os.write(answer, json.dumps(numbers).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here; whatever it was, the parent is told and fails the run
        os.write(answer, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _write_until_told(files: list[_File], window: Window | None, command: int) -> dict[str, Captured]:
    poll = select.epoll()
    by_descriptor = {file.ring.fileno(): file for file in files}
    for descriptor in (*by_descriptor, command):
        poll.register(descriptor, select.EPOLLIN)
    for file in files:
        file.reader = RingReader(file.ring)
    told = b""
    while not told.endswith(_STOP):
        ready = [descriptor for descriptor, _events in poll.poll()]
        if command in ready:
            ready.remove(command)
            told = os.read(command, 4096) or _STOP
            _place(files, window, told)
        for descriptor in ready:
            by_descriptor[descriptor].read()
    poll.unregister(command)
    _drain(files, poll)
    return {file.tap.interface: file.finish() for file in files}


def _drain(files: list[_File], poll: select.epoll) -> None:
    """Shuts the taps, and reads until every packet that the kernel saw is accounted for."""
    for file in files:
        file.shut()
    while incomplete := [file for file in files if not file.complete]:
        for file in incomplete:
            file.read()
            if file.complete:
                poll.unregister(file.ring.fileno())
        if any(not file.complete for file in incomplete):
            poll.poll()


def _place(files: list[_File], window: Window | None, told: bytes) -> None:
    """When it was told where the window begins."""
    if window is not None and told.startswith(_BEGIN):
        for file in files:
            file.place(window.placed(int(told.removeprefix(_BEGIN).removesuffix(_STOP))))
