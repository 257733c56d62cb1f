"""pcapng blocks as bytes: what a capture file is made of (draft-ietf-opsawg-pcapng).

Nothing in a file depends on the machine or the moment, except the stamps, so that equal runs give equal files.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

NANOSECONDS = 9
"""if_tsresol: stamps count 10**-9 s."""
ETHERNET = 1
APPLICATION = "fabric-testbed"

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_PACKET_HEAD = struct.Struct("<IIIIIII")
_PACKET_TAIL = struct.Struct("<HHIII")
_TAIL_BYTES = _PACKET_TAIL.size
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class Direction(IntEnum):
    """Which way a packet went at the interface (epb_flags)."""

    INBOUND = 1
    OUTBOUND = 2


@dataclass(frozen=True, kw_only=True)
class InterfaceBlock:
    """What the file says of the interface it was taken at."""

    name: str
    description: str
    speed_bps: int
    snap_bytes: int


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + _PADDING[len(value) % 4]


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def file_head(interface: InterfaceBlock) -> bytes:
    """The section and its one interface."""
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _option(4, APPLICATION.encode()) + _option(0, b"")
    options = (
        _option(2, interface.name.encode())
        + _option(3, interface.description.encode())
        + _option(8, struct.pack("<Q", interface.speed_bps))
        + _option(9, bytes([NANOSECONDS]))
        + _option(0, b"")
    )
    return _block(_SECTION, section) + _block(
        _INTERFACE, struct.pack("<HHI", ETHERNET, 0, interface.snap_bytes) + options
    )


def packet(stamp_ns: int, data: bytes, length: int, direction: Direction) -> bytes:
    """One packet of `length` bytes of which `data` was kept."""
    kept = len(data)
    total = 28 + kept + (-kept % 4) + _TAIL_BYTES
    head = _PACKET_HEAD.pack(_PACKET, total, 0, stamp_ns >> 32, stamp_ns & 0xFFFFFFFF, kept, length)
    return head + data + _PADDING[kept % 4] + _PACKET_TAIL.pack(2, 4, direction, 0, total)


def file_tail(*, stamp_ns: int, received: int, dropped: int) -> bytes:
    """How many packets the interface saw, and how many of them the kernel did not hand over."""
    options = _option(4, struct.pack("<Q", received)) + _option(5, struct.pack("<Q", dropped)) + _option(0, b"")
    return _block(_STATISTICS, struct.pack("<III", 0, stamp_ns >> 32, stamp_ns & 0xFFFFFFFF) + options)
