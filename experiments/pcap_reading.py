"""Our own captures read back, a packet at a time: pcapng as testbed/pcapng.py writes it, Ethernet, IPv4, TCP, PFC.

    blocks(path, stream)    kind and body of every block
    frames(path)            what every packet says

Only what the tables need is taken out of a packet.  Files of other makers are refused, not guessed at.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from testbed.pcapng import InterfaceBlock
from topologies.errors import UserError

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
"""Kinds of blocks."""
_COMMENT, _NAME, _DESCRIPTION, _SPEED = 1, 2, 3, 8
_BLOCK: Final = struct.Struct("<II")
_ENHANCED: Final = struct.Struct("<IIIII")
_OPTION: Final = struct.Struct("<HH")
_TCP_HEAD: Final = struct.Struct("!HHII")
_IPV4, _MAC_CONTROL, _TCP = 0x0800, 0x8808, 6
_IPV4_BYTES = b"\x08\x00"
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
    interface: str
    """Where it was seen."""
    comments: tuple[str, ...]
    """What the file says of it: the operation in flight, what happened just before."""


def frames(path: Path) -> Iterator[Frame]:
    """Every packet in the file's order.  Raises UserError for what is not one of our captures."""
    names: list[str] = []
    with path.open("rb") as stream:
        for kind, body in blocks(path, stream):
            if kind == INTERFACE:
                names.append(interface(body).name)
            elif kind == PACKET:
                yield _frame(body, names)


def interfaces(path: Path) -> list[str]:
    """Those that the file is of, whether or not anything passed them.  Raises UserError for what is not ours."""
    found = []
    with path.open("rb") as stream:
        for kind, body in blocks(path, stream):
            if kind == INTERFACE:
                found.append(interface(body).name)
            elif kind == PACKET:
                break
    return found


def blocks(path: Path, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Kind and body, lengths left out, of what is in `stream`; `path` is for errors.

    Raises UserError for what is not one of our captures, or not a whole one.
    """
    first = True
    while head := stream.read(_BLOCK.size):
        kind, length = _BLOCK.unpack(head) if len(head) == _BLOCK.size else (0, 0)
        if length < 12 or (first and kind != SECTION):
            raise UserError(f"{path} is not a capture of ours (pcapng, little-endian)")
        body = stream.read(length - _BLOCK.size)
        if len(body) != length - _BLOCK.size:
            raise UserError(f"{path} ends in the middle of a packet: its run did not end well")
        first = False
        yield kind, body[:-4]


def interface(body: bytes) -> InterfaceBlock:
    """What a block of the kind INTERFACE says."""
    found = dict(_options(body, 8))
    return InterfaceBlock(
        name=found[_NAME].decode(),
        description=found[_DESCRIPTION].decode(),
        speed_bps=int.from_bytes(found[_SPEED], "little"),
        snap_bytes=int.from_bytes(body[4:8], "little"),
    )


def stamp_ns(body: bytes) -> int:
    """When the packet of a block passed."""
    return int.from_bytes(body[4:8], "little") << 32 | int.from_bytes(body[8:12], "little")


def addresses(body: bytes) -> tuple[bytes, bytes] | None:
    """IPv4 source and destination of a block's packet; None: it is none."""
    at = _ENHANCED.size
    return (body[at + 26 : at + 30], body[at + 30 : at + 34]) if body[at + 12 : at + 14] == _IPV4_BYTES else None


def _options(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + 4 <= len(body):
        code, length = _OPTION.unpack_from(body, at)
        if not code:
            return
        yield code, body[at + 4 : at + 4 + length]
        at += 4 + length + (-length % 4)


def _frame(body: bytes, names: Sequence[str]) -> Frame:
    number, high, low, kept, size = _ENHANCED.unpack_from(body)
    data = body[_ENHANCED.size : _ENHANCED.size + kept]
    # the options begin with epb_flags: code 2, length 4
    flags_at = _ENHANCED.size + kept + (-kept % 4)
    flags = int.from_bytes(body[flags_at + 4 : flags_at + 8], "little")
    kind = int.from_bytes(data[12:14], "big")
    return Frame(
        time_ns=high << 32 | low,
        size_bytes=size,
        outbound=flags & 3 == OUTBOUND,
        segment=_segment(data) if kind == _IPV4 else None,
        pauses=_pauses(data) if kind == _MAC_CONTROL and data[14:16] == _PFC_OPCODE else (),
        interface=names[number],
        comments=tuple(text.decode() for code, text in _options(body, flags_at + 8) if code == _COMMENT),
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
