"""The port that everything is measured on: one `fabric` qdisc per egress, told what a PortConfig says.

    switch  leaf1: eth1 eth2 eth3    three qdiscs, one shared buffer (its number is the switch's)
    host    h1: eth0                 one qdisc without a buffer: a queue that never drops, and obeys pauses

A host's queue has no limit because a real host's has none that matters: what does not fit into the NIC stays in the
sockets.  A packet stays charged to its socket until its serialisation begins, so TCP's small queue limit acts.

Given no configurations, a port is as plain as a port can be: its link's rate, delay and buffer, tail drop.
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Final

from testbed.netlink import NetlinkSocket, Request
from testbed.port.books import broken
from testbed.port.config import ClassConfig, PortConfig
from testbed.port.interface import Egress, PortCounters
from testbed.port.netlink import HANDLE, KIND, change, decode, decode_stats, make
from testbed.port.peaks import Peaks
from testbed.port.stats import Drops, PortStats
from testbed.traffic_control import TC_H_ROOT, TrafficControl, tcmsg
from topologies.errors import InternalError, MissingFeature, UserError
from topologies.units import format_size

_RTM_DELQDISC: Final = 37
_LOOPBACK: Final = 1
_HOOKS: Final = frozenset({"clsact", "ingress"})
"""Where programs are attached (path selection); they queue nothing."""


class FabricPort:
    """The `fabric` qdisc."""

    name = "fabric"
    polices = False

    def __init__(self, configs: Mapping[str, PortConfig] | None = None) -> None:
        """`configs` says what each interface's port is told; without it every port is plain."""
        self._configs = None if configs is None else dict(configs)
        self.peaks = Peaks()

    def check_kernel(self, route: NetlinkSocket) -> None:
        """Makes a port on the loopback interface and removes it.  Raises MissingFeature where the kernel cannot."""
        trial = make(_LOOPBACK, PortConfig(rate_bps=10**9), where="lo, to see whether the kernel can")
        for refusal in route.refusals([trial]):
            if refusal.code != errno.ENOENT:
                raise refusal
            raise MissingFeature(
                "this kernel has no `fabric` queueing discipline, which ports are made of",
                "build and load the module in testbed/port/qdisc (its README says how), or do without shared buffers, "
                "ECN and PFC: --set port.kind=stock",
            )
        body = tcmsg(index=_LOOPBACK, handle=HANDLE, parent=TC_H_ROOT)
        route.execute([Request(kind=_RTM_DELQDISC, body=body, what="remove the trial port of lo")])

    def config(self, egress: Egress) -> PortConfig:
        """What was decided for this port, whatever a host's software adds to it."""
        if self._configs is not None:
            return self._configs[egress.interface]
        limit = egress.buffer_bytes if egress.is_switch else 0
        return PortConfig(rate_bps=egress.rate_bps, delay_ns=egress.delay_ns, limit_bytes=limit)

    def told(self, egress: Egress) -> PortConfig:
        """The same as the kernel is told it: behind the software of a host."""
        return egress.cost.told(self.config(egress))

    def check(self, egress: Egress) -> None:
        """Raises UserError for a queue that holds no frame, InternalError for a port that nobody has decided."""
        if self._configs is not None and egress.interface not in self._configs:
            raise InternalError(f"nobody has said what the port of {egress.interface} is told")
        config = self.config(egress)
        if egress.cost.message_ns and any(each.pfc for each in config.classes):
            raise UserError(
                f"host.message_cost with PFC: a pause cannot stop what is in the software of {egress.node}, and no "
                "headroom was made for it; leave one of the two out"
            )
        if (config.rate_bps, config.delay_ns) != (egress.rate_bps, egress.delay_ns):
            raise InternalError(f"the port of {egress.interface} has another rate or delay than its link {egress.link}")
        if config.limit_bytes and config.limit_bytes < egress.frame_bytes:
            raise UserError(
                f"link {egress.link}: a queue of {format_size(config.limit_bytes)} holds no frame of "
                f"{egress.frame_bytes} B"
            )

    def requests(self, egress: Egress) -> Sequence[Request]:
        """One qdisc."""
        return (make(egress.index, self.told(egress), where=f"{egress.interface} (link {egress.link})"),)

    def change(self, egress: Egress, config: PortConfig) -> Request:
        """Puts another configuration in force without an outage; from now on it is the wanted one."""
        if self._configs is None:
            raise InternalError("a plain port is not changed")
        self._configs[egress.interface] = config
        return change(egress.index, self.told(egress), where=f"{egress.interface} (link {egress.link})")

    def wanted(self, egress: Egress) -> Mapping[str, int | str]:
        """All of it, and that no other queueing discipline is there."""
        return {"qdisc": KIND, "other_qdiscs": "", **described(self.told(egress))}

    def in_force(self, egress: Egress, found: TrafficControl) -> Mapping[str, int | str]:
        """The same as the kernel tells it."""
        root = found.root(egress.index)
        if root is None or root.kind != KIND:
            return {} if root is None else {"qdisc": root.kind}
        others = (each.kind for each in found.qdiscs[egress.index] if each is not root and each.kind not in _HOOKS)
        return {"qdisc": KIND, "other_qdiscs": " ".join(sorted(others)), **described(decode(root.options))}

    def counters(self, egress: Egress, found: TrafficControl) -> PortCounters:
        """What it did; the highest queue is over all readings, because the kernel forgets it with each."""
        stats = self.stats(egress, found)
        peak, classes = self.peaks.note(egress.interface, stats.peak_bytes), stats.classes
        return PortCounters(
            sent_packets=stats.delivered_packets,
            sent_bytes=stats.delivered_bytes,
            dropped_packets=stats.dropped_packets,
            backlog_packets=stats.queue_packets + stats.wire_packets,
            backlog_bytes=stats.queue_bytes + stats.wire_bytes,
            marked_packets=stats.marked,
            unmarkable_packets=sum(each.unmarkable for each in classes),
            drops=_sum_of_drops(stats),
            pauses_sent=sum(each.pauses_sent for each in classes),
            resumes_sent=sum(each.resumes_sent for each in classes),
            pauses_received=sum(each.pauses_received for each in classes),
            paused_ns=sum(each.paused_ns for each in classes),
            watchdog_fired=sum(each.watchdog_fired for each in classes),
            queue_max_bytes=peak,
            arrived_packets=sum(each.enqueued_packets for each in classes),
            control_packets=stats.control_packets,
            wire_lost_packets=stats.wire_flushed_packets,
        )

    def stats(self, egress: Egress, found: TrafficControl) -> PortStats:
        """Everything that the qdisc counts.  Raises InternalError where another qdisc has taken its place."""
        root = found.root(egress.index)
        if root is None or root.kind != KIND:
            raise InternalError(f"the fabric qdisc of {egress.interface} is gone")
        return decode_stats(root.extra)

    def faults(self, egress: Egress, found: TrafficControl) -> list[str]:
        """What does not add up at this port, in words; meaningful at rest.  A host's NIC must not have dropped."""
        return broken(egress.interface, self.stats(egress, found), is_switch=egress.is_switch)

    def describe(self) -> Mapping[str, int | str]:
        """For the manifest."""
        return {
            "kind": self.name,
            "parts": "one fabric qdisc: serialisation, propagation, classes, shared buffer, ECN, PFC",
            "settings": "plain: rate, delay and tail drop" if self._configs is None else "by policy",
        }


def described(config: PortConfig) -> dict[str, int | str]:
    """A configuration as flat names and values; classes that nothing uses are left out, unless they were set."""
    used = {*config.dscp_classes, config.default_class}
    classes = [index for index, each in enumerate(config.classes) if index in used or each != ClassConfig()]
    found: dict[str, int | str] = {
        "rate_bps": config.rate_bps,
        "delay_ns": config.delay_ns,
        "overhead_bytes": config.overhead_bytes,
        "limit_bytes": config.limit_bytes,
        "buffer_id": config.buffer_id,
        "buffer_bytes": config.buffer_bytes,
        "pause_quanta": config.pause_quanta,
        "default_class": config.default_class,
        "dscp_classes": "".join(map(str, config.dscp_classes)),
        "classes": " ".join(map(str, classes)),
    }
    for index in classes:
        found |= {f"class{index}_{name}": value for name, value in _described_class(config.classes[index]).items()}
    return found


def _described_class(config: ClassConfig) -> dict[str, int | str]:
    found: dict[str, int | str] = {
        "priority": config.priority,
        "quantum_bytes": config.quantum_bytes,
        "limit_bytes": config.limit_bytes,
        "egress_alpha": str(config.egress_alpha),
        "reserve_bytes": config.reserve_bytes,
        "alpha": str(config.alpha),
        "xoff_bytes": config.xoff_bytes,
        "pfc": "on" if config.pfc else "off",
        "ecn": "on" if config.marking else "off",
        "exempt": "yes" if config.exempt else "no",
    }
    if config.pfc:
        found |= {"headroom_bytes": config.headroom_bytes, "xon_offset_bytes": config.xon_offset_bytes}
    if marking := config.marking:
        unit = "packets" if marking.in_packets else "bytes"
        found |= {f"kmin_{unit}": marking.kmin, f"kmax_{unit}": marking.kmax, "pmax_ppb": marking.pmax_ppb}
        found["marked_on"] = "arrival" if marking.on_arrival else "departure"
    if watchdog := config.watchdog:
        found |= {"watchdog_ns": watchdog.limit_ns, "restore_ns": watchdog.restore_ns}
        found["watchdog_action"] = "forward" if watchdog.forward else "drop"
    return found


def _sum_of_drops(stats: PortStats) -> Drops:
    drops = [each.dropped_packets for each in stats.classes]
    return Drops(
        egress=sum(each.egress for each in drops),
        shared=sum(each.shared for each in drops),
        headroom=sum(each.headroom for each in drops),
        watchdog=sum(each.watchdog for each in drops),
        flush=sum(each.flush for each in drops),
    )
