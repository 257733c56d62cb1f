"""ZeRO-3 layer by layer: every rank keeps 1/P of each stage, gathers a stage just before it is needed, and drops it.

    forward    gather 0 | stage 0 | stage 1 | ... | head             gathers of the next `prefetch` stages run meanwhile
                 gather 1 ^   gather 2 ^
    backward   gather head | head | ... | stage 0                    each stage's gradients are reduce-scattered while
                              scatter head ^                         the backward pass goes on

Source: Rajbhandari et al. 2020, section 5.3 (P_os+g+p) and 7.2.2 (volume 3 (P-1)/P n: two gathers, one reduce-scatter).
Gloo's own reduce_scatter is an all_reduce of which a chunk is kept: with it the volume is 4 (P-1)/P n, twice that of
data parallelism.  `direct` is a true one: every chunk goes straight to its owner, who sums: (P-1)/P n.

The backward pass computes a stage's forward again to have torch's graph for it; that is our way of freeing memory, and
no device time is charged for it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from experiments.training.data_parallel import MOMENTUM, RATE, Plan, Sent, Trained, model_batch, occupation
from experiments.training.device import Device
from experiments.training.shape import VOCABULARY
from experiments.training.text import corpus
from experiments.training.timeline import Pending, Recorder
from experiments.training.transformer import Occupy, Transformer
from testbed.workers.rank import Rank

Future = Any
"""torch.futures.Future, whose `then` and `wait` its stubs leave untyped."""


@dataclass(kw_only=True)
class Piece:
    """One stage's parameters: this rank's shard, and how the whole is cut up."""

    name: str
    stage: nn.Module
    shard: torch.Tensor
    velocity: torch.Tensor
    gradient: torch.Tensor
    shapes: Mapping[str, torch.Size]
    parameters: int

    @classmethod
    def of(cls, name: str, stage: nn.Module) -> "Piece":
        """Cuts up the stage's present values, padded so that all ranks have equally much."""
        flat = torch.cat([each.detach().flatten() for each in stage.parameters()])
        ranks, rank = dist.get_world_size(), dist.get_rank()
        padded = functional.pad(flat, (0, -flat.numel() % ranks))
        shard = padded.chunk(ranks)[rank].clone()
        return cls(
            name=name,
            stage=stage,
            shard=shard,
            velocity=torch.zeros_like(shard),
            gradient=torch.zeros_like(shard),
            shapes={key: each.shape for key, each in stage.named_parameters()},
            parameters=flat.numel(),
        )

    @property
    def whole_bytes(self) -> int:
        """Of the gathered stage, padding included."""
        return self.shard.numel() * dist.get_world_size() * self.shard.element_size()

    def run(self, whole: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The stage with these parameters."""
        views, at = {}, 0
        for key, shape in self.shapes.items():
            views[key] = whole[at : at + shape.numel()].view(shape)
            at += shape.numel()
        found: torch.Tensor = torch.func.functional_call(self.stage, views, (values,))
        return found

    def step(self) -> None:
        """Momentum gradient descent on the shard, as torch.optim.SGD does it."""
        self.velocity.mul_(MOMENTUM).add_(self.gradient)
        self.shard.sub_(self.velocity, alpha=RATE)


class Gatherer:
    """Gathers stages, some of them ahead of time."""

    def __init__(self, pieces: Sequence[Piece], recorder: Recorder, prefetch: int) -> None:
        self._pieces, self._recorder, self._prefetch = pieces, recorder, prefetch
        self._under_way: dict[int, tuple[torch.Tensor, Future]] = {}

    def fetch(self, place: int, order: Sequence[int], way: str) -> torch.Tensor:
        """The whole of stage order[place]; those that follow it in `order` are sent for as well."""
        for ahead in order[place : place + 1 + self._prefetch]:
            self._begin(ahead, way)
        whole, future = self._under_way.pop(order[place])
        future.wait()
        return whole

    def _begin(self, number: int, way: str) -> None:
        if number in self._under_way:
            return
        piece = self._pieces[number]
        whole = torch.empty(piece.shard.numel() * dist.get_world_size())
        pending = self._recorder.begin(f"{piece.name}.gather.{way}", piece.whole_bytes)
        work = dist.all_gather_into_tensor(whole, piece.shard, async_op=True)
        self._under_way[number] = (whole, noted(work, pending))


def noted(work: Any, pending: Pending) -> Future:
    """The work's future, which notes the instant of its end in gloo's own thread."""

    def ended(future: Future) -> Future:
        pending.done()
        return future.value()

    return work.get_future().then(ended)


def reduce_scatter_gloo(whole: torch.Tensor, pending: Pending) -> Callable[[], torch.Tensor]:
    """Gloo's own: begun now; the result is this rank's chunk of the sum.

    This work has no future (torch makes it of an all_reduce), so a thread waits for its end to note the instant.
    """
    chunk = torch.empty(whole.numel() // dist.get_world_size())
    work = dist.reduce_scatter_tensor(chunk, whole, async_op=True)

    def watch() -> None:
        work.wait()
        pending.done()

    watcher = threading.Thread(target=watch)
    watcher.start()

    def wait() -> torch.Tensor:
        watcher.join()
        return chunk

    return wait


def reduce_scatter_direct(whole: torch.Tensor, pending: Pending) -> Callable[[], torch.Tensor]:
    """Every chunk to its owner, all at once; the owner sums in rank order."""
    ranks = dist.get_world_size()
    received = torch.empty_like(whole)
    future = noted(dist.all_to_all_single(received, whole, async_op=True), pending)

    def wait() -> torch.Tensor:
        future.wait()
        return received.view(ranks, -1).sum(dim=0)

    return wait


REDUCE_SCATTERS = {"gloo": reduce_scatter_gloo, "direct": reduce_scatter_direct}


def train_sharded(rank: Rank, plan: Plan, devices: Sequence[Device], prefetch: int, scatter: str) -> Trained:
    """What every rank runs."""
    recorder = Recorder()
    model = Transformer(plan.shape, seed=plan.seed)
    pieces = [Piece.of(name, stage) for name, stage in model.stages.items()]
    occupy = occupation(recorder, devices[rank.rank], plan.tokens)
    sharded = Sharded(pieces, recorder, occupy, prefetch=prefetch, scatter=scatter)
    text, losses = corpus(), []
    sent = Sent(rank)
    for number in range(-plan.warmup, plan.steps):
        with rank.operation("training step", 4 * plan.shape.parameters), recorder.step(number):
            losses.append(sharded.compute(model_batch(text, plan, number, rank.rank, 0)))
        for piece in pieces:
            piece.step()
    payload_bytes = sent.bytes()
    return Trained(
        steps=tuple(recorder.steps),
        losses=tuple(losses),
        weights=tuple(_whole(piece) for piece in pieces),
        buckets_bytes=tuple(piece.whole_bytes for piece in pieces),
        payload_bytes=payload_bytes,
    )


class Sharded:
    """The forward and backward pass over shards."""

    def __init__(
        self, pieces: Sequence[Piece], recorder: Recorder, occupy: Occupy, *, prefetch: int, scatter: str
    ) -> None:
        self._pieces, self._recorder, self._occupy = pieces, recorder, occupy
        self._gatherer = Gatherer(pieces, recorder, prefetch)
        self._scatter = REDUCE_SCATTERS[scatter]

    def compute(self, tokens: torch.Tensor) -> float:
        """The loss of these sequences; afterwards every piece has the mean gradient of its shard."""
        inputs = self._forward(tokens[:, :-1])
        scores = inputs.pop().requires_grad_(True)
        loss = functional.cross_entropy(scores.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        torch.autograd.backward(loss)
        self._backward(inputs, scores.grad)
        return float(loss.item())

    def _forward(self, values: torch.Tensor) -> list[torch.Tensor]:
        """What went into each stage, and what came out of the last."""
        order, inputs = range(len(self._pieces)), [values]
        for place, piece in enumerate(self._pieces):
            whole = self._gatherer.fetch(place, order, "forward")
            with torch.no_grad():
                inputs.append(piece.run(whole, inputs[-1]))
            self._occupy(piece.name, piece.parameters, False)
        return inputs

    def _backward(self, inputs: Sequence[torch.Tensor], gradient: torch.Tensor | None) -> None:
        order, waits = range(len(self._pieces))[::-1], []
        for place, number in enumerate(order):
            piece = self._pieces[number]
            whole = self._gatherer.fetch(place, order, "backward").requires_grad_(True)
            values = inputs[number]
            if values.is_floating_point():
                values = values.detach().requires_grad_(True)
            self._occupy(piece.name, piece.parameters, True)
            torch.autograd.backward(piece.run(whole, values), gradient)
            gradient = values.grad
            pending = self._recorder.begin(f"{piece.name}.scatter", piece.whole_bytes)
            waits.append((piece, self._scatter(_gradient(whole), pending)))
        for piece, wait in waits:
            piece.gradient = wait().div_(dist.get_world_size())


def _gradient(whole: torch.Tensor) -> torch.Tensor:
    """Padding was used by nobody: its gradient is zero, as autograd says."""
    return torch.zeros_like(whole) if whole.grad is None else whole.grad


def _whole(piece: Piece) -> bytes:
    """The stage's parameters without padding."""
    whole = torch.empty(piece.shard.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(whole, piece.shard)
    return whole[: piece.parameters].numpy().tobytes()


def train_fsdp(rank: Rank, plan: Plan, devices: Sequence[Device]) -> Trained:
    """torch's own fully_shard on every stage, as its documentation says; its communication is not in the record."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    recorder = Recorder()
    model = Transformer(plan.shape, seed=plan.seed, occupy=occupation(recorder, devices[rank.rank], plan.tokens))
    mesh = init_device_mesh("cpu", (rank.size,))
    for stage in model.stages.values():
        fully_shard(stage, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses = corpus(), []
    sent = Sent(rank)
    for number in range(-plan.warmup, plan.steps):
        with rank.operation("training step", 4 * plan.shape.parameters), recorder.step(number):
            loss = model.loss(model_batch(text, plan, number, rank.rank, 0))
            torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    payload_bytes = sent.bytes()
    weights = [each.full_tensor().detach() for each in model.parameters()]  # type: ignore[attr-defined]  # a DTensor now
    return Trained(
        steps=tuple(recorder.steps),
        losses=tuple(losses),
        weights=tuple(each.numpy().tobytes() for each in weights),
        buckets_bytes=tuple(4 * each.numel() for each in weights),
        payload_bytes=payload_bytes,
    )
