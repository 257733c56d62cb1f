"""A step of a large model by shape: real exchanges of the right sizes in order, devices' time slept.  For ranks only.

Arrays hold values that can be checked after every exchange: sums of ones, and the number of the micro-batch.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from experiments.training.grid import DIMENSIONS
from experiments.training.large_plan import HALVES, LargePlan
from experiments.training.pipeline_parallel import Pipe
from experiments.training.pipeline_schedules import schedule_named
from experiments.training.timeline import Recorder, StepRecord
from testbed.workers.rank import Rank
from topologies.errors import InternalError

TYPES = {2: torch.bfloat16, 4: torch.float32}
"""Bytes of a value -> what it is."""


@dataclass(frozen=True, kw_only=True)
class LargeTrained:
    """What a rank brings back."""

    steps: tuple[StepRecord, ...]
    exchanges: int
    """Checked, each at its first and last value."""


@dataclass(kw_only=True)
class Reductions:
    """Sums over a group, of one array that is used again and again."""

    recorder: Recorder
    label: str
    group: Any
    ranks: int
    array: torch.Tensor
    done: int = 0

    def all_reduce(self, name: str) -> None:
        """Sums ones and checks that it did."""
        if self.ranks == 1:
            return
        self.array.fill_(1)
        with self.recorder.communication(f"{self.label}.{name}", self.array.numel() * self.array.element_size()):
            dist.all_reduce(self.array, group=self.group)
        check(self.array, self.ranks, f"{self.label}.{name}")
        self.done += 1


def check(array: torch.Tensor, wanted: int, name: str) -> None:
    """The first and the last value, which went with different segments.  Raises InternalError."""
    for value in (array[0].item(), array[-1].item()):
        if value != wanted:
            raise InternalError(f"{name}: a value is {value}, not {wanted}")


@dataclass(kw_only=True)
class ShapeStage:
    """A stage whose layers are known by their sizes."""

    plan: LargePlan
    number: int
    recorder: Recorder
    tensor: Reductions
    received: int = 0

    def forward(self, microbatch: int, values: torch.Tensor | None) -> torch.Tensor | None:
        """Embedding, layers, head."""
        self._check(microbatch, values, "forward")
        if self.plan.is_first(self.number):
            self.tensor.all_reduce(f"micro{microbatch}.embedding.forward")
        for layer in range(self.plan.layers_per_stage):
            for half in HALVES:
                self._compute(half, microbatch, "forward")
                self.tensor.all_reduce(f"micro{microbatch}.layer{layer}.{half}.forward")
        if self.plan.is_last(self.number):
            self._compute("head", microbatch, "forward")
            return None
        return self._made(microbatch)

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Head, layers from the last on."""
        self._check(microbatch, gradient, "backward")
        if self.plan.is_last(self.number):
            self._compute("head", microbatch, "backward")
            self.tensor.all_reduce(f"micro{microbatch}.head.backward")
        for layer in reversed(range(self.plan.layers_per_stage)):
            for half in reversed(HALVES):
                self._compute(half, microbatch, "backward")
                self.tensor.all_reduce(f"micro{microbatch}.layer{layer}.{half}.backward")
        return None if self.plan.is_first(self.number) else self._made(microbatch)

    def _compute(self, part: str, microbatch: int, way: str) -> None:
        times = 1 if way == "forward" else 2
        self.recorder.compute(f"micro{microbatch}.{part}.{way}", times * self.plan.forward_ns(part))

    def _made(self, microbatch: int) -> torch.Tensor:
        return torch.full((self.plan.activation_elements,), microbatch + 1, dtype=TYPES[self.plan.value_bytes])

    def _check(self, microbatch: int, values: torch.Tensor | None, way: str) -> None:
        if values is not None:
            check(values, microbatch + 1, f"{way} of micro-batch {microbatch} at stage {self.number}")
            self.received += 1


def train_large(rank: Rank, plan: LargePlan) -> LargeTrained:
    """What every rank runs."""
    recorder, place = Recorder(), plan.grid.place(rank.rank)
    groups = {name: _group(plan, name, rank.rank) for name in DIMENSIONS}
    stage_number = place["pp"]
    tensor = _reductions(recorder, plan, "tp", groups, rank.rank, plan.activation_elements, plan.value_bytes)
    gradients = _reductions(
        recorder, plan, "dp", groups, rank.rank, plan.gradient_elements(stage_number), plan.gradient_bytes
    )
    stage = ShapeStage(plan=plan, number=stage_number, recorder=recorder, tensor=tensor)
    number, pipeline = plan.grid.group_of(rank.rank, "pp")
    pipe = Pipe(
        recorder=recorder,
        label=f"pp{number}",
        stage=stage_number,
        previous=None if plan.is_first(stage_number) else pipeline[stage_number - 1],
        following=None if plan.is_last(stage_number) else pipeline[stage_number + 1],
        like=torch.empty(plan.activation_elements, dtype=TYPES[plan.value_bytes]),
    )
    actions = schedule_named(plan.schedule)(stage_number, plan.grid.sizes["pp"], plan.microbatches)
    rank.line_up("first step")
    for step in range(-plan.warmup, plan.steps):
        with rank.operation("training step"), recorder.step(step):
            pipe.run(stage, actions)
            gradients.all_reduce("gradients")
    rank.line_up("last step")
    return LargeTrained(steps=tuple(recorder.steps), exchanges=tensor.done + gradients.done + stage.received)


def _group(plan: LargePlan, dimension: str, rank: int) -> Any:
    """Every rank makes all groups, in one order; it is told its own."""
    mine = None
    for members in plan.grid.groups(dimension):
        if dimension != "pp" and len(members) > 1:
            group = dist.new_group(members)
            mine = group if rank in members else mine
    return mine


def _reductions(
    recorder: Recorder,
    plan: LargePlan,
    dimension: str,
    groups: dict[str, Any],
    rank: int,
    elements: int,
    element_bytes: int,
) -> Reductions:
    number, members = plan.grid.group_of(rank, dimension)
    return Reductions(
        recorder=recorder,
        label=f"{dimension}{number}",
        group=groups[dimension],
        ranks=len(members),
        array=torch.ones(elements, dtype=TYPES[element_bytes]),
    )
