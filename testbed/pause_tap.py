"""Every pause frame of a fabric with the moment at which it acts: one socket that lets nothing else pass.

    with PauseTap(fabric.topology) as tap:
        ...
        tap.read()          pauses so far, in order of time

The kernel shows a frame to a tap when it leaves its port's discipline, one propagation delay after its last bit: the
moment it reaches the far end and acts there.  What switch ports send is seen as it leaves; what hosts send, as it comes
in at their switch.  Live from entry; a frame lost for want of memory is an error, not a gap.
"""

import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from testbed.port.pfc_frame import ETH_P_PAUSE, parse_pfc
from topologies.errors import RunFailed
from topologies.model import Topology

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 33, 35
_OUTGOING = 4
_ROOM_BYTES = 64 << 20
"""A short frame takes about 1 kB of it: sixty thousand pauses between two readings."""
_KEPT_BYTES = 64
_STAMP = struct.Struct("@qq")
# ldh [12]; jeq 0x8808, 0, 1; ret 64; ret 0
_FILTER = struct.pack(
    "=HBBIHBBIHBBIHBBI", 0x28, 0, 0, 12, 0x15, 0, 1, ETH_P_PAUSE, 0x06, 0, 0, _KEPT_BYTES, 0x06, 0, 0, 0
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """What one frame says about one class."""

    at_ns: int
    """CLOCK_MONOTONIC: when it reaches the far end."""
    port: str
    """The interface that sent it."""
    index: int
    """The class."""
    quanta: int
    """0 lets it go on."""


class PauseTap:
    """A context manager; the calling thread must be in the network namespace of the switches."""

    def __init__(self, topology: Topology) -> None:
        """Nothing happens before entry."""
        self._topology = topology
        self._switch_ports = {end.name for end in topology.interfaces() if end.node in topology.switch_named}
        self._socket: socket.socket

    def __enter__(self) -> "PauseTap":
        """Opens the socket.  Raises OSError (not root)."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_PACKET, kind, socket.htons(_ETH_P_ALL))
        instructions = ctypes.create_string_buffer(_FILTER, len(_FILTER))
        program = struct.pack("@HP", len(_FILTER) // 8, ctypes.addressof(instructions))
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM_BYTES)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def read(self) -> list[Pause]:
        """What came since the last reading, in order of time.  Raises RunFailed when frames were lost."""
        found = sorted(self._receive(), key=lambda pause: pause.at_ns)
        _seen, lost = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        if lost:
            raise RunFailed(f"{lost} pause frames were lost before they could be read; read more often")
        return found

    def _receive(self) -> Iterator[Pause]:
        while True:
            try:
                frame, ancillary, _flags, address = self._socket.recvmsg(_KEPT_BYTES, socket.CMSG_SPACE(_STAMP.size))
            except BlockingIOError:
                return
            interface, _protocol, kind, *_ = address
            sender = self._sender(interface, leaving=kind == _OUTGOING)
            if sender is None:
                continue
            seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
            at_ns = seconds * 10**9 + nanoseconds - self._epoch_ns
            for index, quanta in parse_pfc(frame).items():
                yield Pause(at_ns=at_ns, port=sender, index=index, quanta=quanta)

    def _sender(self, interface: str, *, leaving: bool) -> str | None:
        """None for a second sight of a frame between switches, and for devices that are not ours."""
        if interface not in self._switch_ports:
            return None
        if leaving:
            return interface
        peer = self._topology.peer_of[interface]
        return peer.name if peer.node in self._topology.host_named else None
