"""Incast: N hosts answer one at the same instant.  When does the switch's last port overflow, and what does it cost?

    h2 ---\\
    h3 ----\\         N x size arrive at one port at N times its rate;
    h4 -----[leaf]---> h1      its buffer fills, then it drops; TCP repairs,
    ...    /                   and where it must wait for a timeout, it stalls
    hN+1 -/

The pattern of a parameter server's push, of gather, of a storage read, of the last phase of a reduce.  Every repetition
opens fresh connections (not timed), so every block begins with the initial window: N x 10 packets at once.

    ./run experiments/incast.py --topology star:hosts=33,buffer=100k --set sizes=32k,256k --set host.rto_min=1ms
    ./run experiments/incast.py --set policies=lossy,dctcp,roce --set buffers=1M,4M     (one fabric, ports change)
    ./run experiments/incast.py --set rto_mins=200ms,5ms --set policies=lossy --set buffers=500k --set sizes=256k

Expected: no drop while N x size fits the port's buffer; where the first flights alone exceed it and the wire, drops,
and more of them with N; goodput falls where `timeouts` says so, by rto_min each, and by less than one of them where
fast retransmission repairs the loss.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import mean
from typing import Any, cast

from pydantic import Field

from controller.port_policies.decision import PortDecision
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.ports_in_force import PortsInForce
from experiments.settings import Delays, Sizes, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.blocks import program
from experiments.workloads.incast_claims import claim
from experiments.workloads.messages import WireBytes
from experiments.workloads.samples import Iteration, Sample, Step, audit, iterations, row
from testbed.counters import Counters
from topologies.errors import UserError
from topologies.model import Link, Topology


class Settings(BaseSettings):
    """How many senders, how much from each."""

    fan_in: str = Field(
        default="auto", description="numbers of senders, comma separated; auto: powers of two and all others"
    )
    sizes: Sizes = Field(default=written("32k,256k,1M"), description="bytes that each sender sends")
    repetitions: int = Field(default=3, ge=1, description="measured repetitions of each, on fresh connections")
    warmup: int = Field(default=0, ge=0, description="repetitions before them")
    policies: str = Field(
        default="",
        description="ports and congestion controls to compare, as --policy takes them, separated by semicolons or, "
        "for bare names, commas: lossy,dctcp,roce; empty: the run's own",
    )
    rto_mins: Delays = Field(
        default=(), description="least retransmission timeouts to try, each with every other choice; empty: the run's"
    )
    buffers: Sizes = Field(
        default=(), description="buffers of the switch to try, comma separated, under each policy; empty: as it says"
    )


def run(lab: Lab, settings: Settings) -> None:
    """One job per number of senders; the first host receives."""
    table: list[dict[str, Any]] = []
    audits: list[dict[str, Any]] = []
    points = [(policy, size) for policy in policies(settings.policies) for size in settings.buffers or (None,)]
    if points == [("", None)]:
        _timers(lab, settings, {}, None, table, audits)
    else:
        with PortsInForce(lab) as ports:
            for policy, buffer_bytes in points:
                plan = ports.use(with_buffer(policy or lab.request.policy, buffer_bytes))
                cc = plan.composition.ports.cc if policy else None
                buffers = {decision.buffer_bytes for decision in plan.decisions.values() if decision.is_switch}
                labels = {"policy": policy or lab.request.policy, "buffer_bytes": max(buffers)}
                if not plan.composition.ports.pfc:
                    labels["room_bytes"] = room_bytes(plan.decisions[_hot(lab.topology)])
                _timers(lab, settings, labels, cc, table, audits)
    lab.add("incast", table)
    lab.add("audit", audits)
    claim(lab, table, _last_link(lab.topology, lab.topology.hosts[0].name))


def _timers(
    lab: Lab,
    settings: Settings,
    labels: Mapping[str, Any],
    cc: str | None,
    table: list[dict[str, Any]],
    audits: list[dict[str, Any]],
) -> None:
    """The grid under each least retransmission timeout."""
    own_us = lab.fabric.hosts.rto_min_us
    for rto_ns in settings.rto_mins:
        with ExitStack() as stack:
            for host in lab.topology.hosts:
                node = lab.fabric.net.get(host.name)
                stack.enter_context(node.rto_min(rto_ns // 1000, instead_of=own_us))
            _grid(lab, settings, {**labels, "rto_min_us": rto_ns // 1000}, cc, table, audits)
    if not settings.rto_mins:
        _grid(lab, settings, labels, cc, table, audits)


def _grid(
    lab: Lab,
    settings: Settings,
    labels: Mapping[str, Any],
    cc: str | None,
    table: list[dict[str, Any]],
    audits: list[dict[str, Any]],
) -> None:
    """Every number of senders and size, with the ports as they are; appends lines and audits."""
    receiver, *others = (host.name for host in lab.topology.hosts)
    last_link = _last_link(lab.topology, receiver)
    for senders in fan_ins(settings.fan_in, len(others)):
        for size_bytes in settings.sizes:
            hosts = [receiver, *others[:senders]]
            before = lab.sample()
            arguments = ((size_bytes,), settings.repetitions, settings.warmup)
            found = lab.job(program, *arguments, hosts=hosts, process_group=False, cc=cc)
            after = lab.sample()
            step = Step(op="incast", size_bytes=size_bytes * senders)
            measured = list(iterations([step], cast("list[list[list[Sample]]]", found)))
            for iteration in measured:
                lab.add_busy_ns(iteration.time_ns)
            kept = [iteration for iteration in measured if iteration.number >= 0]
            lab.add_rows(row(iteration, factor=1.0) for iteration in kept)
            audits += [audit(iteration, _wire(senders, size_bytes)) for iteration in kept]
            line = _line(senders, size_bytes, kept, _drops(after, before), last_link)
            table.append({**labels, **line, **_ports(after, before)})


def _hot(topology: Topology) -> str:
    """The switch port to the receiver."""
    return topology.peer_of[topology.interfaces_of[topology.hosts[0].name][0].name].name


def room_bytes(port: PortDecision) -> int:
    """What one lossy queue may grow to alone in its switch: q <= alpha x (buffer - q), and its limit if it has one.

    The reserves of the other ports, a frame each, are neglected: q is this much at most.
    """
    alpha = port.egress_alpha
    share = int(port.buffer_bytes * alpha / (1 + alpha)) if alpha else port.buffer_bytes
    return min(share, port.limit_bytes) if port.limit_bytes else share


def policies(text: str) -> list[str]:
    """What to compare: one with keys has commas of its own, so then semicolons separate."""
    return [part.strip() for part in text.split(";" if ":" in text or ";" in text else ",")]


def with_buffer(policy: str, buffer_bytes: int | None) -> str:
    """The policy with another buffer of its switches."""
    if buffer_bytes is None:
        return policy
    return f"{policy}{',' if ':' in policy else ':'}buffer={buffer_bytes}B"


def fan_ins(text: str, most: int) -> list[int]:
    """The numbers of senders to try.  Raises UserError."""
    if text == "auto":
        return sorted({2**power for power in range(most.bit_length())} | {most})
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--set fan_in={text}: write whole numbers separated by commas, or auto") from None
    for number in numbers:
        if not 1 <= number <= most:
            raise UserError(
                f"--set fan_in={number}: this topology has {most} hosts beside the receiver; write 1 to that"
            )
    return numbers


def _last_link(topology: Topology, host: str) -> Link:
    return topology.link_of[topology.interfaces_of[host][0].name]


def _drops(after: Mapping[str, Counters], before: Mapping[str, Counters]) -> int:
    return sum(after[name].port.dropped_packets - before[name].port.dropped_packets for name in after)


def _ports(after: Mapping[str, Counters], before: Mapping[str, Counters]) -> dict[str, int]:
    """What ports did meanwhile beside sending: marks, pauses, drops by cause where there were any."""
    found = {
        "marks": sum(after[name].port.marked_packets - before[name].port.marked_packets for name in after),
        "pauses": sum(after[name].port.pauses_sent - before[name].port.pauses_sent for name in after),
    }
    for cause in ("egress", "shared", "headroom"):
        drops = [(after[name].port.drops, before[name].port.drops) for name in after]
        count = sum(getattr(now, cause) - getattr(then, cause) for now, then in drops if now and then)
        found[f"dropped_{cause}"] = count
    return found


def _wire(senders: int, size_bytes: int) -> list[WireBytes]:
    return [WireBytes(rx=senders * size_bytes), *[WireBytes(tx=size_bytes)] * senders]


def _line(senders: int, size_bytes: int, kept: Sequence[Iteration], dropped: int, last_link: Link) -> dict[str, Any]:
    times_us = [iteration.time_ns / 1e3 for iteration in kept]
    counters = [one.counters for iteration in kept for one in iteration.samples]
    goodput = senders * size_bytes * 8e6 / mean(times_us) / last_link.rate_bps
    return {
        "senders": senders,
        "each_bytes": size_bytes,
        "mean_us": round(mean(times_us), 3),
        "worst_us": round(max(times_us), 3),
        "goodput_share": round(goodput, 4),
        "dropped": dropped,
        "retransmissions": sum(it.retransmitted_segments for it in counters),
        "timeouts": sum(it.timeouts for it in counters),
        "loss_probes": sum(it.loss_probes for it in counters),
        "most_timeouts": max(it.timeouts for it in counters),
    }


EXPERIMENT = Experiment(
    name="incast",
    question="From how many simultaneous senders on does the receiver's port overflow, and what does that cost?",
    settings=Settings,
    run=run,
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
