"""What a scenario is, and the questions about a fabric that several of them ask.  Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.port_plan import PortPlan
from testbed.port.config import MAX_PAUSE_QUANTA
from testbed.port.pfc_frame import duration_ns
from topologies.errors import InternalError
from topologies.graph import hosts_below, leaf_of, leaves
from topologies.model import Topology

if TYPE_CHECKING:
    from experiments.workloads.pfc.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One question about pauses."""

    name: str
    question: str
    obstacle: Callable[[PortPlan], str]
    """Why it cannot be played on this fabric with this policy, in words that say what would do; empty if it can."""
    play: Callable[["Stage", int], None]
    """Plays it, with streams of so many nanoseconds, and adds tables and claims to the run."""


def hosts_by_leaf(topology: Topology) -> list[list[str]]:
    """Names of the hosts of each leaf, in the topology's order; a host on several leaves counts at its first NIC's."""
    found = []
    for leaf in leaves(topology):
        ends = [end for end in hosts_below(topology, leaf.name) if end == topology.interfaces_of[end.node][0]]
        found.append([end.node for end in ends])
    return found


def port_to(topology: Topology, host: str) -> str:
    """The switch port in front of a host's first NIC."""
    return topology.peer_of[topology.interfaces_of[host][0].name].name


def leaf_above(topology: Topology, host: str) -> str:
    """The switch of a host's first NIC."""
    return leaf_of(topology, topology.interfaces_of[host][0].name).name


def nic_rate_bps(topology: Topology, host: str) -> int:
    """Of a host's first NIC."""
    return topology.link_of[topology.interfaces_of[host][0].name].rate_bps


def line_time_ns(topology: Topology, size_bytes: int) -> int:
    """What the slowest NIC takes to send so much: times that scale with the fabric's rates."""
    slowest_bps = min(nic_rate_bps(topology, host.name) for host in topology.hosts)
    return -(-size_bytes * 8 * 10**9 // slowest_bps)


def drained_ns(topology: Topology, senders: Sequence[str], duration_ns: int) -> int:
    """When all that these hosts send in `duration_ns` has surely gone, even if it all went through the slowest link."""
    sent_bps = sum(nic_rate_bps(topology, host) for host in senders)
    return duration_ns * (1 - -sent_bps // min(link.rate_bps for link in topology.links))


def longest_pause_ns(topology: Topology) -> int:
    """What one frame can ask for at most, on the slowest link."""
    return duration_ns(MAX_PAUSE_QUANTA, min(link.rate_bps for link in topology.links))


def headroom_bytes(plan: PortPlan, port: str) -> int:
    """What the policy gives a switch port."""
    lossless = plan.decisions[port].lossless
    if lossless is None:
        raise InternalError(f"port {port} has no lossless class")
    return lossless.headroom_bytes
