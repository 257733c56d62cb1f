"""Long flows of one congestion control into the first host, and the queue of its port in their steady state."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from experiments.lab import Lab
from experiments.port_plan import PortPlan
from experiments.results import Row
from experiments.workloads.long_flows import Seen, Window, program
from testbed.port.interface import PortCounters
from testbed.port.reading import Column
from testbed.sampler import Sampler
from topologies.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Flows:
    """One congestion control in its steady state."""

    cc: str
    k_bytes: int | None
    goodput: float
    """Payload that arrived, as a share of the receiver's link."""
    queue: Column
    """Bytes that waited at each sample."""
    longest_bytes: int
    counted: PortCounters
    before: PortCounters
    retransmissions: int
    timeouts: int

    @property
    def mean_bytes(self) -> float:
        """Over time: samples are equally spaced."""
        return float(np.mean(self.queue))

    def percentile(self, percent: float) -> int:
        """What the queue was not longer than for this share of the time."""
        return int(np.percentile(self.queue, percent, method="inverted_cdf"))

    def line(self) -> dict[str, Any]:
        """Of the tables."""
        sent = self.counted.sent_packets - self.before.sent_packets
        marked = self.counted.marked_packets - self.before.marked_packets
        return {
            "cc": self.cc,
            "k_bytes": self.k_bytes,
            "goodput_share": round(self.goodput, 4),
            "mean_queue_bytes": round(self.mean_bytes, 1),
            "p50_queue_bytes": self.percentile(50),
            "p99_queue_bytes": self.percentile(99),
            "longest_queue_bytes": self.longest_bytes,
            "empty_percent": round(float(np.mean(self.queue == 0)) * 100, 2),
            "marks": marked,
            "marked_percent": round(100 * marked / sent, 2) if sent else 0.0,
            "drops": self.counted.dropped_packets - self.before.dropped_packets,
            "retransmissions": self.retransmissions,
            "timeouts": self.timeouts,
        }


def steady_flows(lab: Lab, plan: PortPlan, *, cc: str, senders: int, window: Window, period_ns: int) -> Flows:
    """Runs them under `plan`, which is in force, and adds their row.  Raises UserError for more senders than hosts."""
    receiver, *others = (host.name for host in lab.topology.hosts)
    if not 1 <= senders <= len(others):
        raise UserError(f"--set senders={senders}: this topology has {len(others)} hosts beside the receiver")
    nic = lab.topology.interfaces_of[receiver][0]
    hot, link = lab.topology.peer_of[nic.name].name, lab.topology.link_of[nic.name]
    before = lab.sample()
    with Sampler(lab.fabric, interfaces=[hot], period_ns=period_ns) as sampler:
        hosts = [receiver, *others[:senders]]
        seen = cast("list[Seen]", lab.job(program, window, hosts=hosts, process_group=False, cc=cc))
    after = lab.sample()
    first, series = seen[0], sampler.series()[hot]
    inside = (series["now_ns"] >= first.begin_ns) & (series["now_ns"] < first.until_ns)
    lab.add_busy_ns(first.end_ns - first.start_ns)
    lab.add_rows([_row(cc, first, ranks=len(hosts), number=len(lab.rows))])
    marking = plan.decisions[hot].marking
    return Flows(
        cc=cc,
        k_bytes=marking.kmin_bytes if marking else None,
        goodput=sum(first.in_window_bytes) * 8e9 / (first.until_ns - first.begin_ns) / link.rate_bps,
        queue=series["queue_bytes"][inside],
        longest_bytes=int(series["peak_bytes"][inside].max()),
        counted=after[hot].port,
        before=before[hot].port,
        retransmissions=sum(each.counters.retransmitted_segments for each in seen),
        timeouts=sum(each.counters.timeouts for each in seen),
    )


def _row(cc: str, seen: Seen, *, ranks: int, number: int) -> Row:
    """Everything from the common start to the last byte, slow start included."""
    took_ns, size = seen.end_ns - seen.start_ns, seen.received_bytes
    return Row.of(op=cc, size_bytes=size, ranks=ranks, iteration=number, time_ns=took_ns, factor=1.0, wrong=0)
