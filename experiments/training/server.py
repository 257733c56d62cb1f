"""A parameter server on a host of its own: workers push gradients and pull weights, by send and receive.  Ranks only.

    synchronous    w1 w2 w3 -> [ server: the mean of all, one update ] -> w1 w2 w3
    asynchronous   w2 -> [ an update at once ] -> w2                      nobody waits for anybody
    stale          the same, but who is more than `bound` steps ahead of the slowest waits for its weights

Rank 0 serves, the others work.  An asynchronous push weighs 1/P of a gradient, so that P of them move the model as far
as one synchronous update.  The server takes pushes in the order in which they arrive (gloo's receive from any source).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
import torch.distributed as dist

from experiments.training.device import Device
from experiments.training.next_byte import Judge, Judgement, Learner, parameters
from experiments.training.staleness import Clocks
from experiments.training.timeline import Recorder, StepRecord
from experiments.training.transfers import Traffic, Transferred, average, collect, spread
from testbed.workers.rank import Rank


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One job."""

    mode: str
    """synchronous, asynchronous or stale."""
    bound: int
    """Of `stale`."""
    workers: int
    steps: int
    width: int
    batch: int
    rate: float
    seed: int

    @property
    def model_bytes(self) -> int:
        """Of the weights, and of a gradient."""
        return 4 * parameters(self.width)

    def learner(self, worker: int) -> Learner:
        """A worker at the beginning."""
        return Learner(
            width=self.width,
            seed=self.seed,
            worker=worker,
            workers=self.workers,
            partition_name="iid",
            batch=self.batch,
        )


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the server brings back."""

    traffic: Transferred
    before: Judgement
    after: Judgement
    weights: bytes
    largest_lead: int
    """Steps by which a worker that began one was ahead of the slowest."""
    mean_staleness: float
    """Updates between the pull and the push of one gradient."""
    largest_staleness: int


@dataclass(frozen=True, kw_only=True)
class Worked:
    """What a worker brings back."""

    traffic: Transferred
    records: tuple[StepRecord, ...]


def train_with_server(rank: Rank, plan: Plan, devices: Sequence[Device]) -> Served | Worked:
    """What every rank runs; `devices` are the workers'."""
    if rank.rank == 0:
        return Server(rank, plan).serve()
    return _work(rank, plan, devices[rank.rank - 1])


def _work(rank: Rank, plan: Plan, device: Device) -> Worked:
    learner, recorder, lots = plan.learner(rank.rank - 1), Recorder(), device.lots()
    cost = device.cost("model", parameters=parameters(plan.width), tokens=plan.batch)
    traffic = Traffic(rank)
    for number in range(plan.steps):
        with rank.operation(f"{plan.mode} step", plan.model_bytes), recorder.step(number):
            gradient, _ = learner.gradient()
            recorder.compute("step", lots.duration_ns(cost.forward_ns + cost.backward_ns))
            with recorder.communication(_name(plan, rank.rank), 2 * plan.model_bytes):
                spread(gradient, [0])
                learner.load(collect([0], gradient)[0])
    return Worked(traffic=traffic.end(), records=tuple(recorder.steps))


def _name(plan: Plan, rank: int) -> str:
    """Of an exchange: only the synchronous one is the same for all, so that the last to come is known."""
    return "exchange" if plan.mode == "synchronous" else f"exchange of {rank}"


class Server:
    """Holds the weights."""

    def __init__(self, rank: Rank, plan: Plan) -> None:
        self._rank, self._plan = rank, plan
        self._weights = plan.learner(0).weights
        self._updates, self._staleness = 0, [0]
        self._lead = 0

    def serve(self) -> Served:
        """Until every worker has taken every step."""
        judge = Judge(width=self._plan.width)
        before = judge.judge(self._weights)
        traffic = Traffic(self._rank)
        if self._plan.mode == "synchronous":
            self._in_step()
        else:
            self._as_they_come()
        return Served(
            traffic=traffic.end(),
            before=before,
            after=judge.judge(self._weights),
            weights=self._weights.numpy().tobytes(),
            largest_lead=self._lead,
            mean_staleness=mean(self._staleness),
            largest_staleness=max(self._staleness),
        )

    def _in_step(self) -> None:
        everybody = list(range(1, 1 + self._plan.workers))
        for _ in range(self._plan.steps):
            with self._rank.operation("synchronous update", self._plan.model_bytes):
                self._weights.sub_(average(collect(everybody, self._weights)), alpha=self._plan.rate)
                spread(self._weights, everybody)

    def _as_they_come(self) -> None:
        plan = self._plan
        clocks = Clocks(workers=plan.workers, steps=plan.steps, bound=plan.bound if plan.mode == "stale" else None)
        seen, self._staleness = [0] * plan.workers, []
        gradient, under_way = torch.empty_like(self._weights), dict[int, Any]()
        while not clocks.finished:
            with self._rank.operation(f"{plan.mode} update", plan.model_bytes):
                worker = dist.recv(gradient) - 1
                if worker in under_way:  # it has its weights, or it could not have pushed
                    under_way.pop(worker)[0].wait()
                self._staleness.append(self._updates - seen[worker])
                self._weights.sub_(gradient, alpha=plan.rate / plan.workers)
                self._updates += 1
                for free in clocks.push(worker):
                    seen[free], copy = self._updates, self._weights.clone()
                    under_way[free] = (dist.isend(copy, dst=1 + free), copy)
        for work, _ in under_way.values():
            work.wait()
        self._lead = clocks.largest_lead


def alone(plan: Plan) -> torch.Tensor:
    """The weights that `synchronous` must end with, from one process that does the same sums in the same order."""
    learners = [plan.learner(worker) for worker in range(plan.workers)]
    weights = learners[0].weights
    for _ in range(plan.steps):
        weights.sub_(average([learner.gradient()[0] for learner in learners]), alpha=plan.rate)
        for learner in learners:
            learner.load(weights)
    return weights
