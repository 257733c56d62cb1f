r"""Head-of-line blocking: a flow that shares a paused class, but not the congested port.

    h1 --+                        +--> h5    congested: h1 and local hosts send here; leaf2 pauses the uplink
    h2 --+ [leaf1]====[leaf2] ----+--> h6    the victim: nobody else sends here, and the uplink has room for both
                          |
                      h7, h8 (local senders)

Once alone, once beside the incast in its class, once beside it in a class of its own.
"""

from collections.abc import Sequence
from typing import Any

from experiments.port_plan import PortPlan
from experiments.workloads.pfc.scenario import Scenario, drained_ns, hosts_by_leaf, leaf_above, nic_rate_bps
from experiments.workloads.pfc.stage import DATA, Played, Stage
from experiments.workloads.pfc.streams import Stream
from topologies.graph import path_count, paths
from topologies.model import Topology

LOCAL_SENDERS = 3
UNHURT = 0.98
"""Of its throughput alone: what a victim in a class of its own must keep (it loses under 2%)."""
HURT = 0.8
"""What a victim in the paused class keeps at most; how little depends on the share that the feeder gets."""
SAME_PACE = 0.1
"""Of the victim's throughput alone: how near it comes to the feeder that it waits behind, packet for packet."""


def _sides(topology: Topology) -> tuple[list[str], list[str]]:
    """Hosts of two leaves: where feeder and victim send, and where they send to."""
    racks = hosts_by_leaf(topology)
    return racks[0], racks[-1]


def other_class(plan: PortPlan) -> tuple[int, int] | None:
    """(DSCP, class) that is not the data class."""
    return next(((dscp, index) for dscp, index in plan.composition.ports.classes if index != DATA), None)


def obstacle(plan: PortPlan) -> str:
    """It takes two leaves, one path between them with room for two NICs, and a second class."""
    topology = plan.topology
    near, far = _sides(topology)
    if near is far or len(near) < 2 or len(far) < 4:
        return "it needs two leaves, with two hosts at the first and four at the last"
    here, there = leaf_above(topology, near[0]), leaf_above(topology, far[0])
    if path_count(topology, here, there) != 1:
        return "feeder and victim must share their path: give the fabric one spine"
    rates = [topology.link_of[hop.name].rate_bps for hop in paths(topology, here, there)[0]]
    if min(rates) < nic_rate_bps(topology, near[0]) + nic_rate_bps(topology, near[1]):
        return "the links between leaves must carry two NICs at once, so that only a pause can hurt: uplink_rate=400G"
    if other_class(plan) is None:
        return "it needs a second class: classes=8:1"
    return ""


def play(stage: Stage, duration_ns: int) -> None:
    """Three times the victim."""
    lab, topology = stage.lab, stage.lab.topology
    near, far = _sides(topology)
    found = other_class(lab.plan)
    assert found is not None  # obstacle() has asked
    dscp, index = found
    hot, quiet, *local = far
    crowd = [near[0], *local[:LOCAL_SENDERS]]
    incast = [Stream(name=f"feeder {host}", source=host, destination=hot, stop_ns=duration_ns) for host in crowd]
    cases: Sequence[tuple[str, int, Sequence[Stream]]] = (
        ("alone", 0, ()),
        ("in the paused class", 0, incast),
        (f"in class {index}", dscp, incast),
    )
    table = []
    for name, mark, others in cases:
        victim = Stream(name="victim", source=near[1], destination=quiet, dscp=mark, stop_ns=duration_ns)
        played = stage.play([victim, *others], end_ns=drained_ns(topology, [near[1], *crowd], duration_ns))
        table.append(_line(topology, name, mark, played, duration_ns))
    for line in table:
        line["kept_share"] = round(line["victim_Gbps"] / table[0]["victim_Gbps"], 4)
    lab.add("victim", table)
    _claim(stage, table)


def _line(topology: Topology, name: str, dscp: int, played: Played, duration_ns: int) -> dict[str, Any]:
    begin_ns, victim = duration_ns // 2, played.streams[0]
    path = paths(topology, leaf_above(topology, victim.source), leaf_above(topology, victim.destination))[0]
    nic = topology.interfaces_of[victim.source][0].name
    rates = [played.goodput_bps([number], begin_ns, duration_ns) for number in range(len(played.streams))]
    others = range(1, len(rates))
    return {
        "victim": name,
        "dscp": dscp,
        "victim_Gbps": round(rates[0] / 1e9, 3),
        "feeder_Gbps": round(rates[1] / 1e9, 3) if len(rates) > 1 else 0.0,
        "hot_port_Gbps": round(played.goodput_bps(others, begin_ns, duration_ns) / 1e9, 3) if others else 0.0,
        "path_paused_us": round(max(played.grown(hop.name, "paused_ns") for hop in path) / 1e3, 3),
        "victim_nic_paused_us": round(played.grown(nic, "paused_ns") / 1e3, 3),
        "pauses": sum(pause.quanta > 0 for pause in played.pauses),
        "dropped": played.all_dropped,
    }


def _claim(stage: Stage, table: Sequence[dict[str, Any]]) -> None:
    lab, (alone, same, own) = stage.lab, table
    apart = abs(same["victim_Gbps"] - same["feeder_Gbps"]) / alone["victim_Gbps"]
    lab.add_claim(
        "victim: in the paused class it loses throughput although its own ports have room",
        expected=f"at most {HURT} of its throughput alone, the pace of the feeder within {SAME_PACE}, its path paused",
        measured=f"{same['kept_share']:.3f}, {apart:.3f} from the feeder, paused for {same['path_paused_us']} us",
        holds=same["kept_share"] <= HURT and apart <= SAME_PACE and same["path_paused_us"] > 0,
    )
    lab.add_claim(
        "victim: in a class of its own it loses nothing",
        expected=f"more than {UNHURT} of its throughput alone",
        measured=f"{own['kept_share']:.4f}",
        holds=own["kept_share"] > UNHURT,
    )


SCENARIO = Scenario(
    name="victim",
    question="What does a pause cost a flow that is not congested?",
    obstacle=obstacle,
    play=play,
)
