r"""Tensor parallelism: every layer cut across ranks, as Megatron-LM does it (Shoeybi et al. 2019, section 3).

                  +- columns of W1, heads -- rows of W2 -+
    values --norm-f                                      g-- + bias + values -->      the same on every rank
                  +- columns of W1, heads -- rows of W2 -+
                     rank 0, 1, ...

    f   forward: nothing                          backward: all-reduce of the gradient
    g   forward: all-reduce of the partial sums   backward: nothing

Attention and feed-forward layer are such a pair each: a block has two all-reduces forward and two backward, of
batch x context x width values.  Norms, biases after g, embedding and head are held by every rank and stay equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from experiments.training.data_parallel import MOMENTUM, RATE, Plan, model_batch, occupation
from experiments.training.device import Device
from experiments.training.shape import VOCABULARY, Shape
from experiments.training.text import corpus
from experiments.training.timeline import Recorder, StepRecord
from experiments.training.transformer import Block, Occupy, Transformer, busy
from testbed.workers.rank import Rank
from topologies.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PartTrained:
    """What a rank brings back that holds a part of the model."""

    steps: tuple[StepRecord, ...]
    losses: tuple[float, ...]
    """Of every step, warm-up included; none where the rank does not see the loss."""
    weights: tuple[bytes, ...]
    """Its parameters, float32."""
    most_held: int = 0
    """Micro-batches whose activations were held at once."""


@dataclass(frozen=True, kw_only=True)
class Reducer:
    """All-reduces of a group, each written down under a name that the group shares."""

    recorder: Recorder
    label: str
    group: Any = None
    """A process group; all ranks where there is none."""

    def all_reduce(self, values: torch.Tensor, name: str) -> torch.Tensor:
        """The sum, in a new tensor."""
        total = values.contiguous().clone()
        with self.recorder.communication(f"{self.label}.{name}", total.numel() * total.element_size()):
            dist.all_reduce(total, group=self.group)
        return total


class _Copied(torch.autograd.Function):
    """f: the same values into every rank's part, whose gradients add up."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, reducer: Reducer, name: str) -> torch.Tensor:
        ctx.reducer, ctx.name = reducer, name
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.reducer.all_reduce(gradients[0], f"{ctx.name}.backward"), None, None


class _Reduced(torch.autograd.Function):
    """g: every rank's part of a sum."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, reducer: Reducer, name: str) -> torch.Tensor:
        return reducer.all_reduce(values, f"{name}.forward")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None, None


def copied(values: torch.Tensor, reducer: Reducer, name: str) -> torch.Tensor:
    """f."""
    found: torch.Tensor = _Copied.apply(values, reducer, name)  # type: ignore[no-untyped-call]  # torch's own
    return found


def reduced(values: torch.Tensor, reducer: Reducer, name: str) -> torch.Tensor:
    """g."""
    found: torch.Tensor = _Reduced.apply(values, reducer, name)  # type: ignore[no-untyped-call]  # torch's own
    return found


class BlockPart(nn.Module):
    """One rank's heads and columns of a block."""

    def __init__(self, block: Block, *, rank: int, ranks: int) -> None:
        """Copies what it needs of the whole block.  Raises UserError where heads cannot be dealt out."""
        super().__init__()
        width = block.attention_out.out_features
        if block.heads % ranks:
            raise UserError(f"--set heads={block.heads}: {ranks} ranks cannot have equally many; write a multiple")
        self.heads, self.head_width = block.heads // ranks, width // block.heads
        mine = slice(rank * width // ranks, (rank + 1) * width // ranks)
        feed = slice(rank * 4 * width // ranks, (rank + 1) * 4 * width // ranks)
        self.norm_attention, self.norm_feed = _like(block.norm_attention), _like(block.norm_feed)
        whole = block.attention_in.weight.detach().view(3, width, width)[:, mine]
        bias = block.attention_in.bias.detach().view(3, width)[:, mine]
        self.attention_in, self.attention_in_bias = _own(whole.reshape(-1, width)), _own(bias.flatten())
        self.attention_out = _own(block.attention_out.weight.detach()[:, mine])
        self.attention_out_bias = _own(block.attention_out.bias.detach())
        self.feed_in, self.feed_in_bias = (
            _own(block.feed_in.weight.detach()[feed]),
            _own(block.feed_in.bias.detach()[feed]),
        )
        self.feed_out, self.feed_out_bias = (
            _own(block.feed_out.weight.detach()[:, feed]),
            _own(block.feed_out.bias.detach()),
        )

    def forward(self, values: torch.Tensor, reducer: Reducer, name: str, occupy: Occupy | None = None) -> torch.Tensor:
        """The same values as the whole block's, on every rank."""
        seen = self._attend(copied(self.norm_attention(values), reducer, f"{name}.attention"))
        if occupy is not None:
            seen = busy(seen, occupy, f"{name}.attention", self.attention_in.numel() + self.attention_out.numel())
        values = values + reduced(seen, reducer, f"{name}.attention") + self.attention_out_bias
        inner = copied(self.norm_feed(values), reducer, f"{name}.feed")
        fed = functional.linear(
            functional.gelu(functional.linear(inner, self.feed_in, self.feed_in_bias)), self.feed_out
        )
        if occupy is not None:
            fed = busy(fed, occupy, f"{name}.feed", self.feed_in.numel() + self.feed_out.numel())
        return values + reduced(fed, reducer, f"{name}.feed") + self.feed_out_bias

    def _attend(self, values: torch.Tensor) -> torch.Tensor:
        """This rank's heads, and their part of the projection's sum."""
        rows, length, _ = values.shape
        split = functional.linear(values, self.attention_in, self.attention_in_bias)
        query, key, value = (
            each.transpose(1, 2) for each in split.view(rows, length, 3, self.heads, self.head_width).unbind(2)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return functional.linear(seen.transpose(1, 2).reshape(rows, length, -1), self.attention_out)


def _own(values: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(values.clone())


def _like(norm: nn.LayerNorm) -> nn.LayerNorm:
    found = nn.LayerNorm(norm.normalized_shape)
    found.load_state_dict(norm.state_dict())
    return found


class TransformerPart(nn.Module):
    """One rank's part of a transformer."""

    def __init__(self, whole: Transformer, *, rank: int, ranks: int) -> None:
        """Cuts up the weights that `whole` has now."""
        super().__init__()
        self.embedding, self.head = whole.stages["embedding"], whole.stages["head"]
        blocks = [stage for stage in whole.stages.values() if isinstance(stage, Block)]
        self.parts = [BlockPart(block, rank=rank, ranks=ranks) for block in blocks]
        self.blocks = nn.ModuleList(self.parts)

    def loss(self, tokens: torch.Tensor, reducer: Reducer, occupy: Occupy | None = None) -> torch.Tensor:
        """Mean cross entropy in nats of each next byte of (batch, context + 1)."""
        values: torch.Tensor = self.embedding(tokens[:, :-1])
        for number, block in enumerate(self.parts):
            values = block(values, reducer, f"block{number}", occupy)
        scores: torch.Tensor = self.head(values)
        return functional.cross_entropy(scores.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def slices(shape: Shape, weights: Sequence[torch.Tensor], *, rank: int, ranks: int) -> list[torch.Tensor]:
    """What a rank must hold when the whole model has these weights."""
    part = TransformerPart(holding(shape, weights), rank=rank, ranks=ranks)
    return [each.detach() for each in part.parameters()]


def holding(shape: Shape, weights: Sequence[torch.Tensor]) -> Transformer:
    """A whole model with these weights."""
    whole = Transformer(shape, seed=0)
    for parameter, values in zip(whole.parameters(), weights, strict=True):
        parameter.data.copy_(values)
    return whole


def train_tensor_parallel(rank: Rank, plan: Plan, devices: Sequence[Device]) -> PartTrained:
    """What every rank runs: all see the same micro-batches."""
    recorder = Recorder()
    model = TransformerPart(Transformer(plan.shape, seed=plan.seed), rank=rank.rank, ranks=rank.size)
    occupy = occupation(recorder, devices[rank.rank], plan.tokens)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    text, losses = corpus(), []
    rank.line_up("first step")
    for number in range(-plan.warmup, plan.steps):
        total = 0.0
        with rank.operation("training step"), recorder.step(number):
            for part in range(plan.accumulate):
                tokens = model_batch(text, plan, number, 0, part)
                loss = model.loss(tokens, Reducer(recorder=recorder, label=f"micro{part}"), occupy) / plan.accumulate
                torch.autograd.backward(loss)
                total += float(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    rank.line_up("last step")
    return PartTrained(
        steps=tuple(recorder.steps),
        losses=tuple(losses),
        weights=tuple(each.detach().numpy().tobytes() for each in model.parameters()),
        most_held=1,
    )
