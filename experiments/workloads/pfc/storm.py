r"""A broken NIC that pauses its switch for ever, and the watchdog that ends it.

    h1 --[leaf1]====[leaf2]--> hN          h1 sends to the broken host and to another; what waits for the first fills
                        |                  the buffers all the way back, h1's NIC is paused, and the second flow, the
                        +----> h(N-1)      victim, starves too

Four times: without a watchdog; with one that drops; with one that ignores the pause; and a pause that is shorter than
the limit.  The limit is the policy's.  A storm is PFC frames from a raw socket, repeated before they run out.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.port_policies.settings import Watchdog
from experiments.port_plan import PortPlan
from experiments.workloads.pfc.scenario import Scenario, drained_ns, line_time_ns, nic_rate_bps, port_to
from experiments.workloads.pfc.stage import DATA, Change, Played, Stage, sleep_until
from experiments.workloads.pfc.streams import Storm, Stream
from testbed.port.config import MAX_PAUSE_QUANTA
from testbed.port.pfc_frame import QUANTUM_BITS, duration_ns

CALM_BYTES = 2_500_000
"""Streams run undisturbed for as long as a NIC takes to send this, before a storm and after: 200 us at 100 Gb/s."""
LEAST_LIMIT_NS = 1_000_000
NEAR_NS = 10_000
"""How far around the expected time one looks."""
STEP_NS = 1_000
"""Between two looks at the port: what a time that is read off it is exact to."""
RECOVERED = 0.95
"""Of its throughput before the storm: what the victim must have again while the watchdog acts."""
STARVED = 0.01
"""The same while nothing acts: what may still come."""
VICTIM, AFTERWARDS = 1, 2
"""Numbers of streams."""
QUEUE_BYTES = 125_000
"""What the victim's receiver sends to the broken host just before the storm, so that something waits when the pause
comes: the watchdog counts from the first packet that waits behind a pause."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    name: str
    watchdog: Watchdog | None
    storm: Storm
    again_ns: int
    """When streams run again, after the storm and the time that a watchdog takes to let go."""
    end_ns: int
    """When all of that has gone."""

    @property
    def calm_ns(self) -> int:
        """Without disturbance, from the start."""
        return self.storm.start_ns


@dataclass(kw_only=True)
class _Seen:
    """Times of the monotonic clock; 0 for what did not happen."""

    fired_ns: int = 0
    restored_ns: int = 0


def obstacle(plan: PortPlan) -> str:
    """Three hosts and a limit."""
    if len(plan.topology.hosts) < 3:
        return "it needs three hosts at least"
    watchdog = plan.composition.ports.watchdog
    if watchdog is None or watchdog.limit_ns < LEAST_LIMIT_NS:
        return f"it needs a policy with a watchdog of {LEAST_LIMIT_NS / 1e6:g} ms at least: watchdog=200ms"
    return ""


def play(stage: Stage, length_ns: int) -> None:
    """All four."""
    watchdog = stage.lab.plan.composition.ports.watchdog
    assert watchdog is not None  # obstacle() has asked
    limit_ns = watchdog.limit_ns
    drop, forward = (replace(watchdog, forward=each) for each in (False, True))
    longer_ns = limit_ns + 2 * line_time_ns(stage.lab.topology, CALM_BYTES) + length_ns
    cases = (
        _case(stage, "off", None, longer_ns, limit_ns),
        _case(stage, "drop", drop, longer_ns, limit_ns),
        _case(stage, "forward", forward, longer_ns, limit_ns),
        _case(stage, "drop, shorter pause", drop, limit_ns // 2, limit_ns),
    )
    table = []
    for case in cases:
        with stage.ports(_watched(case.watchdog)):
            table.append(_play(stage, case, limit_ns))
    stage.lab.add("storm", table)
    _claim(stage, table, limit_ns)


def _case(stage: Stage, name: str, watchdog: Watchdog | None, storm_ns: int, limit_ns: int) -> _Case:
    """A storm that sends frames for `storm_ns`, or a little less where it must be over by then."""
    broken = stage.lab.topology.hosts[-1].name
    rate_bps = nic_rate_bps(stage.lab.topology, broken)
    quanta = min(MAX_PAUSE_QUANTA, storm_ns * rate_bps // (4 * QUANTUM_BITS * 10**9))
    calm_ns = line_time_ns(stage.lab.topology, CALM_BYTES)
    last_ns = calm_ns + storm_ns - (0 if storm_ns > limit_ns else duration_ns(quanta, rate_bps))
    storm = Storm(host=broken, index=DATA, quanta=quanta, rate_bps=rate_bps, start_ns=calm_ns, stop_ns=last_ns)
    sender, again_ns = stage.lab.topology.hosts[0].name, storm.over_ns + limit_ns + calm_ns
    end_ns = again_ns + drained_ns(stage.lab.topology, [sender], calm_ns)
    return _Case(name=name, watchdog=watchdog, storm=storm, again_ns=again_ns, end_ns=end_ns)


def _watched(watchdog: Watchdog | None) -> Change:
    return lambda _, lossless: replace(lossless, watchdog=watchdog)


def _play(stage: Stage, case: _Case, limit_ns: int) -> dict[str, Any]:
    """Streams before the storm, through it, and again when all is over."""
    sender, *_, other, broken = (host.name for host in stage.lab.topology.hosts)
    calm_ns, until_ns, again_ns = case.calm_ns, case.storm.stop_ns, case.again_ns
    queue_ns = line_time_ns(stage.lab.topology, QUEUE_BYTES)
    streams = [
        Stream(name="into the storm", source=sender, destination=broken, stop_ns=until_ns),
        Stream(name="victim", source=sender, destination=other, stop_ns=until_ns),
        Stream(name="afterwards", source=sender, destination=broken, start_ns=again_ns, stop_ns=again_ns + calm_ns),
        Stream(name="queue", source=other, destination=broken, start_ns=calm_ns - queue_ns, stop_ns=calm_ns),
    ]
    seen, port = _Seen(), port_to(stage.lab.topology, broken)
    played = stage.play(
        streams,
        end_ns=case.end_ns,
        storms=(case.storm,),
        beside=lambda start_ns: _watch(stage, port, seen, case, limit_ns, start_ns),
    )
    return _line(stage, case, played, seen, limit_ns)


def _watch(stage: Stage, port: str, seen: _Seen, case: _Case, limit_ns: int, start_ns: int) -> None:
    """Looks at the port a step at a time where something should happen."""
    arrives_ns = stage.lab.topology.link_of[port].delay_ns
    fires_ns = start_ns + case.storm.start_ns + arrives_ns + limit_ns
    over_ns = start_ns + case.storm.over_ns + arrives_ns
    if fires_ns < over_ns:
        seen.fired_ns = _turns(stage, port, "storm", fires_ns)
        seen.restored_ns = _turns(stage, port, "storm", over_ns + limit_ns)


def _turns(stage: Stage, port: str, state: str, about_ns: int) -> int:
    """When this state of the port's class changes, near a time; 0 if it does not."""
    sleep_until(about_ns - NEAR_NS)
    before = getattr(stage.data(port), state)
    while (now_ns := time.monotonic_ns()) < about_ns + NEAR_NS:
        sleep_until(now_ns + STEP_NS)
        if getattr(stage.data(port), state) != before:
            return time.monotonic_ns()
    return 0


def _line(stage: Stage, case: _Case, played: Played, seen: _Seen, limit_ns: int) -> dict[str, Any]:
    topology, storm = stage.lab.topology, case.storm
    nic = topology.interfaces_of[storm.host][0].name
    frames = [pause.at_ns for pause in played.pauses if pause.port == nic]
    over_ns = frames[-1] + storm.pause_ns
    calm = played.goodput_bps([VICTIM], case.calm_ns // 4, case.calm_ns)
    late_ns = min(limit_ns + 2 * case.calm_ns, storm.stop_ns - case.calm_ns)
    late = played.goodput_bps([VICTIM], late_ns, storm.stop_ns)
    fired = [name for name in played.after if played.grown(name, "watchdog_fired")]
    return {
        "watchdog": case.name,
        "limit_us": limit_ns / 1e3 if case.watchdog else None,
        "pause_us": round((storm.over_ns - storm.start_ns) / 1e3, 3),
        "fired_ports": len(fired),
        "fired_after_us": round((seen.fired_ns - frames[0]) / 1e3, 3) if seen.fired_ns else None,
        "restored_after_us": round((seen.restored_ns - over_ns) / 1e3, 3) if seen.restored_ns else None,
        "victim_before_Gbps": round(calm / 1e9, 3),
        "victim_late_Gbps": round(late / 1e9, 3),
        "dropped_watchdog": played.dropped("watchdog"),
        "dropped": played.all_dropped,
        "lost": played.lost_packets,
        "lost_afterwards": played.sent[AFTERWARDS].packets - played.received[AFTERWARDS].packets,
    }


def _claim(stage: Stage, table: Sequence[dict[str, Any]], limit_ns: int) -> None:
    lab, (off, drop, forward, short) = stage.lab, table
    limit_us = limit_ns / 1e3
    lab.add_claim(
        "storm: without a watchdog one broken NIC starves a flow that does not go to it",
        expected=f"at most {STARVED} of its throughput before, for as long as it lasts; nothing is lost",
        measured=f"{off['victim_late_Gbps']} of {off['victim_before_Gbps']} Gb/s, {off['lost']} lost",
        holds=off["victim_late_Gbps"] <= STARVED * off["victim_before_Gbps"] and not off["lost"] + off["fired_ports"],
    )
    for line in (drop, forward):
        # what is dropped is gone at once, so upstream nobody waits for longer; what is forwarded takes its time to go
        ports = "the broken port alone" if line is drop else "the broken port"
        lab.add_claim(
            f"storm: a watchdog ({line['watchdog']}) fires at its limit and lets go after it",
            expected=f"{ports} fired, {limit_us} us after the pause came and again after it ended, "
            f"{STEP_NS / 1e3} us later at most; all arrives afterwards",
            measured=f"{line['fired_ports']} fired, {line['fired_after_us']} us and {line['restored_after_us']} us, "
            f"{line['lost_afterwards']} lost afterwards",
            holds=(line["fired_ports"] == 1 if line is drop else line["fired_ports"] >= 1)
            and _at(limit_us, line["fired_after_us"])
            and _at(limit_us, line["restored_after_us"])
            and not line["lost_afterwards"],
        )
        lab.add_claim(
            f"storm: under the watchdog ({line['watchdog']}) the victim has its throughput again",
            expected=f"at least {RECOVERED} of what it was before; lost: "
            + ("what the watchdog dropped" if line is drop else "nothing"),
            measured=f"{line['victim_late_Gbps']} of {line['victim_before_Gbps']} Gb/s, {line['lost']} lost, "
            f"{line['dropped_watchdog']} dropped by the watchdog",
            holds=line["victim_late_Gbps"] >= RECOVERED * line["victim_before_Gbps"]
            and line["lost"] == line["dropped_watchdog"] == line["dropped"]
            and (line["lost"] > 0) == (line is drop),
        )
    lab.add_claim(
        "storm: a pause shorter than the limit leaves the watchdog silent",
        expected="fired nowhere, nothing lost",
        measured=f"fired at {short['fired_ports']} ports, {short['lost']} lost after {short['pause_us']} us of pause",
        holds=not short["fired_ports"] and not short["lost"],
    )


def _at(limit_us: float, measured_us: float | None) -> bool:
    return measured_us is not None and limit_us <= measured_us <= limit_us + STEP_NS / 1e3


SCENARIO = Scenario(
    name="storm",
    question="What does a NIC that pauses for ever do, and when does the watchdog end it?",
    obstacle=obstacle,
    play=play,
)
