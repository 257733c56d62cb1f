r"""Incast without loss: N NICs at line rate into one port, with the policy's headroom and with half of it.

    h1 ---\
    h2 ----[leaf]---> hN      the port sends a Nth of what comes; the rest fills the buffer, then everybody is paused;
    ...    /                  what is on its way when the pause is sent has to fit into the headroom of each ingress
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controller.port_policies.decision import Lossless
from experiments.port_plan import PortPlan
from experiments.workloads.pfc.scenario import Scenario, headroom_bytes, port_to
from experiments.workloads.pfc.stage import DATA, Change, Played, Stage
from experiments.workloads.pfc.streams import Stream

MOST_SENDERS = 16
FULL = 0.99
"""Of the line, payload and headers: what a port that always has a queue must send."""


def obstacle(plan: PortPlan) -> str:
    """Two senders are an incast."""
    return "" if len(plan.topology.hosts) > 2 else "it needs three hosts at least"


def play(stage: Stage, duration_ns: int) -> None:
    """Once with each headroom."""
    lab = stage.lab
    *others, receiver = (host.name for host in lab.topology.hosts)
    senders = others[-MOST_SENDERS:]
    streams = [Stream(name=host, source=host, destination=receiver, stop_ns=duration_ns) for host in senders]
    table, plays = [], {}
    changes: Mapping[str, Change] = {"policy": lambda lossless: lossless, "half": halved}
    for name, change in changes.items():
        with stage.ports(change):
            plays[name] = played = stage.play(streams, end_ns=_end_ns(duration_ns, len(senders)))
        table.append(_line(stage, name, played, receiver, duration_ns))
    lab.add("incast", table)
    _claim(stage, plays, table)


def halved(lossless: Lossless) -> Lossless:
    """Half of the headroom."""
    return replace(lossless, headroom_bytes=lossless.headroom_bytes // 2)


def _end_ns(duration_ns: int, senders: int) -> int:
    """When the buffer is surely empty again: all that was sent in `duration_ns` and more has gone through one port."""
    return duration_ns * (senders + 1)


def _line(stage: Stage, name: str, played: Played, receiver: str, duration_ns: int) -> dict[str, Any]:
    topology = stage.lab.topology
    hot = port_to(topology, receiver)
    ingresses = [port_to(topology, stream.source) for stream in played.streams]
    nics = [topology.peer_of[port].name for port in ingresses]
    begin_ns = duration_ns // 2
    goodput = sum(played.goodput_bps(i, begin_ns, duration_ns) for i in range(len(played.streams)))
    full = headroom_bytes(stage.lab.plan, ingresses[0])
    return {
        "headroom": name,
        "headroom_bytes": full // 2 if name == "half" else full,
        "headroom_peak_bytes": max(played.after[port].classes[DATA].headroom_peak_bytes for port in ingresses),
        "senders": len(played.streams),
        "sent": sum(each.packets for each in played.sent),
        "received": sum(each.packets for each in played.received),
        "dropped_headroom": played.dropped("headroom"),
        "dropped": played.all_dropped,
        "goodput_share": round(goodput / topology.link_of[hot].rate_bps, 4),
        "pauses_sent": sum(played.grown(port, "pauses_sent") for port in ingresses),
        "pauses_received": sum(played.grown(nic, "pauses_received") for nic in nics),
        "paused_us": round(sum(played.grown(nic, "paused_ns") for nic in nics) / 1e3, 3),
    }


def _claim(stage: Stage, plays: Mapping[str, Played], table: list[dict[str, Any]]) -> None:
    lab, (whole, half) = stage.lab, table
    lab.add_claim(
        f"incast: {whole['senders']} NICs at line rate into one lose nothing with the policy's headroom",
        expected=f"0 drops, at least {FULL} of the line",
        measured=f"{whole['dropped']} drops of {whole['sent']}, {whole['goodput_share']:.3f} of the line",
        holds=whole["dropped"] == 0 and whole["sent"] == whole["received"] and whole["goodput_share"] >= FULL,
    )
    lab.add_claim(
        "incast: with half of the headroom packets are lost, all of them for want of headroom",
        expected="drops for want of headroom, as many as packets are missing",
        measured=f"{half['dropped_headroom']} of {half['dropped']} drops, {half['sent'] - half['received']} missing",
        holds=0 < half["dropped_headroom"] == half["dropped"] == half["sent"] - half["received"],
    )
    off = [line for played in plays.values() for line in uneven(stage, played)]
    frames = sum(len(played.pauses) for played in plays.values())
    lab.add_claim(
        "incast: every pause is a frame on the wire and is counted at both ends",
        expected="at every cable: pauses and resumes sent = seen on the wire = received",
        measured="; ".join(off[:3]) if off else f"equal at all cables, {frames} frames",
        holds=frames > 0 and not off,
    )


def uneven(stage: Stage, played: Played) -> list[str]:
    """The switch ports whose pause frames differ between counters at both ends and the wire, in words."""
    found = []
    for end in stage.lab.topology.interfaces():
        if end.node not in stage.lab.topology.switch_named:
            continue
        peer = stage.lab.topology.peer_of[end.name].name
        seen = [pause.quanta for pause in played.pauses if pause.port == end.name]
        for what, frames in (("pauses", sum(map(bool, seen))), ("resumes", seen.count(0))):
            sent, received = played.grown(end.name, f"{what}_sent"), played.grown(peer, f"{what}_received")
            if not sent == frames == received:
                found.append(f"{end.name}: {sent} {what} sent, {frames} seen, {received} received at {peer}")
    return found


SCENARIO = Scenario(
    name="incast",
    question="How much headroom does it take to lose nothing?",
    obstacle=obstacle,
    play=play,
)
