"""pcapng blocks as bytes: what a capture file is made of (draft-ietf-opsawg-pcapng).

Nothing in a file depends on the machine or the moment, except the stamps, so that equal runs give equal files.
"""

import struct
from collections.abc import Iterable
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
_COMMENT = 1
_END = bytes(4)
"""opt_endofopt."""


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


def file_head(*interfaces: InterfaceBlock) -> bytes:
    """The section and its interfaces, which packets name by their place."""
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _option(4, APPLICATION.encode()) + _END
    return _block(_SECTION, section) + b"".join(map(_interface_block, interfaces))


def _interface_block(interface: InterfaceBlock) -> bytes:
    options = (
        _option(2, interface.name.encode())
        + _option(3, interface.description.encode())
        + _option(8, struct.pack("<Q", interface.speed_bps))
        + _option(9, bytes([NANOSECONDS]))
        + _END
    )
    return _block(_INTERFACE, struct.pack("<HHI", ETHERNET, 0, interface.snap_bytes) + options)


def comments(texts: Iterable[str]) -> bytes:
    """An option of a packet for each (opt_comment)."""
    return b"".join(_option(_COMMENT, text.encode()) for text in texts)


def moved_packet(body: bytes, *, interface: int, more_options: bytes) -> bytes:
    """A packet of a file with one interface as a packet of a file with several.

    `body` is what `packet` made, without the lengths and the kind around it; `more_options` are `comments`.
    """
    return _block(_PACKET, interface.to_bytes(4, "little") + body[4 : -len(_END)] + more_options + _END)


def moved_statistics(body: bytes, *, interface: int) -> bytes:
    """The same for what `file_tail` made."""
    return _block(_STATISTICS, interface.to_bytes(4, "little") + body[4:])


def packet(stamp_ns: int, data: bytes, length: int, direction: Direction) -> bytes:
    """One packet of `length` bytes of which `data` was kept."""
    kept = len(data)
    total = 28 + kept + (-kept % 4) + _TAIL_BYTES
    head = _PACKET_HEAD.pack(_PACKET, total, 0, stamp_ns >> 32, stamp_ns & 0xFFFFFFFF, kept, length)
    return head + data + _PADDING[kept % 4] + _PACKET_TAIL.pack(2, 4, direction, 0, total)


def file_tail(*, stamp_ns: int, received: int, dropped: int) -> bytes:
    """How many packets the interface saw, and how many of them the kernel did not hand over."""
    options = _option(4, struct.pack("<Q", received)) + _option(5, struct.pack("<Q", dropped)) + _END
    return _block(_STATISTICS, struct.pack("<III", 0, stamp_ns >> 32, stamp_ns & 0xFFFFFFFF) + options)
