"""Packets of one interface through memory shared with the kernel (AF_PACKET, TPACKET_V3): no system call per packet.

The kernel fills blocks and wakes the reader when one is full or has waited long enough; see
Documentation/networking/packet_mmap.rst of the kernel for the layout.
"""

import ctypes
import mmap
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.packet_filter import EVERYTHING, Selection, program

BLOCK_BYTES = 1 << 15
RETIRE_MS = 100
"""How long the kernel keeps a block that is not full; a timer per interface, so not shorter than needed."""
_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _TPACKET_V3 = 263, 5, 6, 10, 2
_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 3
_STATUS_AT, _COUNT_AT, _FIRST_AT = 8, 12, 16
_STATUS = struct.Struct("=I")
_BLOCK = struct.Struct("=II")
_PACKET = struct.Struct("=IIIIIIH")
_TYPE_AT = 58
"""sll_pkttype of the sockaddr_ll that follows the 48-byte packet header."""
_OUTGOING = 4
_OWNED_BY_USER = 1

Packet = tuple[int, bool, int, bytes]
"""Stamp in ns of the kernel's real-time clock, whether it was leaving, its length, the bytes kept."""


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


@dataclass(frozen=True, kw_only=True)
class RingStatistics:
    """What the kernel saw since the last time it was asked."""

    seen: int
    """Dropped ones included."""
    dropped: int


class PacketRing:
    """A tap on one interface of the calling thread's network namespace; live from the moment it is made."""

    def __init__(self, device: str, *, ring_bytes: int, snap_bytes: int, selection: Selection = EVERYTHING) -> None:
        """Raises OSError (no such device, not root, no memory)."""
        self._selection = selection
        self.blocks = max(2, ring_bytes // BLOCK_BYTES)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        try:
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
            frame = 2048  # only a unit of account in version 3, where packets lie in a block back to back
            ring = (BLOCK_BYTES, self.blocks, frame, self.blocks * BLOCK_BYTES // frame, RETIRE_MS, 0, 0)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, struct.pack("=7I", *ring))
            self._accept(snap_bytes)
            self._socket.bind((device, _ETH_P_ALL))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Readable when a block is ready."""
        return self._socket.fileno()

    def stop(self) -> None:
        """Accepts nothing more; what was accepted stays readable."""
        self._accept(0)

    def statistics(self) -> RingStatistics:
        """Since the last call."""
        seen, dropped, _freezes = struct.unpack("=III", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12))
        return RingStatistics(seen=seen, dropped=dropped)

    def close(self) -> None:
        """Ends it; the memory goes with the last process that reads it."""
        self._socket.close()

    def _accept(self, count: int) -> None:
        """Keeps so many bytes of every packet of the selection; 0 is none of it."""
        wanted = program(self._selection, keep_bytes=count)
        instructions = (_Instruction * len(wanted))(*(_Instruction(*each) for each in wanted))
        self._socket.setsockopt(
            socket.SOL_SOCKET,
            _SO_ATTACH_FILTER,
            bytes(_Program(len(wanted), ctypes.cast(instructions, ctypes.POINTER(_Instruction)))),
        )


class RingReader:
    """The packets of a ring, read in place.

    To be made in the process that reads: when a process that has such memory mapped forks, a guest kernel of 7.3 loses
    count of its pages ("Bad page map") and dies.
    """

    def __init__(self, ring: PacketRing) -> None:
        """Maps the ring's memory."""
        self._blocks = ring.blocks
        self._memory = mmap.mmap(ring.fileno(), ring.blocks * BLOCK_BYTES)
        self._next = 0

    def read(self) -> Iterator[Packet]:
        """Every packet of every block that is ready, in order."""
        while True:
            start = self._next * BLOCK_BYTES
            if not _STATUS.unpack_from(self._memory, start + _STATUS_AT)[0] & _OWNED_BY_USER:
                return
            yield from self._packets(start)
            _STATUS.pack_into(self._memory, start + _STATUS_AT, 0)
            self._next = (self._next + 1) % self._blocks

    def _packets(self, start: int) -> Iterator[Packet]:
        memory = self._memory
        count, first = _BLOCK.unpack_from(memory, start + _COUNT_AT)
        at = start + first
        for _ in range(count):
            step, seconds, nanoseconds, kept, length, _status, mac = _PACKET.unpack_from(memory, at)
            data = at + mac
            stamp = seconds * 1_000_000_000 + nanoseconds
            yield stamp, memory[at + _TYPE_AT] == _OUTGOING, length, memory[data : data + kept]
            at += step
