r"""Incast without loss: N NICs at line rate into one port, with headrooms that suffice and with half of them.

    h1 ---\
    h2 ----[leaf]---> hN      the port sends a Nth of what comes; the rest fills the buffer, then everybody is paused;
    ...    /                  what is on its way when the pause is sent has to fit into the headroom of each ingress

The pause takes one delay to arrive, the last frame another, and so may one frame on each side: 2 x rate x delay and two
full frames.  HPCC's 3 x rate x delay is enough where two frames are shorter than the delay; the policies add frames.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.port_plan import PortPlan
from experiments.workloads.pfc.scenario import Scenario, drained_ns, headroom_bytes, port_to
from experiments.workloads.pfc.stage import DATA, Change, Played, Stage
from experiments.workloads.pfc.streams import Received, Stream
from testbed.counters import ETHERNET_HEADER_BYTES
from topologies.model import Link

MOST_SENDERS = 16
HALF, HPCC, HALF_HPCC = "half of it", "3 x rate x delay", "half of that"
FULL = 0.999
"""Of the line, from the first packet to the last: what a port that always has a queue must send."""


def obstacle(plan: PortPlan) -> str:
    """Two senders are an incast."""
    return "" if len(plan.topology.hosts) > 2 else "it needs three hosts at least"


def play(stage: Stage, duration_ns: int) -> None:
    """Once with each headroom."""
    lab = stage.lab
    *others, receiver = (host.name for host in lab.topology.hosts)
    senders = others[-MOST_SENDERS:]
    streams = [Stream(name=host, source=host, destination=receiver, stop_ns=duration_ns) for host in senders]
    policy = {name: headroom_bytes(lab.plan, name) for name, each in lab.plan.decisions.items() if each.is_switch}
    bare = {name: round_trip_and_a_half_bytes(lab.topology.link_of[name]) for name in policy}
    headrooms = {"policy": policy, HALF: halved(policy), HPCC: bare, HALF_HPCC: halved(bare)}
    table, plays = [], []
    for name, headroom in headrooms.items():
        with stage.ports(_with(headroom)):
            plays.append(stage.play(streams, end_ns=drained_ns(lab.topology, senders, duration_ns)))
        table.append(_line(stage, name, headroom, plays[-1]))
    lab.add("incast", table)
    _claim(stage, plays, {line["headroom"]: line for line in table})


def round_trip_and_a_half_bytes(link: Link) -> int:
    """3 x rate x delay: HPCC's headroom, one delay more than a pause and what it stops need."""
    return -(-3 * link.rate_bps * link.delay_ns // (8 * 10**9))


def halved(headrooms: Mapping[str, int]) -> dict[str, int]:
    """Half of each."""
    return {port: headroom // 2 for port, headroom in headrooms.items()}


def _with(headrooms: Mapping[str, int]) -> Change:
    return lambda port, lossless: replace(lossless, headroom_bytes=headrooms[port])


def _line(stage: Stage, name: str, headrooms: Mapping[str, int], played: Played) -> dict[str, Any]:
    topology = stage.lab.topology
    hot = port_to(topology, played.streams[0].destination)
    ingresses = [port_to(topology, stream.source) for stream in played.streams]
    nics = [topology.peer_of[port].name for port in ingresses]
    whole = Received.together(played.received)
    overhead_bytes = stage.lab.plan.decisions[hot].overhead_bytes * (whole.packets - 1)
    bits = 8 * (whole.bytes - topology.mtu - ETHERNET_HEADER_BYTES + overhead_bytes)
    span_ns = whole.last_ns - whole.first_ns
    return {
        "headroom": name,
        "headroom_bytes": headrooms[ingresses[0]],
        "headroom_peak_bytes": max(played.after[port].classes[DATA].headroom_peak_bytes for port in ingresses),
        "senders": len(played.streams),
        "sent": sum(each.packets for each in played.sent),
        "received": whole.packets,
        "dropped_headroom": played.dropped("headroom"),
        "dropped": played.all_dropped,
        "line_share": round(bits * 1e9 / span_ns / topology.link_of[hot].rate_bps, 5),
        "pauses_sent": sum(played.grown(port, "pauses_sent") for port in ingresses),
        "pauses_received": sum(played.grown(nic, "pauses_received") for nic in nics),
        "paused_us": round(sum(played.grown(nic, "paused_ns") for nic in nics) / 1e3, 3),
    }


def _claim(stage: Stage, plays: Sequence[Played], lines: Mapping[str, dict[str, Any]]) -> None:
    lab, link = stage.lab, stage.lab.topology.link_of[port_to(stage.lab.topology, plays[0].streams[0].source)]
    pairs = [("policy", HALF, "the policy's headroom")]
    if link.rate_bps * link.delay_ns >= 2 * (lab.topology.mtu + 14) * 8 * 10**9:
        pairs.append((HPCC, HALF_HPCC, "a headroom of 3 x rate x delay"))
    for name, half_name, words in pairs:
        whole, half = lines[name], lines[half_name]
        lab.add_claim(
            f"incast: {whole['senders']} NICs at line rate into one lose nothing with {words}",
            expected=f"0 drops, at least {FULL} of the line",
            measured=f"{whole['dropped']} drops of {whole['sent']}, {whole['line_share']:.4f} of the line",
            holds=whole["dropped"] == 0 and whole["sent"] == whole["received"] and whole["line_share"] >= FULL,
        )
        lab.add_claim(
            f"incast: with half of {words} packets are lost, and for want of headroom",
            expected="drops for want of headroom, as many as packets are missing",
            measured=f"{half['dropped_headroom']} of {half['dropped']} drops, "
            f"{half['sent'] - half['received']} missing",
            holds=0 < half["dropped_headroom"] == half["dropped"] == half["sent"] - half["received"],
        )
    off = [line for played in plays for line in uneven(stage, played)]
    frames = sum(len(played.pauses) for played in plays)
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
