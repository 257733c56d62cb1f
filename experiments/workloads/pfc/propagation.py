"""How far a pause travels: many send to one host, and the pauses go back hop by hop to every sender's NIC.

    h1 --[leaf1]--[spine]--[leaf2]--> hN congested      leaf2 pauses the spine, the spine leaf1, leaf1 its hosts

Every pause frame is caught on the wire with the nanosecond at which it acts; the tree is made of those.
"""

from typing import Any

from experiments.port_plan import PortPlan
from experiments.workloads.pfc.pause_tree import Branch, pause_tree
from experiments.workloads.pfc.scenario import Scenario, drained_ns, hosts_by_leaf, leaf_above, nic_rate_bps, port_to
from experiments.workloads.pfc.stage import DATA, Played, Stage
from experiments.workloads.pfc.streams import Stream
from topologies.graph import distance, paths
from topologies.model import Topology


def obstacle(plan: PortPlan) -> str:
    """A tree needs a second level, and a port that is congested."""
    racks = hosts_by_leaf(plan.topology)
    if len(racks) < 2 or len(racks[-1]) < 2:
        return "it needs two leaves, so that there is a way to travel, with two hosts at the last"
    return ""


def play(stage: Stage, duration_ns: int) -> None:
    """Many to one, with one congested port."""
    lab, topology = stage.lab, stage.lab.topology
    receiver = topology.hosts[-1].name
    senders = senders_to(topology, receiver)
    streams = [Stream(name=host, source=host, destination=receiver, stop_ns=duration_ns) for host in senders]
    end_ns = drained_ns(topology, senders, duration_ns)
    played = stage.play(streams, end_ns=end_ns)
    data = [pause for pause in played.pauses if pause.index == DATA]
    tree = pause_tree(topology, port_to(topology, receiver), data, end_ns=played.start_ns + end_ns)
    lab.add("pause_tree", [_line(branch, played.start_ns) for branch in tree])
    _claim(stage, played, tree, senders)


def senders_to(topology: Topology, receiver: str) -> list[str]:
    """Hosts that together overload no port but the receiver's: all of its leaf, and of others, the farthest first, as
    many as every link could carry even if all of them took the same of their shortest paths.
    """
    last = leaf_above(topology, receiver)
    racks = {leaf_above(topology, hosts[0]): hosts for hosts in hosts_by_leaf(topology)}
    far = sorted((leaf for leaf in racks if leaf != last), key=lambda leaf: -distance(topology, leaf, last))
    spare = {end.name: topology.link_of[end.name].rate_bps for end in topology.interfaces()}
    chosen = []
    for place in range(max(map(len, racks.values()))):
        for leaf in far:
            used = {own.name for path in paths(topology, leaf, last) for own in path}
            if place < len(racks[leaf]):
                host = racks[leaf][place]
                rate_bps = nic_rate_bps(topology, host)
                if all(spare[name] >= rate_bps for name in used):
                    spare |= {name: spare[name] - rate_bps for name in used}
                    chosen.append(host)
    return [*chosen, *(host for host in racks[last] if host != receiver)]


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
    levels, depth = max((branch.level for branch in tree), default=0), _depth(topology, senders)
    lab.add_claim(
        "propagation: pauses travel from the congested port back to every sender",
        expected=f"{len(nics)} NICs paused, every pause after the one that caused it, {depth} levels",
        measured=f"{len(reached)} NICs, {sum(not branch.level for branch in tree)} pauses without a cause, "
        f"{levels} levels",
        holds=reached == nics and all(branch.level for branch in tree) and levels == depth,
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


def _depth(topology: Topology, senders: list[str]) -> int:
    """Cables from the farthest sender to the congested port's switch."""
    last = leaf_above(topology, topology.hosts[-1].name)
    return 1 + max(distance(topology, leaf_above(topology, host), last) for host in senders)


SCENARIO = Scenario(
    name="propagation",
    question="Whom does a congested port stop in the end, and when?",
    obstacle=obstacle,
    play=play,
)
