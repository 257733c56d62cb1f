"""How far a pause travels: everybody sends to one host, and the pauses go back hop by hop to every sender's NIC.

    h1 --[leaf1]--[spine]--[leaf2]--> hN congested      leaf2 pauses the spine, the spine leaf1, leaf1 its hosts

Every pause frame is caught on the wire with the nanosecond at which it acts; the tree is made of those.
"""

from typing import Any

from experiments.port_plan import PortPlan
from experiments.workloads.pfc.pause_tree import Branch, pause_tree
from experiments.workloads.pfc.scenario import Scenario, hosts_by_leaf, port_to
from experiments.workloads.pfc.stage import DATA, Played, Stage
from experiments.workloads.pfc.streams import Stream
from topologies.graph import distance, leaf_of
from topologies.model import Topology


def obstacle(plan: PortPlan) -> str:
    """A tree needs a second level."""
    return "" if len(hosts_by_leaf(plan.topology)) > 1 else "it needs two leaves, so that there is a way to travel"


def play(stage: Stage, duration_ns: int) -> None:
    """All to one."""
    lab, topology = stage.lab, stage.lab.topology
    *others, receiver = (host.name for host in topology.hosts)
    streams = [Stream(name=host, source=host, destination=receiver, stop_ns=duration_ns) for host in others]
    played = stage.play(streams, end_ns=duration_ns * (len(others) + 1))
    end_ns = played.start_ns + duration_ns * (len(others) + 1)
    data = [pause for pause in played.pauses if pause.index == DATA]
    tree = pause_tree(topology, port_to(topology, receiver), data, end_ns=end_ns)
    lab.add("pause_tree", [_line(branch, played.start_ns) for branch in tree])
    _claim(stage, played, tree, others)


def _line(branch: Branch, start_ns: int) -> dict[str, Any]:
    return {
        "port": branch.port,
        "paused_upstream_port": branch.paused,
        "level": branch.level,
        "because_of": branch.cause,
        "first_pause_us": round((branch.first_ns - start_ns) / 1e3, 3),
        "paused_us": round(branch.paused_ns / 1e3, 3),
        "pauses": branch.pauses,
    }


def _claim(stage: Stage, played: Played, tree: list[Branch], senders: list[str]) -> None:
    lab, topology = stage.lab, stage.lab.topology
    nics = {topology.interfaces_of[host][0].name for host in senders}
    reached = nics & {branch.paused for branch in tree}
    levels = max((branch.level for branch in tree), default=0)
    lab.add_claim(
        "propagation: pauses travel from the congested port back to every sender",
        expected=f"{len(nics)} NICs paused, every pause after the one that caused it, {_depth(topology)} levels",
        measured=f"{len(reached)} NICs, {sum(not branch.level for branch in tree)} pauses without a cause, "
        f"{levels} levels",
        holds=reached == nics and all(branch.level for branch in tree) and levels == _depth(topology),
    )
    off = [
        f"{branch.paused}: {branch.paused_ns} ns by its frames, {counted} ns by its counter"
        for branch in tree
        if (counted := played.grown(branch.paused, "paused_ns")) != branch.paused_ns
    ]
    lab.add_claim(
        "propagation: every port was paused for as long as the frames that it got say",
        expected="equal to the nanosecond at every paused port",
        measured="; ".join(off[:3]) if off else f"equal at all {len(tree)}",
        holds=bool(tree) and not off,
    )


def _depth(topology: Topology) -> int:
    """Cables from the farthest sender to the congested port's switch."""
    ends = [topology.interfaces_of[host.name][0].name for host in topology.hosts]
    last = leaf_of(topology, ends[-1]).name
    return 1 + max(distance(topology, leaf_of(topology, end).name, last) for end in ends[:-1])


SCENARIO = Scenario(
    name="propagation",
    question="Whom does a congested port stop in the end, and when?",
    obstacle=obstacle,
    play=play,
)
