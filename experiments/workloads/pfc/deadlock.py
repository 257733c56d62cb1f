r"""Deadlock: lossless traffic whose paths close a circle, and what ends it.

      h1 h2                 every host sends to its counterpart two switches on; clockwise from everywhere, each
        s1 --> s2           cable carries what its switch's hosts send and what came from the switch before
        ^      |
        |      v            s1 waits for s2, s2 for s3, s3 for s4, s4 for s1: once all four cables are paused,
        s4 <-- s3           none is ever resumed

Whether the paths of this run close a circle is computed from the controller's flow table.  If they do, the fabric must
stand still until watchdogs, switched on at the end, break it; if they do not, everything must arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.port_policies.decision import Lossless
from controller.port_policies.settings import Watchdog
from experiments.port_plan import PortPlan
from experiments.workloads.pfc.scenario import Scenario, hosts_by_leaf, longest_pause_ns, nic_rate_bps
from experiments.workloads.pfc.stage import BIN_NS, DATA, Change, Played, Reading, Stage, sleep_until
from experiments.workloads.pfc.streams import Stream, udp_port
from topologies.dependency import cycle
from topologies.graph import leaves, switch_cables
from topologies.model import Topology

WATCH_PAUSES, LIMIT_PAUSES, REST_PAUSES = 6, 3, 30
"""In times of the longest pause: what is still queued so long after the senders stopped waits for ever; the limit of
the watchdogs that then end it; how long they and what is left may take."""
STOPPED = 0.001
"""Of the throughput that the hosts could have: what may still arrive in a fabric that stands still."""
FLOWING = 0.1
"""Of that: what must arrive at least in one that does not."""


def obstacle(plan: PortPlan) -> str:
    """A ring of switches."""
    topology = plan.topology
    neighbours = [len({peer.node for _, peer in switch_cables(topology, each.name)}) for each in topology.switches]
    if len(topology.switches) < 4 or set(neighbours) != {2} or len(leaves(topology)) != len(topology.switches):
        return "it needs a ring of four switches or more with hosts at each: --topology ring"
    if len({len(hosts) for hosts in hosts_by_leaf(topology)}) != 1:
        return "it needs as many hosts at each switch"
    return ""


@dataclass(kw_only=True)
class _Watched:
    """What the ports said while the streams ran and afterwards."""

    stopped: Reading
    """When the senders stopped."""
    later: Reading
    """WATCH_PAUSES later."""
    freed: Reading
    """After the watchdogs."""


def play(stage: Stage, duration_ns: int) -> None:
    """Streams, a look at what is left, the watchdogs, a last look."""
    lab, topology = stage.lab, stage.lab.topology
    streams = ring_streams(topology, duration_ns)
    seen = _Watched(stopped={}, later={}, freed={})
    with stage.ports(_without_watchdog):
        played = stage.play(
            streams,
            end_ns=duration_ns + (WATCH_PAUSES + REST_PAUSES) * longest_pause_ns(topology),
            beside=lambda start_ns: _watch(stage, seen, start_ns + duration_ns),
        )
    circle = cycle(_paths(stage, streams))
    line = _line(stage, played, seen, circle, duration_ns)
    lab.add("deadlock", [line])
    lab.add("deadlock_goodput", _goodput(played, duration_ns))
    _claim(stage, line)


def ring_streams(topology: Topology, duration_ns: int) -> list[Stream]:
    """Every host to its counterpart two switches on, in the order of the ring."""
    racks = dict(zip((leaf.name for leaf in leaves(topology)), hosts_by_leaf(topology), strict=True))
    order = _ring_order(topology)
    return [
        Stream(name=f"{source} to {destination}", source=source, destination=destination, stop_ns=duration_ns)
        for place, here in enumerate(order)
        for source, destination in zip(racks[here], racks[order[(place + 2) % len(order)]], strict=True)
    ]


def _ring_order(topology: Topology) -> list[str]:
    """The switches along the ring, from the first through its lower port."""
    order = [topology.switches[0].name]
    while len(order) < len(topology.switches):
        order.append(next(peer.node for _, peer in switch_cables(topology, order[-1]) if peer.node not in order))
    return order


def _without_watchdog(_port: str, lossless: Lossless) -> Lossless:
    return replace(lossless, watchdog=None)


def _with_watchdog(limit_ns: int) -> Change:
    return lambda _, lossless: replace(lossless, watchdog=Watchdog(limit_ns=limit_ns))


def _watch(stage: Stage, seen: _Watched, stopped_ns: int) -> None:
    sleep_until(stopped_ns)
    seen.stopped = stage.read()
    pause_ns = longest_pause_ns(stage.lab.topology)
    sleep_until(stopped_ns + WATCH_PAUSES * pause_ns)
    seen.later = stage.read()
    stage.change(_with_watchdog(LIMIT_PAUSES * pause_ns))
    sleep_until(stopped_ns + (WATCH_PAUSES + REST_PAUSES - 1) * pause_ns)
    seen.freed = stage.read()


def _paths(stage: Stage, streams: Sequence[Stream]) -> list[list[str]]:
    """As the controller's flow table has them."""
    topology = stage.lab.topology
    address = {host.name: str(topology.interfaces_of[host.name][0].ip) for host in topology.hosts}
    ours = {(address[each.source], address[each.destination], udp_port(n)) for n, each in enumerate(streams)}
    flows = stage.lab.controller.ask({"do": "flows"})["flows"]
    return [flow["path"] for flow in flows if (flow["src"], flow["dst"], flow["dport"]) in ours]


def _waiting(reading: Reading) -> int:
    return sum(port.classes[DATA].queue_bytes for port in reading.values())


def _line(stage: Stage, played: Played, seen: _Watched, circle: Sequence[str], duration_ns: int) -> dict[str, Any]:
    last_ns = duration_ns * 3 // 4
    late = played.goodput_bps(range(len(played.streams)), last_ns, duration_ns)
    offered = sum(nic_rate_bps(stage.lab.topology, stream.source) for stream in played.streams)
    fired = [name for name in seen.freed if played.grown(name, "watchdog_fired")]
    return {
        "load_balancer": stage.lab.plan.composition.balancer_spec,
        "cyclic_dependency": "yes" if circle else "no",
        "cycle": " ".join(circle),
        "late_goodput_share": round(late / offered, 4),
        "waiting_bytes": _waiting(seen.stopped),
        "waiting_later_bytes": _waiting(seen.later),
        "paused_ports_later": sum(port.classes[DATA].paused for port in seen.later.values()),
        "watchdogs_fired": len(fired),
        "dropped_watchdog": played.dropped("watchdog"),
        "dropped": played.all_dropped,
        "waiting_at_the_end_bytes": _waiting(seen.freed),
        "paused_ports_at_the_end": sum(port.classes[DATA].paused for port in seen.freed.values()),
        "sent": sum(each.packets for each in played.sent),
        "received": sum(each.packets for each in played.received),
    }


def _goodput(played: Played, duration_ns: int) -> list[dict[str, Any]]:
    """Ten rows of time."""
    step_ns = max(BIN_NS, duration_ns // 10 // BIN_NS * BIN_NS)
    return [
        {
            "from_us": begin_ns / 1e3,
            "goodput_Gbps": round(
                played.goodput_bps(range(len(played.streams)), begin_ns, begin_ns + step_ns) / 1e9, 3
            ),
        }
        for begin_ns in range(0, duration_ns, step_ns)
    ]


def _claim(stage: Stage, line: dict[str, Any]) -> None:
    lab = stage.lab
    if line["cyclic_dependency"] == "no":
        lab.add_claim(
            "deadlock: paths without a cyclic dependency never stop, and every pause ends",
            expected=f"at least {FLOWING} of the line to the end, all received, nothing waits or is paused afterwards",
            measured=f"{line['late_goodput_share']}, {line['received']} of {line['sent']} received, "
            f"{line['waiting_later_bytes']} B wait, {line['paused_ports_later']} ports are paused",
            holds=line["late_goodput_share"] >= FLOWING
            and line["received"] == line["sent"]
            and line["waiting_later_bytes"] == line["paused_ports_later"] == line["watchdogs_fired"] == 0,
        )
        return
    cables, watch_ns = len(stage.lab.topology.switches), WATCH_PAUSES * longest_pause_ns(stage.lab.topology)
    lab.add_claim(
        f"deadlock: paths with a cyclic dependency ({line['cycle']}) stop the fabric for ever",
        expected=f"at most {STOPPED} of the line late; what waits when senders stop still does "
        f"{watch_ns / 1e6} ms later, behind {cables} paused ports at least",
        measured=f"{line['late_goodput_share']}, {line['waiting_bytes']} B, then {line['waiting_later_bytes']} B, "
        f"{line['paused_ports_later']} paused",
        holds=line["late_goodput_share"] <= STOPPED
        and 0 < line["waiting_bytes"] == line["waiting_later_bytes"]
        and line["paused_ports_later"] >= cables,
    )
    lab.add_claim(
        "deadlock: the watchdog breaks it",
        expected="it fires and drops; afterwards nothing waits, no port is paused, only what it dropped is missing",
        measured=f"{line['watchdogs_fired']} ports fired and dropped {line['dropped_watchdog']} packets, "
        f"{line['sent'] - line['received']} are missing; {line['waiting_at_the_end_bytes']} B wait",
        holds=line["watchdogs_fired"] > 0
        and line["sent"] - line["received"] == line["dropped_watchdog"] == line["dropped"]
        and line["waiting_at_the_end_bytes"] == line["paused_ports_at_the_end"] == 0,
    )


SCENARIO = Scenario(
    name="deadlock",
    question="Do paths that close a circle stop the fabric, and does a watchdog free it?",
    obstacle=obstacle,
    play=play,
)
