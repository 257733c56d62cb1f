"""Our own captures read back, a packet at a time: pcapng as testbed/pcapng.py writes it, Ethernet, IPv4, TCP, PFC.

Only what the tables need is taken out of a packet.  Files of other makers are refused, not guessed at.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from topologies.errors import UserError

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_BLOCK: Final = struct.Struct("<II")
_ENHANCED: Final = struct.Struct("<IIIII")
_TCP_HEAD: Final = struct.Struct("!HHII")
_IPV4, _MAC_CONTROL, _TCP = 0x0800, 0x8808, 6
_PFC_OPCODE = b"\x01\x01"
CE, ECT = 3, (1, 2, 3)
OUTBOUND = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A TCP segment."""

    source: str
    sport: int
    destination: str
    dport: int
    sequence: int
    payload_bytes: int
    ecn: int
    """The two bits of the IP header."""

    @property
    def flow(self) -> str:
        """`10.0.1.1:5001>10.0.2.5:40000`."""
        return f"{self.source}:{self.sport}>{self.destination}:{self.dport}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """What one block of a file says."""

    time_ns: int
    size_bytes: int
    """On the wire, not what was kept."""
    outbound: bool
    segment: Segment | None
    """None: not TCP over IPv4."""
    pauses: tuple[int, ...]
    """Of a PFC frame: quanta of each class that it enables."""


def frames(path: Path) -> Iterator[Frame]:
    """Every packet in the file's order.  Raises UserError for what is not one of our captures."""
    with path.open("rb") as stream:
        for kind, body in _blocks(path, stream):
            if kind == _PACKET:
                yield _frame(body)


def _blocks(path: Path, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    first = True
    while head := stream.read(_BLOCK.size):
        kind, length = _BLOCK.unpack(head) if len(head) == _BLOCK.size else (0, 0)
        if length < 12 or (first and kind != _SECTION):
            raise UserError(f"{path} is not a capture of ours (pcapng, little-endian)")
        body = stream.read(length - _BLOCK.size)
        if len(body) != length - _BLOCK.size:
            raise UserError(f"{path} ends in the middle of a packet: its run did not end well")
        first = False
        yield kind, body[:-4]


def _frame(body: bytes) -> Frame:
    _interface, high, low, kept, size = _ENHANCED.unpack_from(body)
    data = body[_ENHANCED.size : _ENHANCED.size + kept]
    # the options begin with epb_flags: code 2, length 4
    flags = struct.unpack_from("<I", body, _ENHANCED.size + kept + (-kept % 4) + 4)[0]
    kind = int.from_bytes(data[12:14], "big")
    return Frame(
        time_ns=high << 32 | low,
        size_bytes=size,
        outbound=flags & 3 == OUTBOUND,
        segment=_segment(data) if kind == _IPV4 else None,
        pauses=_pauses(data) if kind == _MAC_CONTROL and data[14:16] == _PFC_OPCODE else (),
    )


def _segment(data: bytes) -> Segment | None:
    header = (data[14] & 15) * 4
    if data[23] != _TCP:
        return None
    total = int.from_bytes(data[16:18], "big")
    at = 14 + header
    sport, dport, sequence, _acknowledged = _TCP_HEAD.unpack_from(data, at)
    return Segment(
        source=".".join(map(str, data[26:30])),
        sport=sport,
        destination=".".join(map(str, data[30:34])),
        dport=dport,
        sequence=sequence,
        payload_bytes=total - header - (data[at + 12] >> 4) * 4,
        ecn=data[15] & 3,
    )


def _pauses(data: bytes) -> tuple[int, ...]:
    enabled = data[17]
    return tuple(int.from_bytes(data[18 + 2 * at : 20 + 2 * at], "big") for at in range(8) if enabled >> at & 1)
