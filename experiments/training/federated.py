"""Federated averaging: workers take several steps of their own and send models, not gradients, to be averaged.

    flat          every k1 steps      workers ------------------> cloud -> workers
    hierarchical  every k1 steps      workers -> edge -> workers
                  every k1 k2 steps   workers -> edge -> cloud -> edge -> workers         (HierFAVG, Liu et al. 2020)
    local_sgd     every k1 steps      workers all-reduce among themselves
    every_step    every step          the same: what local_sgd saves is measured against it

Every way takes the same steps on the same data.  Ranks: the cloud (if there is one), the edges (if there are), then the
workers, site by site.  Workers have equally many examples, so averages need no weights.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from experiments.training.device import Device
from experiments.training.next_byte import Judge, Judgement, Learner, parameters
from experiments.training.timeline import Recorder, StepRecord
from experiments.training.transfers import Traffic, Transferred, average, collect, spread
from testbed.workers.rank import Rank

WEIGHT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One federated job."""

    way: str
    """Of WAYS."""
    sites: tuple[int, ...]
    """Site of each worker, from 0, in order."""
    local_steps: int
    """k1: between two averages."""
    edge_rounds: int
    """k2: averages at the edge for one at the cloud."""
    cloud_rounds: int
    """Times that the cloud of the hierarchy averages; every way takes k1 k2 as many steps."""
    width: int
    batch: int
    rate: float
    partition: str
    seed: int

    @property
    def workers(self) -> int:
        """N."""
        return len(self.sites)

    @property
    def edges(self) -> int:
        """E."""
        return len(set(self.sites))

    @property
    def rounds(self) -> int:
        """Averages that a worker takes part in."""
        steps = self.cloud_rounds * self.edge_rounds * self.local_steps
        return steps if self.way == "every_step" else steps // self.local_steps

    @property
    def steps_per_round(self) -> int:
        """Of one worker."""
        return 1 if self.way == "every_step" else self.local_steps

    @property
    def servers(self) -> int:
        """Ranks before the first worker."""
        return {"flat": 1, "hierarchical": 1 + self.edges}.get(self.way, 0)

    @property
    def model_bytes(self) -> int:
        """Of the weights that are sent."""
        return WEIGHT_BYTES * parameters(self.width)

    def edge_of(self, worker: int) -> int:
        """The rank that serves this worker in the hierarchy."""
        return 1 + self.sites[worker]

    def workers_of(self, edge: int) -> list[int]:
        """Ranks of the workers that this edge's rank serves."""
        return [self.servers + worker for worker in range(self.workers) if self.edge_of(worker) == edge]

    def learner(self, worker: int) -> Learner:
        """A worker at the beginning."""
        return Learner(
            width=self.width,
            seed=self.seed,
            worker=worker,
            workers=self.workers,
            partition_name=self.partition,
            batch=self.batch,
        )


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What the average of all workers was worth at one instant."""

    steps: int
    """That every worker had taken."""
    at_ns: int
    """CLOCK_MONOTONIC."""
    judgement: Judgement


@dataclass(frozen=True, kw_only=True)
class Federated:
    """What a rank brings back."""

    traffic: Transferred
    start_ns: int
    end_ns: int
    weights: bytes
    records: tuple[StepRecord, ...] = ()
    """Of a worker: a step is a round."""
    learnt: tuple[Learnt, ...] = ()
    """Of the rank that judges: the cloud, or the first worker."""


@dataclass(kw_only=True)
class Judged:
    """The judge and what it has seen; judging takes no time of the clock."""

    judge: Judge
    learnt: list[Learnt] = field(default_factory=list)

    def note(self, weights: torch.Tensor, steps: int) -> None:
        """An average that every worker will go on from."""
        self.learnt.append(Learnt(steps=steps, at_ns=time.monotonic_ns(), judgement=self.judge.judge(weights)))


def train_federated(rank: Rank, plan: Plan, devices: Sequence[Device]) -> Federated:
    """What every rank runs; `devices` are the workers'."""
    judged = Judged(judge=Judge(width=plan.width))
    recorder = Recorder()
    worker = Worker(rank, plan, devices[rank.rank - plan.servers], recorder) if rank.rank >= plan.servers else None
    traffic = Traffic(rank)
    start_ns = time.monotonic_ns()
    if worker is not None:
        weights = worker.work(judged)
    elif rank.rank == 0:
        weights = _serve_cloud(rank, plan, judged)
    else:
        weights = _serve_edge(rank, plan)
    end_ns = time.monotonic_ns()
    return Federated(
        traffic=traffic.end(),
        start_ns=start_ns,
        end_ns=end_ns,
        weights=weights.numpy().tobytes(),
        records=tuple(recorder.steps),
        learnt=tuple(judged.learnt),
    )


class Worker:
    """Learns, and has its weights averaged."""

    def __init__(self, rank: Rank, plan: Plan, device: Device, recorder: Recorder) -> None:
        self._rank, self._plan, self._recorder = rank, plan, recorder
        self._number = rank.rank - plan.servers
        self._learner = plan.learner(self._number)
        self._lots = device.lots()
        cost = device.cost("model", parameters=parameters(plan.width), tokens=plan.batch)
        self._step_ns = cost.forward_ns + cost.backward_ns

    def work(self, judged: Judged) -> torch.Tensor:
        """All rounds; the weights at the end."""
        plan = self._plan
        for number in range(plan.rounds):
            with self._rank.operation(f"{plan.way} round", plan.model_bytes), self._recorder.step(number):
                for _ in range(plan.steps_per_round):
                    self._learner.step(plan.rate)
                    self._recorder.compute("step", self._lots.duration_ns(self._step_ns))
                with self._recorder.communication(self._place(), 2 * plan.model_bytes):
                    self._learner.load(self._averaged(self._learner.weights))
            if plan.servers == 0 and self._rank.rank == 0 and (number + 1) % (plan.rounds // plan.cloud_rounds) == 0:
                judged.note(self._learner.weights, (number + 1) * plan.steps_per_round)
        return self._learner.weights

    def _place(self) -> str:
        """Equal on all ranks that take part in one average."""
        plan = self._plan
        if plan.servers == 0:
            return "average among the workers"
        return "average at the cloud" if plan.way == "flat" else f"average at edge{plan.sites[self._number] + 1}"

    def _averaged(self, weights: torch.Tensor) -> torch.Tensor:
        plan = self._plan
        if plan.servers == 0:
            dist.all_reduce(weights)
            return weights.div_(plan.workers)
        server = 0 if plan.way == "flat" else plan.edge_of(self._number)
        spread(weights, [server])
        return collect([server], weights)[0]


def _serve_cloud(rank: Rank, plan: Plan, judged: Judged) -> torch.Tensor:
    """Averages what comes in, judges it, sends it back."""
    below = list(range(1, 1 + plan.edges)) if plan.way == "hierarchical" else list(range(1, 1 + plan.workers))
    rounds = plan.cloud_rounds if plan.way == "hierarchical" else plan.rounds
    weights = torch.empty(parameters(plan.width))
    for number in range(rounds):
        with rank.operation("cloud round", plan.model_bytes):
            weights = average(collect(below, weights))
            spread(weights, below)
        if (number + 1) % (rounds // plan.cloud_rounds) == 0:  # as often as the hierarchy's cloud, after as many steps
            judged.note(weights, (number + 1) * plan.local_steps * (plan.rounds // rounds))
    return weights


def _serve_edge(rank: Rank, plan: Plan) -> torch.Tensor:
    """Averages its site; every k2-th time the cloud's average of all sites takes its place."""
    below = plan.workers_of(rank.rank)
    weights = torch.empty(parameters(plan.width))
    for number in range(plan.rounds):
        with rank.operation("edge round", plan.model_bytes):
            weights = average(collect(below, weights))
            if (number + 1) % plan.edge_rounds == 0:
                spread(weights, [0])
                weights = collect([0], weights)[0]
            spread(weights, below)
    return weights


def alone(plan: Plan) -> torch.Tensor:
    """The weights that `flat` or `hierarchical` must end with, from one process that does the same sums in order."""
    learners = [plan.learner(worker) for worker in range(plan.workers)]
    weights = learners[0].weights
    for number in range(plan.rounds):
        for learner in learners:
            for _ in range(plan.steps_per_round):
                learner.step(plan.rate)
        if plan.way == "flat":
            weights = average([learner.weights for learner in learners])
            sites = [weights] * plan.edges
        else:
            sites = [average([learners[worker].weights for worker in site]) for site in _sites(plan)]
            if (number + 1) % plan.edge_rounds == 0:
                weights = average(sites)
                sites = [weights] * plan.edges
        for learner, site in zip(learners, plan.sites, strict=True):
            learner.load(sites[site])
    return weights


def _sites(plan: Plan) -> Iterator[list[int]]:
    for edge in range(plan.edges):
        yield [worker for worker, site in enumerate(plan.sites) if site == edge]
