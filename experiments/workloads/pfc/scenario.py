"""What a scenario is, and the questions about a fabric that several of them ask.  Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.port_plan import PortPlan
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


def headroom_bytes(plan: PortPlan, port: str) -> int:
    """What the policy gives a switch port."""
    lossless = plan.decisions[port].lossless
    if lossless is None:
        raise InternalError(f"port {port} has no lossless class")
    return lossless.headroom_bytes
