r"""A mixture of experts, trained with expert parallelism: experts live on different ranks, tokens travel to them.

    rank 0  tokens -> attention -> router -+-dispatch-> expert 0 -combine-+-> weighted sum -> ...
                                            \ /                       \ /
    rank 1  tokens -> attention -> router -+-X--------> expert 1 ------X--+-> weighted sum -> ...

Dispatch and combine are all-to-alls with uneven splits; their gradients travel the same ways back.  All else is
data-parallel: its gradients are averaged over ranks.  The same model on one process holds all experts and exchanges
nothing, so that both can be compared, parameter by parameter.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from experiments.training.data_parallel import MOMENTUM, RATE, Plan, model_batch, occupation
from experiments.training.device import Device
from experiments.training.routing import Gate
from experiments.training.shape import VOCABULARY, Shape
from experiments.training.text import corpus
from experiments.training.timeline import Recorder, StepRecord
from experiments.training.transformer import Block, Embedding, Head, Occupy, busy
from testbed.workers.rank import Rank

Exchange = Callable[[torch.Tensor, Sequence[int], Sequence[int], str], torch.Tensor]
"""(rows by destination, rows to each rank, rows from each rank, name) -> rows by source."""
OccupyFor = Callable[[int], Occupy]
"""Tokens -> what keeps the device busy for them."""


@dataclass(frozen=True, kw_only=True)
class Routed:
    """Where a rank's tokens go."""

    tokens: torch.Tensor
    """Number of the token of each row that is sent, by expert."""
    gates: torch.Tensor
    """Weight of each of these rows in the token's result."""
    counts: torch.Tensor
    """Rows per expert."""
    dropped: int
    """Choices that found their expert full."""


def route(scores: torch.Tensor, draw: torch.Tensor, *, top_k: int, capacity: int | None) -> Routed:
    """The `top_k` experts with the highest `draw` of each token, weighted by the softmax of its `scores`.

    One choice has the expert's probability as weight (Switch), several share 1 (GShard).  Full experts refuse second
    choices before first ones, and late tokens before early ones.
    """
    number, experts = scores.shape
    chosen = draw.topk(top_k, dim=1).indices
    gates = scores.softmax(dim=1).gather(1, chosen)
    if top_k > 1:
        gates = gates / gates.sum(dim=1, keepdim=True)
    expert, weight = chosen.T.flatten(), gates.T.flatten()
    token = torch.arange(number).repeat(top_k)
    if capacity is not None:
        place = functional.one_hot(expert, experts).cumsum(dim=0).gather(1, expert[:, None])[:, 0]
        kept = place <= capacity
        expert, weight, token = expert[kept], weight[kept], token[kept]
    order = expert.argsort(stable=True)
    return Routed(
        tokens=token[order],
        gates=weight[order],
        counts=torch.bincount(expert, minlength=experts),
        dropped=number * top_k - len(order),
    )


def noise(gate: Gate, *, step: int, rank: int, layer: int, tokens: int) -> torch.Tensor:
    """(tokens, experts) with which the highest of score + bias + noise is a draw from the softmax (Gumbel)."""
    digest = hashlib.sha256(f"gate/{gate.seed}/{step}/{rank}/{layer}".encode()).digest()
    source = torch.Generator().manual_seed(int.from_bytes(digest[:6], "little"))
    uniform = torch.rand(tokens, gate.experts, generator=source, dtype=torch.float64).clamp_(1e-12, 1 - 1e-12)
    return (-(-uniform.log()).log()).float()


class _AllToAll(torch.autograd.Function):
    """Rows to their ranks; gradients back to where the rows came from."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int], exchange: Exchange, name: str
    ) -> torch.Tensor:
        ctx.sent, ctx.received, ctx.exchange, ctx.name = sent, received, exchange, name
        return exchange(rows, sent, received, name)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back = ctx.exchange(gradients[0].contiguous(), ctx.received, ctx.sent, f"{ctx.name}.backward")
        return back, None, None, None, None


def exchanged(
    rows: torch.Tensor, sent: Sequence[int], received: Sequence[int], exchange: Exchange, name: str
) -> torch.Tensor:
    """All-to-all with a gradient."""
    found: torch.Tensor = _AllToAll.apply(rows, sent, received, exchange, name)  # type: ignore[no-untyped-call]  # torch's own
    return found


def over_the_network(recorder: Recorder) -> Exchange:
    """All-to-alls of all ranks, written down."""

    def exchange(rows: torch.Tensor, sent: Sequence[int], received: Sequence[int], name: str) -> torch.Tensor:
        found = rows.new_empty((sum(received), *rows.shape[1:]))
        with recorder.communication(name, rows.numel() * rows.element_size()):
            dist.all_to_all_single(found, rows.contiguous(), list(received), list(sent))
        return found

    return exchange


def at_home(rows: torch.Tensor, _sent: Sequence[int], _received: Sequence[int], _name: str) -> torch.Tensor:
    """One process has all experts."""
    return rows.clone()


class Experts(nn.Module):
    """The router and feed-forward layer of a block: this rank's experts of it."""

    def __init__(self, shape: Shape, gate: Gate) -> None:
        """Makes all experts, so that they are the same on any number of ranks; `keep` drops others'."""
        super().__init__()
        self.gate = gate
        self.router = nn.Linear(shape.width, gate.experts, bias=False)
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width))
            for _ in range(gate.experts)
        )
        self.register_buffer("bias", torch.tensor(gate.biases()))

    def keep(self, rank: int, ranks: int) -> None:
        """This rank's experts only."""
        each = self.gate.experts // ranks
        self.feeds = nn.ModuleList(list(self.feeds)[rank * each : (rank + 1) * each])

    def forward(self, values: torch.Tensor, world: "World", layer: int) -> torch.Tensor:
        """(tokens, width) -> the same shape: what the chosen experts make of each token."""
        scores = self.router(values)
        draw = scores.detach() + self.bias + world.noise(self.gate, layer, len(values))
        routed = route(scores, draw, top_k=self.gate.top_k, capacity=self.gate.capacity(len(values)))
        world.note(layer, routed)
        name, local = f"experts{layer}", len(self.feeds)
        each = [local] * world.ranks
        counts = world.exchange(routed.counts, each, each, f"{name}.counts").view(world.ranks, local)
        sent, received = routed.counts.view(world.ranks, local).sum(dim=1).tolist(), counts.sum(dim=1).tolist()
        rows = exchanged(values[routed.tokens], sent, received, world.exchange, f"{name}.dispatch")
        done = self._compute(rows, counts, world, name)
        back = exchanged(done, received, sent, world.exchange, f"{name}.combine")
        return torch.zeros_like(values).index_add(0, routed.tokens, back * routed.gates[:, None])

    def _compute(self, rows: torch.Tensor, counts: torch.Tensor, world: "World", name: str) -> torch.Tensor:
        """Every row by its expert; rows come by source and within that by expert, and go back in that order."""
        local = counts.shape[1]
        expert = torch.arange(local).repeat(world.ranks).repeat_interleave(counts.flatten())
        order = expert.argsort(stable=True)
        parts = torch.split(rows[order], counts.sum(dim=0).tolist())
        done = torch.cat([feed(part) for feed, part in zip(self.feeds, parts, strict=True)])
        found = torch.empty_like(done).index_copy(0, order, done)
        if world.occupy_for is None:
            return found
        parameters = sum(each.numel() for each in self.feeds[0].parameters())
        return busy(found, world.occupy_for(len(rows)), name, parameters)


@dataclass(kw_only=True)
class World:
    """Who computes: a rank among others, or one process in the place of one."""

    rank: int
    """Whose tokens these are."""
    ranks: int
    """That share the experts."""
    exchange: Exchange
    occupy_for: OccupyFor | None = None
    step: int = 0
    counts: list[tuple[int, ...]] | None = None
    """Per layer of the step: tokens to each expert."""
    dropped: int = 0

    def noise(self, gate: Gate, layer: int, tokens: int) -> torch.Tensor:
        """Of this rank, step and layer."""
        return noise(gate, step=self.step, rank=self.rank, layer=layer, tokens=tokens)

    def note(self, layer: int, routed: Routed) -> None:
        """Remembers where this step's tokens went."""
        if layer == 0:
            self.counts, self.dropped = [], 0
        if self.counts is not None:
            self.counts.append(tuple(routed.counts.tolist()))
        self.dropped += routed.dropped


class ExpertTransformer(nn.Module):
    """The transformer of `transformer.py`, with experts instead of every block's feed-forward layer."""

    def __init__(self, shape: Shape, gate: Gate, *, seed: int) -> None:
        """The same seed gives the same weights everywhere."""
        super().__init__()
        torch.manual_seed(seed)
        self.embedding, self.head = Embedding(shape), Head(shape)
        self.layers = [(Block(shape), Experts(shape, gate)) for _ in range(shape.layers)]
        for block, _ in self.layers:
            del block.feed_in, block.feed_out
        self.blocks = nn.ModuleList(nn.ModuleList(layer) for layer in self.layers)

    def shared(self) -> list[nn.Parameter]:
        """Those that every rank holds."""
        return [each for name, each in self.named_parameters() if ".feeds." not in name]

    def own(self) -> list[nn.Parameter]:
        """Those of this rank's experts."""
        return [each for name, each in self.named_parameters() if ".feeds." in name]

    def loss(self, tokens: torch.Tensor, world: World) -> torch.Tensor:
        """Mean cross entropy in nats of each next byte of (batch, context + 1)."""
        values: torch.Tensor = self.embedding(tokens[:, :-1])
        for layer, (block, experts) in enumerate(self.layers):
            values = block.attend(values)
            if world.occupy_for is not None:
                attention = sum(each.numel() for each in block.parameters())
                values = busy(values, world.occupy_for(values.shape[0] * values.shape[1]), f"block{layer}", attention)
            flat = block.norm_feed(values).flatten(0, 1)
            values = values + experts(flat, world, layer).view_as(values)
        scores = self.head(values)
        return functional.cross_entropy(scores.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


@dataclass(frozen=True, kw_only=True)
class ExpertsTrained:
    """What a rank brings back."""

    steps: tuple[StepRecord, ...]
    losses: tuple[float, ...]
    counts: tuple[tuple[tuple[int, ...], ...], ...]
    """[step][layer][expert], warm-up included: tokens that this rank sent there, or kept for its own."""
    dropped: tuple[int, ...]
    """Choices of each step that found their expert full."""
    shared: bytes
    """Parameters that every rank holds, float32."""
    own: bytes
    """Of this rank's experts."""
    shared_bytes: int
    """Of the array that is averaged every step."""


def flat(parameters: Sequence[nn.Parameter]) -> bytes:
    """All values, float32."""
    return b"".join(each.detach().numpy().tobytes() for each in parameters)


def train_experts(rank: Rank, plan: Plan, gate: Gate, devices: Sequence[Device]) -> ExpertsTrained:
    """What every rank runs."""
    recorder = Recorder()
    model = ExpertTransformer(plan.shape, gate, seed=plan.seed)
    for _, experts in model.layers:
        experts.keep(rank.rank, rank.size)
    world = World(
        rank=rank.rank,
        ranks=rank.size,
        exchange=over_the_network(recorder),
        occupy_for=lambda tokens: occupation(recorder, devices[rank.rank], tokens),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses, counts, dropped, shared_bytes = corpus(), [], [], [], 0
    rank.line_up("first step")
    for number in range(-plan.warmup, plan.steps):
        world.step = number
        with rank.operation("training step"), recorder.step(number):
            loss = model.loss(model_batch(text, plan, number, rank.rank, 0), world)
            torch.autograd.backward(loss)
            shared_bytes = _average(model.shared(), recorder)
        for parameter in model.own():
            if parameter.grad is not None:
                parameter.grad.div_(rank.size)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
        counts.append(tuple(world.counts or ()))
        dropped.append(world.dropped)
    rank.line_up("last step")
    return ExpertsTrained(
        steps=tuple(recorder.steps),
        losses=tuple(losses),
        counts=tuple(counts),
        dropped=tuple(dropped),
        shared=flat(model.shared()),
        own=flat(model.own()),
        shared_bytes=shared_bytes,
    )


def _average(parameters: Sequence[nn.Parameter], recorder: Recorder) -> int:
    """Gradients of what every rank holds, in one all-reduce; its size in bytes."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    whole = torch.cat([each.flatten() for each in gradients])
    size_bytes = whole.numel() * whole.element_size()
    with recorder.communication("shared gradients", size_bytes):
        dist.all_reduce(whole)
    whole.div_(dist.get_world_size())
    for each, part in zip(gradients, torch.split(whole, [one.numel() for one in gradients]), strict=True):
        each.copy_(part.view_as(each))
    return size_bytes


def experts_alone(plan: Plan, gate: Gate, ranks: int) -> tuple[list[float], bytes, bytes]:
    """The same batches on one process: the loss of every step, shared parameters, all experts' parameters."""
    model = ExpertTransformer(plan.shape, gate, seed=plan.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses = corpus(), []
    for number in range(-plan.warmup, plan.steps):
        total = 0.0
        for rank in range(ranks):
            world = World(rank=rank, ranks=1, exchange=at_home, step=number)
            loss = model.loss(model_batch(text, plan, number, rank, 0), world) / ranks
            torch.autograd.backward(loss)
            total += float(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, flat(model.shared()), flat(model.own())
