"""Pipeline parallelism: consecutive layers on consecutive ranks, activations handed on, gradients handed back.

    rank 0 [embedding, block 0] --activations--> rank 1 [block 1] --> ... --> rank p-1 [block, head, loss]
                                <--gradients---              <--      <--

`Pipe` moves tensors for any stage and schedule (`pipeline_schedules.py`): what is sent goes on while the stage
computes, and the buffer for the next tensor to come is posted one action ahead, so that it can come meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from experiments.training.data_parallel import MOMENTUM, RATE, Plan, model_batch, occupation
from experiments.training.device import Device
from experiments.training.pipeline_schedules import Action, schedule_named
from experiments.training.shape import VOCABULARY, Shape
from experiments.training.tensor_parallel import PartTrained, holding
from experiments.training.text import corpus
from experiments.training.timeline import Recorder
from experiments.training.transformer import Occupy, Transformer, busy
from testbed.workers.rank import Rank
from topologies.errors import UserError


class Stage(Protocol):
    """What a rank does with a micro-batch."""

    def forward(self, microbatch: int, values: torch.Tensor | None) -> torch.Tensor | None:
        """Activations for the next stage; none out of the last.  The first gets none."""

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """The gradient of what came in; none out of the first stage.  The last gets none."""


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """A rank's place between two others."""

    recorder: Recorder
    label: str
    """Equal on all ranks of one pipeline."""
    stage: int
    previous: int | None
    """Rank that holds the stage before."""
    following: int | None
    like: torch.Tensor
    """Shape and type of what is handed on."""

    def run(self, stage: Stage, actions: Sequence[Action]) -> None:
        """All actions; returns when what this rank has sent has left it."""
        arrivals = self._arrivals(actions)
        works = []
        for action in actions:
            values = next(arrivals) if self._source(action) is not None else None
            step = stage.backward if action.backward else stage.forward
            made, target = step(action.microbatch, values), self._target(action)
            if made is not None and target is not None:
                self.recorder.begin(self._name(action, sent=True), _size_bytes(made)).done()
                works.append(dist.isend(made.contiguous(), dst=target, tag=_tag(action)))
        for work in works:
            if work is not None:
                work.wait()

    def _arrivals(self, actions: Sequence[Action]) -> Iterator[torch.Tensor]:
        """What each action needs, in order; the next one's buffer is posted before this one is waited for."""
        awaited = [action for action in actions if self._source(action) is not None]
        posted = [self._post(action) for action in awaited[:1]]
        for place, action in enumerate(awaited):
            posted += [self._post(later) for later in awaited[place + 1 : place + 2]]
            buffer, work = posted.pop(0)
            with self.recorder.communication(self._name(action, sent=False), _size_bytes(buffer)):
                work.wait()
            yield buffer

    def _post(self, action: Action) -> tuple[torch.Tensor, Any]:
        buffer = torch.empty_like(self.like)
        return buffer, dist.irecv(buffer, src=self._source(action), tag=_tag(action))

    def _source(self, action: Action) -> int | None:
        return self.following if action.backward else self.previous

    def _target(self, action: Action) -> int | None:
        return self.previous if action.backward else self.following

    def _name(self, action: Action, *, sent: bool) -> str:
        """Equal at both ends of a transfer: that of the action that needs it."""
        step = -1 if action.backward else 1
        return f"{self.label}.{action.name}.stage{self.stage + step if sent else self.stage}"


def _tag(action: Action) -> int:
    return 2 * action.microbatch + action.backward


def _size_bytes(values: torch.Tensor) -> int:
    return values.numel() * values.element_size()


def partition(whole: Transformer, stages: int) -> list[nn.ModuleDict]:
    """Blocks dealt out evenly, the embedding before the first, the head after the last.  Raises UserError."""
    layers = whole.shape.layers
    if layers % stages:
        raise UserError(f"--set layers={layers}: {stages} stages cannot have equally many; write a multiple")
    each = layers // stages
    found = []
    for stage in range(stages):
        names = [f"block{number}" for number in range(stage * each, (stage + 1) * each)]
        names = (["embedding"] if stage == 0 else []) + names + (["head"] if stage == stages - 1 else [])
        found.append(nn.ModuleDict({name: whole.stages[name] for name in names}))
    return found


class TorchStage:
    """Some layers of a transformer, with torch's graph of every micro-batch that is under way."""

    def __init__(self, layers: nn.ModuleDict, occupy: Occupy | None = None) -> None:
        """The layers are used as they are, not copied."""
        self.layers, self._occupy = layers, occupy
        self._tokens: Sequence[torch.Tensor] = ()
        self._held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.loss, self.most_held = 0.0, 0

    def begin(self, tokens: Sequence[torch.Tensor]) -> None:
        """A step with these micro-batches."""
        self._tokens, self.loss = tokens, 0.0

    def forward(self, microbatch: int, values: torch.Tensor | None) -> torch.Tensor | None:
        """Through the layers; the last stage also computes its share of the mean loss."""
        tokens = self._tokens[microbatch]
        entry = tokens[:, :-1] if values is None else values.requires_grad_(True)
        out = entry
        for name, layer in self.layers.items():
            out = layer(out)
            if self._occupy is not None:
                out = busy(out, self._occupy, name, sum(each.numel() for each in layer.parameters()))
        last = "head" in self.layers
        if last:
            out = functional.cross_entropy(out.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1)) / len(self._tokens)
            self.loss += float(out.item())
        self._held[microbatch] = (entry, out)
        self.most_held = max(self.most_held, len(self._held))
        return None if last else out.detach()

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Adds to the parameters' gradients."""
        entry, out = self._held.pop(microbatch)
        torch.autograd.backward(out, gradient)
        return entry.grad if entry.is_floating_point() else None


def stage_weights(shape: Shape, weights: Sequence[torch.Tensor], *, stage: int, stages: int) -> list[torch.Tensor]:
    """What a stage must hold when the whole model has these weights."""
    return [each.detach() for each in partition(holding(shape, weights), stages)[stage].parameters()]


def train_pipeline(rank: Rank, plan: Plan, devices: Sequence[Device], schedule: str) -> PartTrained:
    """What every rank runs: rank s holds stage s; `plan.accumulate` micro-batches per step."""
    recorder = Recorder()
    layers = partition(Transformer(plan.shape, seed=plan.seed), rank.size)[rank.rank]
    stage = TorchStage(layers, occupation(recorder, devices[rank.rank], plan.tokens))
    pipe = Pipe(
        recorder=recorder,
        label="pipeline",
        stage=rank.rank,
        previous=rank.rank - 1 if rank.rank else None,
        following=rank.rank + 1 if rank.rank + 1 < rank.size else None,
        like=torch.empty(plan.sequences, plan.shape.context, plan.shape.width),
    )
    actions = schedule_named(schedule)(rank.rank, rank.size, plan.accumulate)
    optimizer = torch.optim.SGD(layers.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses = corpus(), []
    rank.line_up("first step")
    for number in range(-plan.warmup, plan.steps):
        stage.begin([model_batch(text, plan, number, 0, part) for part in range(plan.accumulate)])
        rank.line_up("step")
        with rank.operation("training step"), recorder.step(number):
            pipe.run(stage, actions)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(stage.loss)
    rank.line_up("last step")
    return PartTrained(
        steps=tuple(recorder.steps),
        losses=tuple(losses) if "head" in layers else (),
        weights=tuple(each.detach().numpy().tobytes() for each in layers.parameters()),
        most_held=stage.most_held,
    )
