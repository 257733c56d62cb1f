"""The selector's tables, typed: the layouts of selector.bpf.c, byte for byte."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from struct import Struct

from controller.path_marks import Widths
from controller.selector.flow_hash import Flow
from controller.selector.selection import LINKS_OF_A_ROUTE, Selection

FLOWS, HOSTS, WIDTHS, ASSIGNED, EXACT = "flows", "hosts", "widths", "assigned", "exact"
TAKEN, ROUTES_OF, ROUTES, LINKS = "taken", "routes_of", "routes", "links"
SETTINGS, COUNTERS = ".data.settings", ".bss.counters"
FIRST = bytes(4)
"""The only key of a table of one entry."""

_FLOW_KEY = Struct("=4s4s2s2sI")
_FLOW_ENTRY = Struct("=III4xQQ")
_SETTINGS = Struct("=4IIIIII4xQ")
_TAKEN_PATH, _TAKEN_ENTRY = Struct("=II"), Struct("=QQ")
_ROUTE_KEY, _ROUTE, _ROUTES_OF, _LINK = Struct("=II"), Struct("=I4I"), Struct("=II"), Struct("=QQQ")
_PAIR = Struct("=4s4s")
_NUMBER = Struct("=I")
_COUNTERS = Struct("=QQQ")

FLOW_KEY_BYTES, FLOW_ENTRY_BYTES, COUNTERS_BYTES = _FLOW_KEY.size, _FLOW_ENTRY.size, _COUNTERS.size
TAKEN_KEY_BYTES, TAKEN_ENTRY_BYTES = _FLOW_KEY.size + _TAKEN_PATH.size, _TAKEN_ENTRY.size
NEVER = 2**64 - 1
"""A gap that no flow ever has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    """What a selector saw of a flow on one path, at its first switch."""

    flow: Flow
    mark: int
    packets: int
    bytes: int
    """Of frames, FCS not included."""
    down: int = 0
    """The number of the set of links that were down meanwhile, as `Selector.select` was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Of the whole fabric, since the selector was loaded."""

    unrecorded_packets: int
    """Packets that the flow table had no room for."""
    flowlets: int
    """Times that a path was chosen in the flowlet table."""
    evictions: int
    """Entries of the flowlet table that were taken from flows that may have been under way."""


def flow_record(key: bytes, value: bytes) -> FlowRecord:
    """An entry of `flows`: what went by the flow's present path."""
    mark, _generation, down, packets, size = _FLOW_ENTRY.unpack(value)
    return FlowRecord(flow=_flow(key), mark=mark, packets=packets, bytes=size, down=down)


def taken_record(key: bytes, value: bytes) -> FlowRecord:
    """An entry of `taken`: what went by a path that the flow has left."""
    packets, size = _TAKEN_ENTRY.unpack(value)
    mark, down = _TAKEN_PATH.unpack(key[_FLOW_KEY.size :])
    return FlowRecord(flow=_flow(key[: _FLOW_KEY.size]), mark=mark, packets=packets, bytes=size, down=down)


def _flow(key: bytes) -> Flow:
    src, dst, sport, dport, proto = _FLOW_KEY.unpack(key)
    return Flow(
        src=IPv4Address(src),
        dst=IPv4Address(dst),
        proto=proto,
        sport=int.from_bytes(sport),
        dport=int.from_bytes(dport),
    )


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


def route_key(pair: int, at: int) -> bytes:
    """A key of `routes`."""
    return _ROUTE_KEY.pack(pair, at)


def route(mark: int, links: Sequence[int]) -> bytes:
    """A value of `routes`; links count from 1."""
    return _ROUTE.pack(mark, *links, *[0] * (LINKS_OF_A_ROUTE - len(links)))


def routes_of(count: int) -> bytes:
    """A value of `routes_of`: so many routes, none of them remembered as better than others."""
    return _ROUTES_OF.pack(count, 0)


def link(cost_ps: int) -> bytes:
    """A value of `links`: an idle one."""
    return _LINK.pack(0, 0, cost_ps)


def settings(selection: Selection, generation: int, leaves: int, down: int) -> bytes:
    """The one entry of the settings."""
    gap_ns = NEVER if selection.gap_ns is None else selection.gap_ns
    slots = selection.slots if selection.by_flowlet else 0
    return _SETTINGS.pack(*selection.seeds, generation, leaves, selection.choice, slots, down, gap_ns)


def counters(value: bytes) -> Counters:
    """The one entry of the counters."""
    unrecorded, flowlets, evictions = _COUNTERS.unpack(value)
    return Counters(unrecorded_packets=unrecorded, flowlets=flowlets, evictions=evictions)
