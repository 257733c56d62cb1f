"""The port out of stock parts: a policer that counts bytes in front of a netem that serialises and delays.

    packet -> [police: rate, burst = buffer] -> [netem: rate, then delay] -> cable

netem keeps when each packet's last bit leaves, max(now, end of the packet before) + length / rate, and releases it one
delay later: exact serialisation and propagation, to the nanosecond.  But its limit counts packets, those on the wire
included.  The policer supplies the buffer: a token bucket that fills at the link's rate and is as deep as the buffer
drops exactly what a queue of that many bytes, drained at that rate, would have no room for.  The bucket's missing
tokens *are* the queue, the packet on the wire counted with what is left of it.  Both round a packet's time to
nanoseconds; `policer_rate` picks a rate for which they round alike, or they would drift apart under steady load.

Not exact: the buffer is a multiple of 64 ns of line time (the policer's tick); a packet's time is cut to a nanosecond
(at 400 Gb/s a 9,014 B frame takes 180 ns, not 180.28); there is one class, no ECN and no PFC; a host's own packets no
longer count against its socket once they are in netem, so TCP's small queue limit does not act.
"""

import socket
import struct
from collections.abc import Mapping, Sequence
from functools import cache

from testbed.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NetlinkSocket,
    Request,
    attribute,
    attributes,
    text_attribute,
)
from testbed.port.interface import Egress, PortCounters
from testbed.traffic_control import (
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    TrafficControl,
    tcmsg,
)
from topologies.errors import MissingFeature, UserError
from topologies.units import format_rate, format_size

TICK_NS = 64
"""PSCHED_SHIFT of the kernel's include/net/pkt_sched.h: what a policer's burst is counted in."""
NETEM_LIMIT_PACKETS = 2_000_000
"""Never the one to drop: the policer is, and a read-back of netem's drops proves it."""
LEAST_FRAME_BYTES = 42
_CLSACT, _EGRESS_HOOK = 0xFFFFFFF1, 0xFFFFFFF3
_NETEM_RATE, _NETEM_RATE64, _NETEM_LATENCY64 = 6, 8, 10
_POLICE_TBF, _POLICE_RATE, _POLICE_RATE64 = 1, 2, 8
_TC_ACT_SHOT = 2
_LOOPBACK, _RTM_DELQDISC = 1, 37
_ETHERNET = 1
_BURST_OFFSET, _OVERHEAD_OFFSET, _RATE_OFFSET = 12, 22, 28
"""In struct tc_police: burst, rate.overhead, rate.rate."""


class StockPort:
    """netem behind a policer."""

    name = "stock"
    polices = True

    def __init__(self, *, overhead_bytes: int = 0) -> None:
        """`overhead_bytes` is added to every frame's time on the wire: 24 for preamble, FCS and gap of Ethernet."""
        self.overhead_bytes = overhead_bytes

    def check_kernel(self, route: NetlinkSocket) -> None:
        """Makes a port on the loopback interface and removes it.  Raises MissingFeature listing all that is missing."""
        trial = Egress(
            interface="lo",
            index=_LOOPBACK,
            node="lo",
            is_switch=False,
            port=0,
            link="trial",
            peer="lo",
            rate_bps=10**9,
            delay_ns=1000,
            buffer_bytes=10**6,
            mtu=1500,
        )
        refusals = route.refusals(self.requests(trial))
        for parent in (TC_H_ROOT, _CLSACT):
            body = tcmsg(index=_LOOPBACK, handle=0, parent=parent)
            route.refusals([Request(kind=_RTM_DELQDISC, body=body, what="remove the trial port of lo")])
        if refusals:
            raise MissingFeature(
                f"this kernel cannot make the stock port: {'; '.join(map(str, refusals))}",
                "boot a kernel with sch_netem, sch_ingress, cls_matchall and act_police (Debian's has them), "
                "or use --clock virtual",
            )

    def check(self, egress: Egress) -> None:
        """Raises UserError for a rate that is no whole number of bytes/s or a buffer that holds no frame."""
        if not egress.cost.is_free:
            raise UserError("host.message_cost and host.byte_cost need ports of kind fabric; leave port.kind out")
        if egress.rate_bps % 8:
            raise UserError(f"link {egress.link}: {egress.rate_bps} bit/s is no whole number of bytes per second")
        held = self.held_bytes(egress)
        self._policer_rate(egress)
        if held < egress.frame_bytes + self.overhead_bytes:
            raise UserError(
                f"link {egress.link}: a buffer of {format_size(egress.buffer_bytes)} at {format_rate(egress.rate_bps)}"
                f" is {held} B in whole ticks of {TICK_NS} ns, less than one frame of {egress.frame_bytes} B"
            )

    def held_bytes(self, egress: Egress) -> int:
        """The buffer in force: what was asked, cut to whole ticks of line time."""
        return self._burst_ticks(egress) * TICK_NS * egress.rate_bps // (8 * 10**9)

    def requests(self, egress: Egress) -> Sequence[Request]:
        """netem as the root, clsact beside it, and on its egress the policer."""
        create = NLM_F_CREATE | NLM_F_EXCL
        what = f"of {egress.interface} (link {egress.link})"
        netem = tcmsg(index=egress.index, handle=0x10000, parent=TC_H_ROOT)
        netem += text_attribute(TCA_KIND, "netem") + attribute(TCA_OPTIONS, self._netem(egress))
        clsact = tcmsg(index=egress.index, handle=0xFFFF0000, parent=_CLSACT) + text_attribute(TCA_KIND, "clsact")
        protocol_any = 0xC000 << 16 | socket.htons(0x0003)
        policer = tcmsg(index=egress.index, handle=0, parent=_EGRESS_HOOK, info=protocol_any)
        action = text_attribute(1, "police") + attribute(2, self._police(egress))
        policer += text_attribute(TCA_KIND, "matchall") + attribute(TCA_OPTIONS, attribute(2, attribute(1, action)))
        return (
            Request(kind=RTM_NEWQDISC, flags=create, body=netem, what=f"make the netem {what}"),
            Request(kind=RTM_NEWQDISC, flags=create, body=clsact, what=f"make the clsact {what}"),
            Request(kind=RTM_NEWTFILTER, flags=create, body=policer, what=f"make the policer {what}"),
        )

    def wanted(self, egress: Egress) -> Mapping[str, int | str]:
        """Rate, delay, buffer and overhead."""
        return {
            "qdisc": "netem",
            "rate_bps": egress.rate_bps,
            "delay_ns": egress.delay_ns,
            "limit_packets": NETEM_LIMIT_PACKETS,
            "overhead_bytes": self.overhead_bytes,
            "buffer_bytes": self.held_bytes(egress),
            "policer_rate_bytes": self._policer_rate(egress),
            "policer_overhead_bytes": self.overhead_bytes,
        }

    def in_force(self, egress: Egress, found: TrafficControl) -> Mapping[str, int | str]:
        """The same from the kernel's dump."""
        values: dict[str, int | str] = {}
        root = found.root(egress.index)
        if root is not None:
            values["qdisc"] = root.kind
        if root is not None and root.kind == "netem":
            values["limit_packets"] = struct.unpack_from("=I", root.options, 4)[0]
            parts = attributes(root.options[24:])
            rate, overhead = struct.unpack_from("=Ii", parts.get(_NETEM_RATE, bytes(16)))
            if _NETEM_RATE64 in parts:
                rate = struct.unpack("=Q", parts[_NETEM_RATE64])[0]
            values |= {
                "rate_bps": rate * 8,
                "delay_ns": struct.unpack("=q", parts[_NETEM_LATENCY64])[0],
                "overhead_bytes": overhead,
            }
        policer = found.policers.get(egress.index)
        if policer is not None:
            tbf = policer.options[_POLICE_TBF]
            ticks = struct.unpack_from("=I", tbf, _BURST_OFFSET)[0]
            rate = struct.unpack_from("=I", tbf, _RATE_OFFSET)[0]
            if _POLICE_RATE64 in policer.options:
                rate = struct.unpack("=Q", policer.options[_POLICE_RATE64])[0]
            values |= {
                "buffer_bytes": ticks * TICK_NS * egress.rate_bps // (8 * 10**9),
                "policer_rate_bytes": rate,
                "policer_overhead_bytes": struct.unpack_from("=H", tbf, _OVERHEAD_OFFSET)[0],
            }
        return values

    def counters(self, egress: Egress, found: TrafficControl) -> PortCounters:
        """netem's own counters, and what either of the two dropped."""
        root, policer = found.root(egress.index), found.policers.get(egress.index)
        sent = root.statistics if root is not None else None
        return PortCounters(
            sent_packets=sent.packets if sent else 0,
            sent_bytes=sent.bytes if sent else 0,
            dropped_packets=(sent.drops if sent else 0) + (policer.statistics.drops if policer else 0),
            backlog_packets=sent.queued_packets if sent else 0,
            backlog_bytes=sent.backlog_bytes if sent else 0,
        )

    def faults(self, egress: Egress, found: TrafficControl) -> Sequence[str]:
        """netem and the policer keep no books beside what `counters` says."""
        return ()

    def describe(self) -> Mapping[str, int | str]:
        """For the manifest."""
        return {
            "kind": self.name,
            "parts": "clsact egress, matchall, police (buffer in bytes), netem (rate, delay)",
            "overhead_bytes": self.overhead_bytes,
            "buffer_tick_ns": TICK_NS,
        }

    def _policer_rate(self, egress: Egress) -> int:
        return policer_rate(egress.rate_bps // 8, egress.frame_bytes + self.overhead_bytes)

    def _burst_ticks(self, egress: Egress) -> int:
        return egress.buffer_bytes * 8 * 10**9 // (egress.rate_bps * TICK_NS)

    def _netem(self, egress: Egress) -> bytes:
        # struct tc_netem_qopt {latency, limit, loss, gap, duplicate, jitter}; the 64-bit latency below overrides
        rate = egress.rate_bps // 8
        return (
            struct.pack("=IIIIII", 0, NETEM_LIMIT_PACKETS, 0, 0, 0, 0)
            + attribute(_NETEM_LATENCY64, struct.pack("=q", egress.delay_ns))
            + attribute(_NETEM_RATE, struct.pack("=IiIi", min(rate, 2**32 - 1), self.overhead_bytes, 0, 0))
            + attribute(_NETEM_RATE64, struct.pack("=Q", rate))
        )

    def _police(self, egress: Egress) -> bytes:
        # struct tc_police {index, action, limit, burst, mtu, rate, peakrate, refcnt, bindcnt, capab}
        rate = self._policer_rate(egress)
        spec = struct.pack("=BBHhHI", 16, _ETHERNET, self.overhead_bytes, -1, 0, min(rate, 2**32 - 1))
        head = struct.pack("=IiIII", egress.index, _TC_ACT_SHOT, 0, self._burst_ticks(egress), 2**31 - 1)
        tbf = head + spec + bytes(12) + bytes(12)
        table = bytes(1024)  # a rate table is demanded and, since the kernel divides for itself, never looked at
        parts = attribute(_POLICE_TBF, tbf) + attribute(_POLICE_RATE, table)
        return parts + attribute(_POLICE_RATE64, struct.pack("=Q", rate))


def netem_time_ns(length: int, rate_bytes: int) -> int:
    """What netem takes for `length` bytes (overhead included): packet_time_ns of net/sched/sch_netem.c."""
    return length * 10**9 // rate_bytes


def policer_time_ns(length: int, rate_bytes: int) -> int:
    """What a policer takes: psched_l2t_ns and psched_ratecfg_precompute__ of net/sched/sch_generic.c."""
    factor, shift = _reciprocal(rate_bytes)
    return (length * (factor // rate_bytes)) >> shift


def _reciprocal(rate_bytes: int) -> tuple[int, int]:
    """10**9 shifted left until the quotient by the rate has 32 bits, and the shift."""
    shift = 0
    while not ((10**9 << shift) // rate_bytes & (1 << 31) or (10**9 << shift) & (1 << 63)):
        shift += 1
    return 10**9 << shift, shift


@cache
def policer_rate(rate_bytes: int, longest_bytes: int) -> int:
    """The rate for which a policer's time of every frame up to `longest_bytes` is netem's.  Raises UserError.

    The kernel cuts the reciprocal off, and then says 719 ns where 720 is exact: a rate a few bytes per second lower
    makes it round up instead.
    """
    factor, _ = _reciprocal(rate_bytes)
    multiplier = -(-factor // rate_bytes)
    rate = factor // multiplier
    for length in range(LEAST_FRAME_BYTES, longest_bytes + 1):
        if policer_time_ns(length, rate) != netem_time_ns(length, rate_bytes):
            raise UserError(f"no policer drops exactly at {format_rate(rate_bytes * 8)}; choose a rounder rate")
    return rate
