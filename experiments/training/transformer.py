"""A small decoder-only transformer whose layers also say when they ran and how long a GPU would have taken.

    bytes -> embedding -> [block] x layers -> norm, head -> next byte

Every stage is followed by a `Busy` node in torch's graph: in the forward pass it keeps the device busy after the stage,
in the backward pass before the stage's gradients exist.  So a gradient is handed to DDP at the instant at which a GPU
would have had it, and what DDP sends meanwhile overlaps with the rest of the backward pass, as on a real machine.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.training.shape import VOCABULARY, Shape

Occupy = Callable[[str, int, bool], None]
"""(stage, parameters, is backward): called when the stage's device time is due."""


class Busy(torch.autograd.Function):
    """The identity, with device time on both ways."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, occupy: Occupy, stage: str, parameters: int) -> torch.Tensor:
        """After the stage."""
        ctx.occupy, ctx.stage, ctx.parameters = occupy, stage, parameters
        occupy(stage, parameters, False)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Before the stage's own gradients."""
        ctx.occupy(ctx.stage, ctx.parameters, True)
        return gradients[0], None, None, None


def busy(values: torch.Tensor, occupy: Occupy, stage: str, parameters: int) -> torch.Tensor:
    """The same values, after the stage's device time; their gradient likewise."""
    found: torch.Tensor = Busy.apply(values, occupy, stage, parameters)  # type: ignore[no-untyped-call]  # torch's own
    return found


class Embedding(nn.Module):
    """Bytes and places to vectors."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, shape.width), nn.Embedding(shape.context, shape.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, context) -> (batch, context, width)."""
        found: torch.Tensor = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return found


class Block(nn.Module):
    """Attention and a feed-forward layer of four times the width, norms before each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention, self.norm_feed = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention_in, self.attention_out = (
            nn.Linear(shape.width, 3 * shape.width),
            nn.Linear(shape.width, shape.width),
        )
        self.feed_in, self.feed_out = nn.Linear(shape.width, 4 * shape.width), nn.Linear(4 * shape.width, shape.width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, context, width) -> the same shape."""
        values = self.attend(values)
        fed: torch.Tensor = self.feed_out(functional.gelu(self.feed_in(self.norm_feed(values))))
        return values + fed

    def attend(self, values: torch.Tensor) -> torch.Tensor:
        """The first half: the values and what attention adds to them."""
        rows, length, width = values.shape
        split = self.attention_in(self.norm_attention(values)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = (each.transpose(1, 2) for each in split.unbind(2))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        found: torch.Tensor = values + self.attention_out(seen.transpose(1, 2).reshape(rows, length, width))
        return found


class Head(nn.Module):
    """The last norm, and vectors to scores of the next byte."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(shape.width), nn.Linear(shape.width, VOCABULARY)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, context, width) -> (batch, context, VOCABULARY)."""
        found: torch.Tensor = self.scores(self.norm(values))
        return found


class Transformer(nn.Module):
    """All stages in order; `stages` is what loops that shard or split the model walk over."""

    def __init__(self, shape: Shape, *, seed: int, occupy: Occupy | None = None) -> None:
        """The same seed gives the same weights everywhere."""
        super().__init__()
        torch.manual_seed(seed)
        self.shape, self._occupy = shape, occupy
        self.stages = nn.ModuleDict(
            {
                "embedding": Embedding(shape),
                **{f"block{number}": Block(shape) for number in range(shape.layers)},
                "head": Head(shape),
            }
        )
        self._parameters_of = {
            name: sum(each.numel() for each in stage.parameters()) for name, stage in self.stages.items()
        }

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, context) bytes -> scores of the byte after each."""
        values = tokens
        for name, stage in self.stages.items():
            values = stage(values)
            if self._occupy is not None:
                values = busy(values, self._occupy, name, self._parameters_of[name])
        return values

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy in nats of each next byte of (batch, context + 1)."""
        scores = self(tokens[:, :-1])
        return functional.cross_entropy(scores.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
