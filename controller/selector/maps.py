"""The selector's tables, typed: the layouts of selector.bpf.c, byte for byte."""

from dataclasses import dataclass
from ipaddress import IPv4Address
from struct import Struct

from controller.path_marks import Widths
from controller.selector.flow_hash import Flow

FLOWS, HOSTS, WIDTHS, ASSIGNED, EXACT = "flows", "hosts", "widths", "assigned", "exact"
SETTINGS, COUNTERS = ".data.settings", ".bss.counters"
FIRST = bytes(4)
"""The only key of a table of one entry."""

_FLOW_KEY = Struct("=4s4s2s2sI")
_FLOW_ENTRY = Struct("=IIQQ")
_SETTINGS = Struct("=4III")
_PAIR = Struct("=4s4s")
_NUMBER = Struct("=I")
_COUNTERS = Struct("=Q")

FLOW_KEY_BYTES, FLOW_ENTRY_BYTES, COUNTERS_BYTES = _FLOW_KEY.size, _FLOW_ENTRY.size, _COUNTERS.size


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    """What a selector saw of a flow at its first switch."""

    flow: Flow
    mark: int
    packets: int
    bytes: int
    """Of frames, FCS not included."""


def flow_record(key: bytes, value: bytes) -> FlowRecord:
    """An entry of `flows`."""
    src, dst, sport, dport, proto = _FLOW_KEY.unpack(key)
    mark, _, packets, size = _FLOW_ENTRY.unpack(value)
    flow = Flow(
        src=IPv4Address(src),
        dst=IPv4Address(dst),
        proto=proto,
        sport=int.from_bytes(sport),
        dport=int.from_bytes(dport),
    )
    return FlowRecord(flow=flow, mark=mark, packets=packets, bytes=size)


def address(ip: IPv4Address) -> bytes:
    """A key of `hosts`."""
    return ip.packed


def pair(src: IPv4Address, dst: IPv4Address) -> bytes:
    """A key of `assigned`."""
    return _PAIR.pack(src.packed, dst.packed)


def flow_key(flow: Flow) -> bytes:
    """A key of `flows` and of `exact`."""
    return _FLOW_KEY.pack(flow.src.packed, flow.dst.packed, flow.sport.to_bytes(2), flow.dport.to_bytes(2), flow.proto)


def number(value: int) -> bytes:
    """A leaf's number, a mark, a key of `widths`."""
    return _NUMBER.pack(value)


def packed_widths(widths: Widths) -> bytes:
    """A value of `widths`: a byte per level, level 1 least significant."""
    return _NUMBER.pack(sum(width << 8 * level for level, width in enumerate(widths)))


def settings(seeds: tuple[int, int, int, int], generation: int, leaves: int) -> bytes:
    """The one entry of the settings."""
    return _SETTINGS.pack(*seeds, generation, leaves)


def unrecorded(value: bytes) -> int:
    """Packets that the flow table had no room for."""
    return int(_COUNTERS.unpack(value)[0])
