"""Parameter server against ring all-reduce: when does the server's link become the bottleneck?

    parameter server                              ring
      w1   w2   w3  ...  wP-1                       w0 <- w1 <- w2 <- ... <- wP-1
        \\   |   |   |   /    push: P-1 gradients      |                        ^
         [ server = w0 ]      into one link           +------------------------+
        /   |   |   |   \\    pull: P-1 copies        2(P-1)/P of a gradient over every link
      w1   w2   w3  ...  wP-1  out of one link

Every worker computes the gradients of a real model on its own data.  Each step averages them all ways, each over
connections of its own; the results must agree.  The server must take in (P-1) n bytes and send as many, one after the
other: 2(P-1) n / B.  The ring needs 2(P-1)/P n / B.  So their ratio is P: the server gets slower with every worker, the
ring does not.  `hierarchical` is the all-reduce in two levels of `hierarchy.py`.

Then a server on a host of its own, whose workers are not equally fast, by send and receive: synchronous, asynchronous,
and stale, where nobody runs ahead of the slowest by more than `stale` steps.

    ./run experiments/parameter_server.py --topology star:hosts=16 --set ranks=2,4,8,16
    ./run experiments/parameter_server.py --set ways=server,ring --set modes=stale --set stale=1 --set slowdown=4

Expected: server / ring close to P; the ring's time over 2(P-1)/P the same within 15% from 4 ranks on.  So it is where
switches have room for what all workers push at once; with `--policy ecmp` they have not, and timeouts of 200 ms
make the server several times slower still (incast): see `retransmissions` and `timeouts`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Flops, Integers, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training.device import Device
from experiments.training.racks import hierarchical_messages, rank_racks
from experiments.training.server_modes import MODES, compare
from experiments.workloads import messages
from experiments.workloads.collectives import sample
from experiments.workloads.messages import ELEMENT_BYTES, WireBytes, wire_bytes
from experiments.workloads.operations import operation_named
from experiments.workloads.samples import Iteration, Sample, Step, audit, row
from testbed.workers.rank import Rank
from topologies.errors import UnknownName, UserError

SERVER, RING, HIERARCHICAL = "parameter_server", "all_reduce", "hierarchical_all_reduce"
WAYS = {"server": SERVER, "ring": RING, "hierarchical": HIERARCHICAL}
"""As `--set ways=` calls them, and as rows do."""
RATIO_BAND = (0.8, 1.25)
"""Of (server / ring) / P: the ring's lock-step lowers it (0.90 to 0.98 measured), incast at the server raises it."""
FLAT = 0.15
"""Of the ring's time per byte that a link must carry, between 4 ranks and more.

A segment of gloo's ring, 1/2P of the gradient, follows two notifications; all three pass 2 us of links and up to 8 us
of interrupt moderation, and two segments are under way at once.  So a segment should take a link 25 us or more: 0.3%
was measured with 23 MB of gradient on 16 ranks (726 kB, 58 us), 17 to 24% with 7.5 MB (233 kB, 19 us).
"""
LEARNING_RATE = 0.1
NONE = ("none",)


class Settings(BaseSettings):
    """The model and the sweep."""

    ranks: Integers = Field(default=written("4,8,16"), description="numbers of workers to compare; hosts in order")
    hidden: int = Field(
        default=1280, ge=1, description="width of the model's two hidden layers: 1280 is 11 MB of gradient"
    )
    steps: int = Field(default=2, ge=1, description="measured training steps of each")
    warmup: int = Field(default=1, ge=0, description="training steps before them")
    ways: Words = Field(default=written(",".join(WAYS)), description=f"of {', '.join(WAYS)}")
    modes: Words = Field(
        default=written(",".join(MODES)), description=f"of a server on its own host: {', '.join(MODES)}, or none"
    )
    workers: int = Field(default=4, ge=2, description="of the modes' server; the last one is slow")
    mode_steps: int = Field(default=12, ge=2, description="steps of each of them")
    stale: int = Field(default=2, ge=0, description="steps by which a worker may be ahead of the slowest in mode stale")
    slowdown: float = Field(default=3.0, ge=1, description="of the slow worker's device")
    device: Flops = Field(default=written("20G"), gt=0, description="FLOP/s of the modes' workers")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one rank brings back from its steps."""

    gradient_bytes: int
    samples: dict[str, list[Sample]]
    """By the name in WAYS's values."""
    losses: list[float]
    disagreements: int
    checksum: float
    """Of the trained weights: the same on every rank, or the replicas have come apart."""


def run(lab: Lab, settings: Settings) -> None:
    """One job per number of ranks, then one per mode."""
    hosts = [host.name for host in lab.topology.hosts]
    _check(settings, len(hosts))
    ways, table, audits = [WAYS[way] for way in settings.ways], [], []
    for ranks in settings.ranks:
        racks = rank_racks(lab.topology, hosts[:ranks]) if HIERARCHICAL in ways else []
        found = lab.job(program, settings.hidden, settings.steps, settings.warmup, ways, racks, hosts=hosts[:ranks])
        trained = cast("list[Trained]", found)
        for iteration in (each for way in ways for each in _iterations(way, trained)):
            lab.add_busy_ns(iteration.time_ns)
            if iteration.number >= 0:
                lab.add_rows([row(iteration, factor=operation_named(RING).factor(ranks))])
                audits.append(audit(iteration, _wire(iteration, racks)))
        table.append(_line(ranks, ways, trained))
    lab.add("server_against_ring", table)
    lab.add("audit", audits)
    _claim(lab, ways, table)
    if settings.modes != NONE:
        _compare_modes(lab, settings)


def _check(settings: Settings, hosts: int) -> None:
    for ranks in settings.ranks:
        if not 2 <= ranks <= hosts:
            raise UserError(f"--set ranks={ranks}: this topology has {hosts} hosts; write numbers from 2 to that")
    for way in settings.ways:
        if way not in WAYS:
            raise UnknownName("way", way, WAYS)
    for mode in settings.modes if settings.modes != NONE else ():
        if mode not in MODES:
            raise UnknownName("mode of a parameter server", mode, dict.fromkeys(MODES))
    if settings.modes != NONE and settings.workers >= hosts:
        raise UserError(
            f"--set workers={settings.workers}: with the server more than {hosts} hosts; write fewer, or modes=none"
        )


def _compare_modes(lab: Lab, settings: Settings) -> None:
    from experiments.training.server import Plan

    plan = Plan(
        mode=settings.modes[0],
        bound=settings.stale,
        workers=settings.workers,
        steps=settings.mode_steps,
        width=128,
        batch=32,
        rate=0.5,
        seed=lab.seed,
    )
    compare(lab, plan, settings.modes, Device(flop_per_s=settings.device), slowdown=settings.slowdown)


def program(
    rank: Rank, hidden: int, steps: int, warmup: int, ways: Sequence[str], racks: Sequence[Sequence[int]]
) -> Trained:
    """What every worker runs."""
    from experiments.workloads.training import Averagers, Replica, disagreements

    averagers = Averagers(racks)
    replica = Replica(hidden=hidden, seed=rank.seed, rank=rank.rank)
    samples: dict[str, list[Sample]] = {way: [] for way in ways}
    losses, differing = [], 0
    for number in range(-warmup, steps):
        gradient, loss = replica.gradient()
        losses.append(loss)
        size_bytes, averages = gradient.numel() * ELEMENT_BYTES, []
        for way in ways:
            exchange = averagers.exchange(way, gradient)
            timed = sample(rank, Step(op=way, size_bytes=size_bytes), exchange, number)
            averages.append(exchange.average)
            wrong = disagreements(averages[0], exchange.average)
            samples[way].append(replace(timed, wrong=wrong))
            differing += wrong
        replica.apply(averages[-1], rate=LEARNING_RATE)
    return Trained(
        gradient_bytes=size_bytes,
        samples=samples,
        losses=losses,
        disagreements=differing,
        checksum=sum(weights.double().sum().item() for weights in replica.model.parameters()),
    )


def _iterations(op: str, trained: Sequence[Trained]) -> Iterator[Iteration]:
    step = Step(op=op, size_bytes=trained[0].gradient_bytes)
    for across in zip(*(it.samples[op] for it in trained), strict=True):
        yield Iteration(step=step, samples=tuple(across))


def _wire(iteration: Iteration, racks: Sequence[Sequence[int]]) -> tuple[WireBytes, ...]:
    """The server's push is a gather and its pull a scatter, each of one whole gradient per rank."""
    ranks, size_bytes = len(iteration.samples), iteration.step.size_bytes
    if iteration.step.op == RING:
        return wire_bytes(messages.all_reduce(ranks, size_bytes), ranks=ranks)
    if iteration.step.op == HIERARCHICAL:
        return wire_bytes(hierarchical_messages(racks, size_bytes), ranks=ranks)
    everything = size_bytes * ranks
    return wire_bytes([*messages.gather(ranks, everything), *messages.scatter(ranks, everything)], ranks=ranks)


def _line(ranks: int, ways: Sequence[str], trained: Sequence[Trained]) -> dict[str, Any]:
    measured = {way: [it for it in _iterations(way, trained) if it.number >= 0] for way in ways}
    times_us = {way: mean(it.time_ns for it in found) / 1e3 for way, found in measured.items()}
    pushes = [counters.counters for it in measured.get(SERVER, []) for counters in it.samples]
    both = SERVER in ways and RING in ways
    return {
        "ranks": ranks,
        "gradient_bytes": trained[0].gradient_bytes,
        **{f"{name}_us": round(times_us[way], 3) for name, way in WAYS.items() if way in ways},
        **({"server_over_ring": round(times_us[SERVER] / times_us[RING], 4)} if both else {}),
        "retransmissions": sum(counters.retransmitted_segments for counters in pushes),
        "timeouts": sum(counters.timeouts for counters in pushes),
        "loss_probes": sum(counters.loss_probes for counters in pushes),
        "disagreements": sum(it.disagreements for it in trained),
        "replicas": len({it.checksum for it in trained}),
        "loss_first": round(mean(it.losses[0] for it in trained), 4),
        "loss_last": round(mean(it.losses[-1] for it in trained), 4),
    }


def _claim(lab: Lab, ways: Sequence[str], table: Sequence[dict[str, Any]]) -> None:
    low, high = RATIO_BAND
    for line in table if SERVER in ways and RING in ways else ():
        share = line["server_over_ring"] / line["ranks"]
        lab.add_claim(
            f"with {line['ranks']} ranks the server takes about {line['ranks']} times as long as the ring",
            expected=f"(server / ring) / P in {low}..{high}",
            measured=f"{share:.2f}",
            holds=low <= share <= high,
        )
    flat = [
        line["ring_us"] / operation_named(RING).factor(line["ranks"])
        for line in table
        if line["ranks"] >= 4 and RING in ways
    ]
    if len(flat) > 1:
        spread = max(flat) / min(flat) - 1
        lab.add_claim(
            "the ring's bus bandwidth does not depend on the number of ranks",
            expected=f"spread at most {FLAT:.0%}",
            measured=f"{spread:.1%}",
            holds=spread <= FLAT,
        )
    lab.add_claim(
        "all ways give the same averages, and all replicas stay equal",
        expected="0 disagreements, 1 replica",
        measured=f"{sum(line['disagreements'] for line in table)}, {max(line['replicas'] for line in table)}",
        holds=all(line["disagreements"] == 0 and line["replicas"] == 1 for line in table),
    )


EXPERIMENT = Experiment(
    name="parameter_server",
    question="How much slower is a parameter server than a ring, and how does it grow with the number of workers?",
    policy="lossy:lb=ecmp,limit=4MB,buffer=16MB",  # room for all pushes: or timeouts are all there is to see
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
