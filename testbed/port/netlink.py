"""The `fabric` qdisc over netlink: a PortConfig as the kernel's attributes and back, its statistics as PortStats.

The numbers are those of `qdisc/sch_fabric.h`.  Requests and dumps go through `testbed.netlink`;
`pyroute2_kind.py` teaches pyroute2 the same.
"""

import struct
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from testbed.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NetlinkSocket,
    Request,
    attribute,
    attribute_list,
    attributes,
    text_attribute,
)
from testbed.port.config import CLASSES, ClassConfig, Marking, PortConfig, Watchdog
from testbed.port.stats import ClassStats, Drops, PortStats
from testbed.traffic_control import RTM_GETQDISC, RTM_NEWQDISC, TC_H_ROOT, TCA_KIND, TCA_OPTIONS, TCA_STATS2, tcmsg
from topologies.errors import InternalError

KIND: Final = "fabric"
HANDLE: Final = 0x10000
XSTATS_VERSION: Final = 1

_RATE, _DELAY, _OVERHEAD, _LIMIT, _DSCP_MAP, _DEFAULT_CLASS = 2, 3, 4, 5, 6, 7
_SEED, _BUFFER_ID, _BUFFER_BYTES, _PAUSE_QUANTA, _CLASS = 8, 9, 10, 11, 12

_C_INDEX, _C_FLAGS, _C_PRIORITY, _C_QUANTUM, _C_LIMIT, _C_EGRESS_ALPHA = 2, 3, 4, 5, 6, 7
_C_KMIN, _C_KMAX, _C_PMAX, _C_RESERVE, _C_HEADROOM = 8, 9, 10, 11, 12
_C_ALPHA, _C_XOFF, _C_XON_OFFSET, _C_WATCHDOG, _C_RESTORE = 13, 14, 15, 16, 17

_PFC, _ECN, _ECN_PACKETS, _ECN_ENQUEUE, _EXEMPT, _STORM_FORWARD = (1 << bit for bit in range(6))
_STATE_PAUSED, _STATE_STORM, _STATE_XOFF = 1, 2, 4

_PORT_XSTATS = struct.Struct("=II15QII3Q")
_CLASS_XSTATS = struct.Struct("=31QII")


def _u8(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=B", value))


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def _u64(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=Q", value))


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


# ---- configuration ----


def encode(config: PortConfig) -> bytes:
    """The payload of TCA_OPTIONS."""
    parts = [
        _u64(_RATE, config.rate_bps),
        _u64(_DELAY, config.delay_ns),
        _u32(_OVERHEAD, config.overhead_bytes),
        _u64(_LIMIT, config.limit_bytes),
        attribute(_DSCP_MAP, bytes(config.dscp_classes)),
        _u8(_DEFAULT_CLASS, config.default_class),
        _u32(_BUFFER_ID, config.buffer_id),
        attribute(_PAUSE_QUANTA, struct.pack("=H", config.pause_quanta)),
    ]
    if config.buffer_id:
        parts.append(_u64(_BUFFER_BYTES, config.buffer_bytes))
    if config.seed is not None:
        parts.append(_u64(_SEED, config.seed))
    parts += [attribute(_CLASS | 0x8000, _encode_class(index, each)) for index, each in enumerate(config.classes)]
    return b"".join(parts)


def _encode_class(index: int, config: ClassConfig) -> bytes:
    marking = config.marking or Marking(kmin=0, kmax=0, pmax=0)
    watchdog = config.watchdog
    return b"".join(
        (
            _u8(_C_INDEX, index),
            _u32(_C_FLAGS, _flags(config)),
            _u8(_C_PRIORITY, config.priority),
            _u32(_C_QUANTUM, config.quantum_bytes),
            _u64(_C_LIMIT, config.limit_bytes),
            _u32(_C_EGRESS_ALPHA, int(config.egress_alpha * 256)),
            _u64(_C_KMIN, marking.kmin),
            _u64(_C_KMAX, marking.kmax),
            _u32(_C_PMAX, marking.pmax_ppb),
            _u64(_C_RESERVE, config.reserve_bytes),
            _u64(_C_HEADROOM, config.headroom_bytes),
            _u32(_C_ALPHA, int(config.alpha * 256)),
            _u64(_C_XOFF, config.xoff_bytes),
            _u64(_C_XON_OFFSET, config.xon_offset_bytes),
            _u64(_C_WATCHDOG, watchdog.limit_ns if watchdog else 0),
            _u64(_C_RESTORE, watchdog.restore_ns if watchdog else 0),
        )
    )


def _flags(config: ClassConfig) -> int:
    marking, watchdog = config.marking, config.watchdog
    return (
        (_PFC if config.pfc else 0)
        | (_ECN if marking else 0)
        | (_ECN_PACKETS if marking and marking.in_packets else 0)
        | (_ECN_ENQUEUE if marking and marking.on_arrival else 0)
        | (_EXEMPT if config.exempt else 0)
        | (_STORM_FORWARD if watchdog and watchdog.forward else 0)
    )


def decode(options: bytes) -> PortConfig:
    """What the kernel says is in force; classes it leaves out are as in a new port, `seed` is never told: None."""
    found = attributes(options)
    classes = [ClassConfig()] * CLASSES
    for kind, payload in attribute_list(options):
        if kind == _CLASS:
            parts = {key: _number(value) for key, value in attributes(payload).items()}
            classes[parts[_C_INDEX]] = _decode_class(parts)
    buffer_id = _number(found[_BUFFER_ID])
    return PortConfig(
        rate_bps=_number(found[_RATE]),
        delay_ns=_number(found[_DELAY]),
        overhead_bytes=_number(found[_OVERHEAD]),
        limit_bytes=_number(found[_LIMIT]),
        dscp_classes=tuple(found[_DSCP_MAP]),
        default_class=_number(found[_DEFAULT_CLASS]),
        buffer_id=buffer_id,
        buffer_bytes=_number(found[_BUFFER_BYTES]) if buffer_id else 0,
        pause_quanta=_number(found[_PAUSE_QUANTA]),
        classes=tuple(classes),
    )


def _decode_class(parts: Mapping[int, int]) -> ClassConfig:
    flags = parts[_C_FLAGS]
    marking = Marking(
        kmin=parts[_C_KMIN],
        kmax=parts[_C_KMAX],
        pmax=parts[_C_PMAX] / 10**9,
        in_packets=bool(flags & _ECN_PACKETS),
        on_arrival=bool(flags & _ECN_ENQUEUE),
    )
    watchdog = None
    if parts[_C_WATCHDOG]:
        watchdog = Watchdog(
            limit_ns=parts[_C_WATCHDOG], restore_ns=parts[_C_RESTORE], forward=bool(flags & _STORM_FORWARD)
        )
    return ClassConfig(
        priority=parts[_C_PRIORITY],
        quantum_bytes=parts[_C_QUANTUM],
        limit_bytes=parts[_C_LIMIT],
        egress_alpha=Fraction(parts[_C_EGRESS_ALPHA], 256),
        marking=marking if flags & _ECN else None,
        pfc=bool(flags & _PFC),
        exempt=bool(flags & _EXEMPT),
        reserve_bytes=parts[_C_RESERVE],
        headroom_bytes=parts[_C_HEADROOM],
        alpha=Fraction(parts[_C_ALPHA], 256),
        xoff_bytes=parts[_C_XOFF],
        xon_offset_bytes=parts[_C_XON_OFFSET],
        watchdog=watchdog,
    )


def make(index: int, config: PortConfig, *, where: str) -> Request:
    """Makes the port on the interface `index`; `where` names it in an error message."""
    return _request(index, config, NLM_F_CREATE | NLM_F_EXCL, f"make the port of {where}")


def change(index: int, config: PortConfig, *, where: str) -> Request:
    """Puts another configuration in force; what waits and what is on the wire stays."""
    return _request(index, config, 0, f"change the port of {where}")


def _request(index: int, config: PortConfig, flags: int, what: str) -> Request:
    body = tcmsg(index=index, handle=HANDLE, parent=TC_H_ROOT)
    body += text_attribute(TCA_KIND, KIND) + attribute(TCA_OPTIONS, encode(config))
    return Request(kind=RTM_NEWQDISC, flags=flags, body=body, what=what)


# ---- statistics ----


_OUR_KIND = attribute(TCA_KIND, KIND.encode() + b"\0")
_TCMSG_BYTES, _STATS_APP, _INDEX = 20, 4, struct.Struct("=i")
_UNUSED, _NO_DROPS = ClassStats(), Drops()


def read_stats(socket: NetlinkSocket) -> dict[int, PortStats]:
    """Interface index -> what its port did, for all ports of a namespace in one dump: the fast way, for samplers.

    Raises KernelRefused.
    """
    found = {}
    for _kind, payload in socket.dump(RTM_GETQDISC, tcmsg(index=0, handle=0, parent=0)):
        if _OUR_KIND in payload[:40]:
            stats = attributes(attributes(payload[_TCMSG_BYTES:])[TCA_STATS2])
            found[_INDEX.unpack_from(payload, 4)[0]] = decode_stats(stats[_STATS_APP])
    return found


def decode_stats(extra: bytes) -> PortStats:
    """The payload of TCA_STATS_APP.  Raises InternalError for another version of the qdisc."""
    version, mask, *values = _PORT_XSTATS.unpack_from(extra)
    if version != XSTATS_VERSION:
        raise InternalError(f"the fabric qdisc speaks statistics version {version}, this code {XSTATS_VERSION}")
    classes, offset = [_UNUSED] * CLASSES, _PORT_XSTATS.size
    for index in range(CLASSES):
        if mask >> index & 1:
            classes[index] = _decode_class_stats(_CLASS_XSTATS.unpack_from(extra, offset))
            offset += _CLASS_XSTATS.size
    in_order: list[Any] = [*values, tuple(classes)]
    return PortStats(*in_order)


def _decode_class_stats(values: tuple[int, ...]) -> ClassStats:
    packets, octets, state = values[4:9], values[9:14], values[31]
    drops = (Drops(*packets), Drops(*octets)) if any(packets) else (_NO_DROPS, _NO_DROPS)
    states = (bool(state & _STATE_PAUSED), bool(state & _STATE_STORM), bool(state & _STATE_XOFF))
    in_order: list[Any] = [*values[:4], *drops, *values[14:31], *states]
    return ClassStats(*in_order)
