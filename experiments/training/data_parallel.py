"""Data-parallel training as torch does it: DistributedDataParallel on gloo, or one all-reduce after the backward pass.

overlap on:   forward | backward: [b][b][b][b]        DDP sends a bucket as soon as its gradients are complete
                            comm:    [bucket 0 ][bucket 1 ]
overlap off:  forward | backward | bucket 0 | bucket 1
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._dynamo.utils  # DDP's constructor loads it: 800 modules, once here instead of once in every rank
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from experiments.training.device import Device
from experiments.training.shape import Shape
from experiments.training.text import batch, corpus
from experiments.training.timeline import Recorder, StepRecord
from experiments.training.transformer import Occupy, Transformer
from testbed.workers.counters import read_header_bytes
from testbed.workers.rank import Rank

MIB = 1 << 20
RATE, MOMENTUM = 0.1, 0.9
"""Of plain gradient descent: Adam would divide by tiny numbers, and no tolerance for rounding could be named."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training job."""

    shape: Shape
    sequences: int
    """Per rank and micro-batch."""
    steps: int
    warmup: int = 0
    accumulate: int = 1
    """Micro-batches per step: gradients are exchanged after the last."""
    bucket_bytes: int = 25 * MIB
    overlap: bool = True
    seed: int = 1

    @property
    def tokens(self) -> int:
        """Per rank and micro-batch."""
        return self.sequences * self.shape.context


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a rank brings back."""

    steps: tuple[StepRecord, ...]
    losses: tuple[float, ...]
    weights: tuple[bytes, ...]
    """Every parameter, float32."""
    buckets_bytes: tuple[int, ...]
    """As DDP made them in its last step, first sent first."""
    payload_bytes: int
    """That TCP of this host sent in all steps, warm-up included, headers excluded."""


def occupation(recorder: Recorder, device: Device, tokens: int) -> Occupy:
    """Keeps the device busy for each stage."""
    lots = device.lots()

    def occupy(stage: str, parameters: int, backward: bool) -> None:
        cost = device.cost(stage, parameters=parameters, tokens=tokens)
        way, cost_ns = ("backward", cost.backward_ns) if backward else ("forward", cost.forward_ns)
        recorder.compute(f"{stage}.{way}", lots.duration_ns(cost_ns))

    return occupy


def train(rank: Rank, plan: Plan, devices: Sequence[Device]) -> Trained:
    """What every rank runs."""
    recorder = Recorder()
    model = Transformer(plan.shape, seed=plan.seed, occupy=occupation(recorder, devices[rank.rank], plan.tokens))
    gradients = Gradients(model, plan, recorder)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses = corpus(), []
    sent = Sent(rank)
    for number in range(-plan.warmup, plan.steps):
        gradients.begin_step()
        with rank.operation("training step", 4 * plan.shape.parameters), recorder.step(number):
            loss = gradients.compute(partial(model_batch, text, plan, number, rank.rank))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    payload_bytes = sent.bytes()
    return Trained(
        steps=tuple(recorder.steps),
        losses=tuple(losses),
        weights=tuple(each.detach().numpy().tobytes() for each in model.parameters()),
        buckets_bytes=tuple(gradients.buckets_bytes),
        payload_bytes=payload_bytes,
    )


class Sent:
    """What TCP of this rank's host sends from here on; all ranks start at one instant."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        rank.line_up("before the steps")
        self._before = rank.counters()
        rank.line_up("first step")

    def bytes(self) -> int:
        """Payload until now, once every rank has come this far."""
        self._rank.line_up("last step")
        return (self._rank.counters() - self._before).tx_payload_bytes(read_header_bytes())


def model_batch(text: torch.Tensor, plan: Plan, step: int, rank: int, part: int) -> torch.Tensor:
    """The micro-batch `part` of a step."""
    sequence = (step + plan.warmup) * plan.accumulate + part
    return batch(text, seed=plan.seed, step=sequence, rank=rank, sequences=plan.sequences, context=plan.shape.context)


class Gradients:
    """Computes gradients and averages them over all ranks, by DDP's hooks or afterwards."""

    def __init__(self, model: Transformer, plan: Plan, recorder: Recorder) -> None:
        self._model, self._plan, self._recorder = model, plan, recorder
        self.buckets_bytes: list[int] = []
        self._replica = _Loss(model)
        if plan.overlap:
            wrapped = DistributedDataParallel(self._replica, bucket_cap_mb=plan.bucket_bytes / MIB)
            wrapped.register_comm_hook(None, self._send)
            self._wrapped = wrapped

    def begin_step(self) -> None:
        """Forgets the buckets of the step before."""
        self.buckets_bytes = []

    def compute(self, micro_batch: Callable[[int], torch.Tensor]) -> float:
        """The mean loss of all micro-batches; gradients are then averages over ranks and micro-batches."""
        total = 0.0
        for part in range(self._plan.accumulate):
            last = part == self._plan.accumulate - 1
            tokens = micro_batch(part)
            total += self._backward(tokens, exchange=last)
        if not self._plan.overlap:
            self._exchange()
        return total / self._plan.accumulate

    def _backward(self, tokens: torch.Tensor, *, exchange: bool) -> float:
        if self._plan.overlap and exchange:
            loss = self._wrapped(tokens) / self._plan.accumulate
            loss.backward()
        elif self._plan.overlap:
            with self._wrapped.no_sync():
                loss = self._wrapped(tokens) / self._plan.accumulate
                loss.backward()
        else:
            loss = self._replica(tokens) / self._plan.accumulate
            loss.backward()
        return float(loss.item()) * self._plan.accumulate

    def _send(
        self,
        _state: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch demands this annotation, its stubs lack it
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: what its default does, with the times written down."""
        buffer: torch.Tensor = bucket.buffer()
        self.buckets_bytes.append(buffer.numel() * buffer.element_size())
        pending = self._recorder.begin(f"bucket{bucket.index()}", self.buckets_bytes[-1])
        work = dist.all_reduce(buffer.div_(dist.get_world_size()), async_op=True)
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: _ended(pending.done, done))
        return future

    def _exchange(self) -> None:
        """Buckets of the same capacity, filled from the last layer on, one after the other."""
        for number, members in enumerate(filled(list(self._model.parameters())[::-1], self._plan.bucket_bytes)):
            flat = torch.cat([each.grad.flatten() for each in members if each.grad is not None])
            self.buckets_bytes.append(4 * flat.numel())
            with self._recorder.communication(f"bucket{number}", self.buckets_bytes[-1]):
                dist.all_reduce(flat.div_(dist.get_world_size()))
            at = 0
            for each in members:
                each.grad = flat[at : at + each.numel()].view_as(each)
                at += each.numel()


class _Loss(nn.Module):
    """DDP wraps what is called: the loss, so that its forward pass is the model's."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model.loss(tokens)


def _ended(done: Callable[[], None], future: torch.futures.Future[Any]) -> Any:
    done()
    return future.value()[0]


def filled(parameters: Sequence[nn.Parameter], capacity_bytes: int) -> list[list[nn.Parameter]]:
    """Groups in order, each at least one parameter and full at its capacity, as DDP counts."""
    groups: list[list[nn.Parameter]] = []
    room = 0
    for each in parameters:
        size_bytes = each.numel() * each.element_size()
        if not groups or room <= 0:
            groups.append([])
            room = capacity_bytes
        groups[-1].append(each)
        room -= size_bytes
    return groups


def alone(plan: Plan, ranks: int) -> tuple[list[float], list[torch.Tensor]]:
    """The same batches on one process: the loss of every step, averaged over what the ranks had, and the weights."""
    model = Transformer(plan.shape, seed=plan.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses = corpus(), []
    for number in range(-plan.warmup, plan.steps):
        total = 0.0
        for rank in range(ranks):
            for part in range(plan.accumulate):
                loss = model.loss(model_batch(text, plan, number, rank, part)) / (ranks * plan.accumulate)
                torch.autograd.backward(loss)
                total += float(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, [each.detach() for each in model.parameters()]
