"""Which expert computes which token, and what that puts on the wire.  Pure; known without torch.

An expert takes at most `capacity` tokens of one rank's micro-batch; what is above that passes it by (Lepikhin et al.
2020, GShard, section 2.2; Fedus et al. 2021, Switch, section 2.2).  Without a limit nothing is dropped (Gale et al.
2022, MegaBlocks).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log

from experiments.workloads import messages
from experiments.workloads.messages import Message
from topologies.errors import UserError

COUNT_BYTES = 8
"""Of one number of tokens, int64."""
EXCHANGES = ("dispatch", "combine", "combine.backward", "dispatch.backward")
"""All-to-alls of a layer and step that carry tokens or their gradients, in order."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """How a router chooses."""

    experts: int
    top_k: int
    capacity_factor: float | None
    """Times the even share, or no limit."""
    skew: float
    """Exponent of Zipf's law: the i-th most popular expert is drawn with weight i^-skew; 0 is even."""
    seed: int

    def __post_init__(self) -> None:
        """Raises UserError in the words of the settings that gates are made of."""
        if not 1 <= self.top_k <= self.experts:
            raise UserError(f"--set top_k={self.top_k}: there are {self.experts} experts; write 1 to that")
        if self.capacity_factor is not None and self.capacity_factor <= 0:
            raise UserError(f"--set capacities={self.capacity_factor}: write a positive factor, or none")
        if self.skew < 0:
            raise UserError(f"--set skews={self.skew}: write 0 for even or a positive exponent")

    def capacity(self, tokens: int) -> int | None:
        """Most tokens that one rank may send to one expert."""
        if self.capacity_factor is None:
            return None
        return ceil(self.capacity_factor * self.top_k * tokens / self.experts)

    def popularity(self) -> list[int]:
        """Experts, the most popular first; which one that is comes from the seed."""
        return random.Random(self.seed).sample(range(self.experts), self.experts)

    def biases(self) -> list[float]:
        """Per expert, in nats: added to its score, with Gumbel noise they draw by Zipf's law."""
        found = [0.0] * self.experts
        for place, expert in enumerate(self.popularity(), start=1):
            found[expert] = -self.skew * log(place)
        return found


Table = Sequence[Sequence[int]]
"""table[source rank][expert]: tokens."""


def between_ranks(table: Table) -> list[list[int]]:
    """Tokens from each rank to each rank; a rank has equally many experts, in order."""
    ranks = len(table)
    each = len(table[0]) // ranks
    return [[sum(row[rank * each : (rank + 1) * each]) for rank in range(ranks)] for row in table]


def transposed(counts: Table) -> list[list[int]]:
    """The way back."""
    return [list(column) for column in zip(*counts, strict=True)]


def all_to_all(counts: Table, unit_bytes: int) -> Iterator[Message]:
    """Gloo's messages for uneven splits: one for every pair, empty ones too."""
    for source, row in enumerate(counts):
        for destination, number in enumerate(row):
            if destination != source:
                yield Message(source, destination, number * unit_bytes)


def layer_messages(table: Table, token_bytes: int) -> Iterator[Message]:
    """A layer's step: the numbers, then tokens there and back, then gradients there and back."""
    out = between_ranks(table)
    yield from messages.all_to_all(len(table), COUNT_BYTES * len(table[0]))
    for counts in (out, transposed(out), out, transposed(out)):
        yield from all_to_all(counts, token_bytes)


def arriving(counts: Table) -> list[int]:
    """Tokens that reach each rank from others."""
    return [sum(row[rank] for source, row in enumerate(counts) if source != rank) for rank in range(len(counts))]


def leaving(counts: Table) -> list[int]:
    """Tokens that each rank sends to others."""
    return arriving(transposed(counts))
