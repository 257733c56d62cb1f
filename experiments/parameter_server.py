"""Parameter server against ring all-reduce: when does the server's link become the bottleneck?

    parameter server                              ring
      w1   w2   w3  ...  wP-1                       w0 <- w1 <- w2 <- ... <- wP-1
        \\   |   |   |   /    push: P-1 gradients      |                        ^
         [ server = w0 ]      into one link           +------------------------+
        /   |   |   |   \\    pull: P-1 copies        2(P-1)/P of a gradient over every link
      w1   w2   w3  ...  wP-1  out of one link

Every worker computes the gradients of a real model on its own data.  Each step averages them both ways; the two results
must agree.  The server must take in (P-1) n bytes and send as many, one after the other: 2(P-1) n / B.  The ring needs
2(P-1)/P n / B.  So their ratio is P: the server gets slower with every worker, the ring does not.

    ./run experiments/parameter_server.py --topology star:hosts=16 --set ranks=2,4,8,16

Expected: server / ring close to P; the ring's busbw the same within 25% from 4 ranks on.  Incast makes the push worse:
see `retransmissions` and `timeouts`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Integers, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads import messages
from experiments.workloads.collectives import sample
from experiments.workloads.messages import ELEMENT_BYTES, WireBytes, wire_bytes
from experiments.workloads.operations import operation_named
from experiments.workloads.samples import Iteration, Sample, Step, audit, row
from testbed.workers.rank import Rank
from topologies.errors import UserError

SERVER, RING = "parameter_server", "all_reduce"
RATIO_BAND = (0.7, 1.5)
"""Of (server / ring) / P: the ring's lock-step lowers it, incast at the server raises it."""
FLAT = 0.25
"""Of the ring's busbw between 4 ranks and more.  The fewer the ranks, the larger gloo's segments and the fewer of them
are in flight: 8.9 GB/s with 4 ranks, 10.8 with 8, 10.6 with 16 were measured on 100 Gb/s links."""
LEARNING_RATE = 0.1


class Settings(BaseSettings):
    """The model and the sweep."""

    ranks: Integers = Field(default=written("4,8,16"), description="numbers of workers to compare; hosts in order")
    hidden: int = Field(
        default=1024, ge=1, description="width of the model's two hidden layers: 1024 is 7.5 MB of gradient"
    )
    steps: int = Field(default=2, ge=1, description="measured training steps of each")
    warmup: int = Field(default=1, ge=0, description="training steps before them")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one rank brings back from its steps."""

    gradient_bytes: int
    server: list[Sample]
    ring: list[Sample]
    losses: list[float]
    disagreements: int
    checksum: float
    """Of the trained weights: the same on every rank, or the replicas have come apart."""


def run(lab: Lab, settings: Settings) -> None:
    """One job per number of ranks."""
    hosts = [host.name for host in lab.topology.hosts]
    for ranks in settings.ranks:
        if not 2 <= ranks <= len(hosts):
            raise UserError(f"--set ranks={ranks}: this topology has {len(hosts)} hosts; write numbers from 2 to that")
    table, audits = [], []
    for ranks in settings.ranks:
        found = lab.job(program, settings.hidden, settings.steps, settings.warmup, hosts=hosts[:ranks])
        trained = cast("list[Trained]", found)
        for iteration in [*_iterations(SERVER, trained), *_iterations(RING, trained)]:
            lab.add_busy_ns(iteration.time_ns)
            if iteration.number >= 0:
                lab.add_rows([row(iteration, factor=operation_named(RING).factor(ranks))])
                audits.append(audit(iteration, _wire(iteration)))
        table.append(_line(ranks, trained))
    lab.add("server_against_ring", table)
    lab.add("audit", audits)
    _claim(lab, table)


def program(rank: Rank, hidden: int, steps: int, warmup: int) -> Trained:
    """What every worker runs."""
    from experiments.workloads.training import ParameterServer, Replica, Ring, disagreements

    replica = Replica(hidden=hidden, seed=rank.seed, rank=rank.rank)
    server_samples, ring_samples, losses, differing = [], [], [], 0
    for number in range(-warmup, steps):
        gradient, loss = replica.gradient()
        losses.append(loss)
        size_bytes = gradient.numel() * ELEMENT_BYTES
        server, ring = ParameterServer(gradient), Ring(gradient)
        server_samples.append(sample(rank, Step(op=SERVER, size_bytes=size_bytes), server, number))
        timed = sample(rank, Step(op=RING, size_bytes=size_bytes), ring, number)
        wrong = disagreements(server.average, ring.average)
        ring_samples.append(replace(timed, wrong=wrong))
        differing += wrong
        replica.apply(ring.average, rate=LEARNING_RATE)
    return Trained(
        gradient_bytes=size_bytes,
        server=server_samples,
        ring=ring_samples,
        losses=losses,
        disagreements=differing,
        checksum=sum(weights.double().sum().item() for weights in replica.model.parameters()),
    )


def _iterations(op: str, trained: Sequence[Trained]) -> Iterator[Iteration]:
    step = Step(op=op, size_bytes=trained[0].gradient_bytes)
    for across in zip(*(it.server if op == SERVER else it.ring for it in trained), strict=True):
        yield Iteration(step=step, samples=tuple(across))


def _wire(iteration: Iteration) -> tuple[WireBytes, ...]:
    """The server's push is a gather and its pull a scatter, each of one whole gradient per rank."""
    ranks, size_bytes = len(iteration.samples), iteration.step.size_bytes
    if iteration.step.op == RING:
        return wire_bytes(messages.all_reduce(ranks, size_bytes), ranks=ranks)
    everything = size_bytes * ranks
    return wire_bytes([*messages.gather(ranks, everything), *messages.scatter(ranks, everything)], ranks=ranks)


def _line(ranks: int, trained: Sequence[Trained]) -> dict[str, Any]:
    measured = {op: [it for it in _iterations(op, trained) if it.number >= 0] for op in (SERVER, RING)}
    server_us, ring_us = (mean(it.time_ns for it in measured[op]) / 1e3 for op in (SERVER, RING))
    pushes = [counters.counters for it in measured[SERVER] for counters in it.samples]
    return {
        "ranks": ranks,
        "gradient_bytes": trained[0].gradient_bytes,
        "server_us": round(server_us, 3),
        "ring_us": round(ring_us, 3),
        "server_over_ring": round(server_us / ring_us, 4),
        "retransmissions": sum(counters.retransmitted_segments for counters in pushes),
        "timeouts": sum(counters.timeouts for counters in pushes),
        "loss_probes": sum(counters.loss_probes for counters in pushes),
        "disagreements": sum(it.disagreements for it in trained),
        "replicas": len({it.checksum for it in trained}),
        "loss_first": round(mean(it.losses[0] for it in trained), 4),
        "loss_last": round(mean(it.losses[-1] for it in trained), 4),
    }


def _claim(lab: Lab, table: Sequence[dict[str, Any]]) -> None:
    low, high = RATIO_BAND
    for line in table:
        share = line["server_over_ring"] / line["ranks"]
        lab.add_claim(
            f"with {line['ranks']} ranks the server takes about {line['ranks']} times as long as the ring",
            expected=f"(server / ring) / P in {low}..{high}",
            measured=f"{share:.2f}",
            holds=low <= share <= high,
        )
    flat = [line["ring_us"] / operation_named(RING).factor(line["ranks"]) for line in table if line["ranks"] >= 4]
    if len(flat) > 1:
        spread = max(flat) / min(flat) - 1
        lab.add_claim(
            "the ring's bus bandwidth does not depend on the number of ranks",
            expected=f"spread at most {FLAT:.0%}",
            measured=f"{spread:.1%}",
            holds=spread <= FLAT,
        )
    lab.add_claim(
        "both ways give the same averages, and all replicas stay equal",
        expected="0 disagreements, 1 replica",
        measured=f"{sum(line['disagreements'] for line in table)}, {max(line['replicas'] for line in table)}",
        holds=all(line["disagreements"] == 0 and line["replicas"] == 1 for line in table),
    )


EXPERIMENT = Experiment(
    name="parameter_server",
    question="How much slower is a parameter server than a ring, and how does it grow with the number of workers?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
