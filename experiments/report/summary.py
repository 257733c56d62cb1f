"""What a run's figures say, in sentences that name the link, the host and the share.  Pure.

    collision   of the uplinks of a switch one carries more flows than its part
    incast      several hosts send to one, and its last port drops, marks, pauses or queues
    straggler   one rank comes last to collectives, and others wait for it
    halting     how long ranks that compute stand still for the network or for each other
    bottleneck  which link, and which queue, the bytes of training steps waited for
    stall       nothing moves although ranks communicate
    losses      where packets were dropped
    tcp         what TCP sent again, and what reached it out of order

Each is found from results.json alone, or from samples where it needs time; what cannot be known is not said.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from experiments.report.axes import BYTES, TIMES, scaled
from experiments.report.bottlenecks import sentences
from experiments.report.figure import Run
from experiments.report.waits import Waits, all_communicate, job_waits
from experiments.results import FlowPath, LinkUse
from experiments.training.accounting import common, length, union
from experiments.training.diagnosis import LATE
from topologies.capacity import levels

DATA = 0.1
"""A flow that carries less than this share of the largest carries acknowledgements, or matters little."""
UNEVEN = 1.2
"""Bytes of an uplink over the mean of its switch's, from which a collision is told."""
LEAST_FAN_IN = 3
LEAST_SHARE = 0.05
"""Of the time: what is shorter is not told."""
LEAST_QUEUE = 0.1
"""Of a port's buffer: a shorter queue is no incast."""
MOST = 3
"""Sentences of one kind."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence, and what kind of situation it tells."""

    kind: str
    text: str


def summary(run: Run) -> list[Finding]:
    """All that can be said, the network first."""
    finders: Sequence[Callable[[Run], Iterable[Finding]]] = (
        busiest,
        collisions,
        incasts,
        losses,
        tcp,
        stragglers,
        bottlenecks,
        stalls,
    )
    return [finding for finder in finders for finding in finder(run)]


def busiest(run: Run) -> Iterator[Finding]:
    """The busiest direction of all."""
    if run.results.links:
        link = max(run.results.links, key=lambda each: each.utilisation)
        if link.utilisation:
            where = run.direction(_sender(link))
            yield Finding(kind="busiest", text=f"The busiest link, {where}, was {link.utilisation:.0%} busy.")


def collisions(run: Run) -> list[Finding]:
    """Uplinks of one switch, of which one carries more than its part of the flows and of the bytes."""
    use = {_sender(link): link for link in run.results.links}
    largest = max((flow.bytes for flow in run.results.paths), default=0)
    found: list[tuple[float, Finding]] = []
    for uplinks in _choices(run, use):
        flows = {name: _flows(run.results.paths, name) for name in uplinks}
        counts = {name: sum(flow.bytes >= DATA * largest for flow in of) for name, of in flows.items()}
        total, name = sum(counts.values()), max(counts, key=lambda each: (counts[each], use[each].tx_bytes))
        mean = sum(use[each].tx_bytes for each in uplinks) / len(uplinks)
        if counts[name] > ceil(total / len(uplinks)) and use[name].tx_bytes > UNEVEN * mean:
            node, peer = run.node_of[name], run.topology.peer_of[name].node
            busy = f" and was {use[name].utilisation:.0%} busy" if use[name].utilisation else ""
            even = _even(total, len(uplinks))
            text = f"{node}'s uplink to {peer} carried {counts[name]} of {total} flows{busy}; an even share is {even}."
            found.append((use[name].tx_bytes / mean, Finding(kind="collision", text=text)))
    return _worst(found)


def _even(total: int, links: int) -> str:
    return str(total // links) if total % links == 0 else f"{total / links:.1f}"


def _choices(run: Run, use: Mapping[str, LinkUse]) -> Iterator[list[str]]:
    """Per switch, its ports towards switches further from the hosts, where there are several."""
    level = levels(run.topology)
    for switch in run.topology.switches:
        ports = [end.name for end in run.topology.interfaces_of[switch.name]]
        up = [name for name in ports if name in use and _above(run, level, name)]
        if len(up) > 1:
            yield up


def _above(run: Run, level: Mapping[str, int], name: str) -> bool:
    peer = run.topology.peer_of[name].node
    return peer in run.topology.switch_named and level.get(peer, 0) > level.get(run.node_of[name], 0)


def _flows(paths: Sequence[FlowPath], interface: str) -> list[FlowPath]:
    return [flow for flow in paths if interface in flow.path]


def incasts(run: Run) -> list[Finding]:
    """Hosts to which several send, at whose port the packets did not just pass."""
    use = {_sender(link): link for link in run.results.links}
    arriving: dict[str, list[FlowPath]] = {}
    for flow in run.results.paths:
        if flow.path and flow.path[-1] in use:
            arriving.setdefault(flow.path[-1], []).append(flow)
    found: list[tuple[float, Finding]] = []
    for name, flows in arriving.items():
        largest = max(flow.bytes for flow in flows)
        senders = {flow.src for flow in flows if flow.bytes >= DATA * largest}
        link, buffer_bytes = use[name], run.topology.link_of[name].buffer_bytes
        if len(senders) < LEAST_FAN_IN or not (_troubled(link) or link.queue_max_bytes >= LEAST_QUEUE * buffer_bytes):
            continue
        host = run.topology.peer_of[name].node
        text = f"{len(senders)} hosts sent to {host}: {run.node_of[name]}'s port to it {_did(link)}."
        found.append((float(link.drops * 10**12 + link.queue_max_bytes), Finding(kind="incast", text=text)))
    return _worst(found)


def _troubled(link: LinkUse) -> bool:
    return bool(link.drops or link.marks or link.pauses_sent)


def _did(link: LinkUse) -> str:
    divisor, unit = scaled(link.queue_max_bytes, BYTES)
    held = f"held up to {link.queue_max_bytes / divisor:.3g} {unit}"
    said = [f"dropped {link.drops} packets"] if link.drops else []
    said += [f"marked {link.marks} packets"] if link.marks else []
    said += [f"sent {link.pauses_sent} pause frames"] if link.pauses_sent else []
    return " and ".join([", ".join(said), held] if said else [held])


def losses(run: Run) -> Iterator[Finding]:
    """Drops of the whole fabric, and where most of them were."""
    total = sum(link.drops for link in run.results.links)
    if total:
        worst = max(run.results.links, key=lambda link: link.drops)
        where = run.direction(_sender(worst))
        yield Finding(kind="losses", text=f"{total} packets were dropped, {worst.drops} of them at {where}.")


def tcp(run: Run) -> Iterator[Finding]:
    """Of all hosts.  Folders of earlier versions do not have it."""
    seen = run.results.sections.get("tcp", {})
    said = []
    if again := seen.get("retransmitted"):
        why = [f"{seen[key]} {name}" for key, name in (("timeouts", "after timeouts"), ("needless", "needlessly"))]
        said.append(f"sent {again} segments again ({', '.join(why)})")
    if late := seen.get("out_of_order"):
        said.append(f"received {late} out of order")
    if said:
        yield Finding(kind="tcp", text=f"TCP {' and '.join(said)}.")


def stragglers(run: Run) -> list[Finding]:
    """Per job: who came last, who waited, and how long steps stood still."""
    if run.series.ranks is None:
        return []
    jobs = sorted(set(run.series.ranks["job"].tolist()))
    found = []
    for job in jobs:
        waits = job_waits(run.series.ranks, job)
        prefix = f"Job {job}: " if len(jobs) > 1 else ""
        found += [Finding(kind=kind, text=prefix + text) for kind, text in _of_job(waits)] if waits is not None else []
    return found


def _of_job(waits: Waits) -> Iterator[tuple[str, str]]:
    rank = max(waits.held_up, key=lambda each: (waits.held_up[each], -each), default=None)
    if rank is not None and waits.held_up[rank] > LATE:
        waiting = [each for each in sorted(waits.waited) if waits.waited[each] > LATE and each != rank]
        mean = sum(waits.waited[each] for each in waiting) / len(waiting) if waiting else 0.0
        others = f"; {ranks_in_words(waiting)} waited {mean:.0%} of the step" if waiting else ""
        share = f"{waits.held_up[rank]:.0%} of the step"
        yield "straggler", f"{waits.host[rank]} (rank {rank}) came last and held up all others for {share}{others}."
    if waits.halted:
        mean = sum(waits.halted.values()) / len(waits.halted)
        yield "halting", f"Of a step, ranks stood still {mean:.0%}: for the network or for each other."


def bottlenecks(run: Run) -> Iterator[Finding]:
    """Per job that trains: the link that the bytes of its steps waited for, if it was one."""
    for text in sentences(run):
        yield Finding(kind="bottleneck", text=text)


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`ranks 0-1, 3`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {words}"


def stalls(run: Run) -> Iterator[Finding]:
    """Steps of time in which no port sent anything although all ranks of a job communicated all the while."""
    ranks, bins = run.series.ranks, run.bins
    if ranks is None or bins is None:
        return
    busy = union(span for job in sorted(set(ranks["job"].tolist())) for span in all_communicate(ranks, job))
    still = np.flatnonzero(bins.utilisation.sum(axis=0) == 0)
    quiet = union((round(bins.edges_ns[step]), round(bins.edges_ns[step + 1])) for step in still)
    stood = common(busy, quiet)
    if not stood or length(stood) < LEAST_SHARE * length(busy):
        return
    begin, end = max(stood, key=lambda span: span[1] - span[0])
    divisor, unit = scaled(end - begin, TIMES)
    at, at_unit = scaled(begin, TIMES)
    timeouts = sum(sum(entry["timeouts"]) for entry in run.results.sections.get("audit", []))
    why = f"; retransmission timeouts: {timeouts}" if timeouts else ""
    text = (
        f"Nothing moved for {length(stood) / length(busy):.0%} of the time in which all ranks communicated, at longest "
        f"{(end - begin) / divisor:.3g} {unit} from {begin / at:.4g} {at_unit} on{why}."
    )
    yield Finding(kind="stall", text=text)


def _sender(link: LinkUse) -> str:
    return link.name.split(">")[0]


def _worst(found: Sequence[tuple[float, Finding]]) -> list[Finding]:
    return [finding for _, finding in sorted(found, key=lambda each: -each[0])[:MOST]]
