"""Traffic control as the kernel reports it: every queueing discipline and policer of a namespace in two dumps."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.netlink import NetlinkSocket, attribute, attribute_list, attributes, text_attribute

RTM_NEWQDISC, RTM_GETQDISC, RTM_NEWTFILTER, RTM_GETACTION = 36, 38, 44, 50
TC_H_ROOT = 0xFFFFFFFF
TCA_KIND, TCA_OPTIONS, TCA_XSTATS, TCA_STATS2 = 1, 2, 4, 7
_STATS_BASIC, _STATS_QUEUE, _STATS_PKT64 = 1, 3, 8
_TCMSG = struct.Struct("=BxxxiIII")


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The counters that every discipline and action keeps (gnet_stats)."""

    bytes: int = 0
    packets: int = 0
    queued_packets: int = 0
    backlog_bytes: int = 0
    drops: int = 0
    overlimits: int = 0


@dataclass(frozen=True, kw_only=True)
class Qdisc:
    """One queueing discipline."""

    kind: str
    index: int
    """Of its interface."""
    handle: int
    parent: int
    options: bytes
    extra: bytes
    """Its own statistics (TCA_STATS2's TCA_STATS_APP, or TCA_XSTATS)."""
    statistics: Statistics


@dataclass(frozen=True, kw_only=True)
class Policer:
    """One police action."""

    options: Mapping[int, bytes]
    statistics: Statistics


@dataclass(frozen=True, kw_only=True)
class TrafficControl:
    """All of a namespace."""

    qdiscs: Mapping[int, tuple[Qdisc, ...]]
    """Interface index -> its disciplines."""
    policers: Mapping[int, Policer]
    """Action index -> policer."""

    def root(self, index: int) -> Qdisc | None:
        """The discipline that an interface sends through."""
        return next((qdisc for qdisc in self.qdiscs.get(index, ()) if qdisc.parent == TC_H_ROOT), None)


def tcmsg(*, index: int, handle: int, parent: int, info: int = 0) -> bytes:
    """struct tcmsg."""
    return _TCMSG.pack(0, index, handle, parent, info)


def read_traffic_control(socket: NetlinkSocket, *, policers: bool = True) -> TrafficControl:
    """Two dumps, whatever the number of interfaces.  Raises KernelRefused."""
    qdiscs: dict[int, list[Qdisc]] = {}
    for kind, payload in socket.dump(RTM_GETQDISC, tcmsg(index=0, handle=0, parent=0)):
        if kind == RTM_NEWQDISC:
            qdisc = _qdisc(payload)
            qdiscs.setdefault(qdisc.index, []).append(qdisc)
    found = _policers(socket) if policers else {}
    return TrafficControl(qdiscs={index: tuple(each) for index, each in qdiscs.items()}, policers=found)


def _qdisc(payload: bytes) -> Qdisc:
    _family, index, handle, parent, _info = _TCMSG.unpack_from(payload)
    found = attributes(payload[_TCMSG.size :])
    stats = attributes(found.get(TCA_STATS2, b""))
    return Qdisc(
        kind=found[TCA_KIND].rstrip(b"\0").decode(),
        index=index,
        handle=handle,
        parent=parent,
        options=found.get(TCA_OPTIONS, b""),
        extra=stats.get(4, found.get(TCA_XSTATS, b"")),
        statistics=_statistics(stats),
    )


def _statistics(found: Mapping[int, bytes]) -> Statistics:
    octets, packets = struct.unpack_from("=QI", found.get(_STATS_BASIC, bytes(12)))
    if _STATS_PKT64 in found:
        packets = struct.unpack("=Q", found[_STATS_PKT64])[0]
    queued, backlog, drops, _requeues, overlimits = struct.unpack_from("=IIIII", found.get(_STATS_QUEUE, bytes(20)))
    return Statistics(
        bytes=octets,
        packets=packets,
        queued_packets=queued,
        backlog_bytes=backlog,
        drops=drops,
        overlimits=overlimits,
    )


def _policers(socket: NetlinkSocket) -> dict[int, Policer]:
    # struct tcamsg, the kind to dump, and TCA_ACT_FLAG_LARGE_DUMP_ON as a bitfield (value, selector)
    wanted = attribute(1, attribute(1, text_attribute(1, "police"))) + attribute(2, struct.pack("=II", 1, 1))
    found: dict[int, Policer] = {}
    for _kind, payload in socket.dump(RTM_GETACTION, bytes(4) + wanted):
        for _order, action in attribute_list(attributes(payload[4:]).get(1, b"")):
            parts = attributes(action)
            options = attributes(parts.get(2, b""))
            index = struct.unpack_from("=I", options[1])[0]
            found[index] = Policer(options=options, statistics=_statistics(attributes(parts.get(4, b""))))
    return found
