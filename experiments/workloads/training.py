"""A small real training job whose gradients are exchanged two ways.  Imports torch: for ranks only.

Every rank holds a replica of one model and its own share of the data.  A step computes real gradients and averages
them over ranks, by a parameter server, by a ring or in two levels; all must give the same numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from experiments.training.hierarchy import Hierarchy
from topologies.errors import InternalError

FEATURES, CLASSES, BATCH = 784, 10, 16
"""The shape of the handwritten-digit task that introductions use; the data are random, labels follow from them."""
AGREEMENT = 1e-4
"""Relative difference allowed between two orders of summing float32 gradients."""


class Replica:
    """One rank's copy of the model, and its own endless data."""

    def __init__(self, *, hidden: int, seed: int, rank: int) -> None:
        """The same seed gives every rank the same weights; data differ by rank."""
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
        )
        self._teacher = torch.randn(FEATURES, CLASSES)
        self._data = torch.Generator().manual_seed(seed * 1_000_003 + rank)
        self._loss = nn.CrossEntropyLoss()

    def gradient(self) -> tuple[torch.Tensor, float]:
        """The gradient of one new batch as one flat tensor, and the loss."""
        inputs = torch.randn(BATCH, FEATURES, generator=self._data)
        labels = (inputs @ self._teacher).argmax(dim=1)
        self.model.zero_grad()
        loss = self._loss(self.model(inputs), labels)
        loss.backward()
        return torch.cat(
            [weights.grad.flatten() for weights in self._weights() if weights.grad is not None]
        ), loss.item()

    def apply(self, gradient: torch.Tensor, *, rate: float) -> None:
        """One step of plain gradient descent."""
        at = 0
        with torch.no_grad():
            for weights in self._weights():
                weights.sub_(gradient[at : at + weights.numel()].view_as(weights), alpha=rate)
                at += weights.numel()

    def _weights(self) -> list[nn.Parameter]:
        return list(self.model.parameters())


class ParameterServer:
    """Rank 0 is worker and server: it takes in every gradient, averages, and sends the result to every worker."""

    def __init__(self, gradient: torch.Tensor) -> None:
        """`gradient` is this rank's; it is left as it is."""
        self.gradient, self.average = gradient, torch.zeros_like(gradient)
        self._serves, self._ranks = dist.get_rank() == 0, dist.get_world_size()
        self._pushed = [torch.zeros_like(gradient) for _ in range(self._ranks)] if self._serves else None

    def fill(self, iteration: int) -> None:
        """The gradient is already there."""

    def run(self) -> None:
        """Push: gather; sum; pull: the same tensor to all, each copy through the server's own link."""
        dist.gather(self.gradient, self._pushed, dst=0)
        pulled = None
        if self._pushed is not None:
            mean = self._pushed[0]
            for pushed in self._pushed[1:]:  # in place: a server of sixteen workers holds enough as it is
                mean.add_(pushed)
            pulled = [mean.div_(self._ranks)] * self._ranks
        dist.scatter(self.average, pulled, src=0)

    def wrong(self, iteration: int) -> int:
        """Judged by `disagreements` against the ring."""
        return 0


class Ring:
    """Every rank sums chunks and passes them on: no server, no link that carries more than another."""

    def __init__(self, gradient: torch.Tensor, group: Any) -> None:
        """`gradient` is this rank's; it is left as it is."""
        self.average = gradient.clone()
        self._group = group

    def fill(self, iteration: int) -> None:
        """The gradient is already there."""

    def run(self) -> None:
        """All-reduce, then divide."""
        dist.all_reduce(self.average, group=self._group)
        self.average.div_(dist.get_world_size())

    def wrong(self, iteration: int) -> int:
        """Judged by `disagreements` against the server."""
        return 0


class TwoLevels(Ring):
    """The same sum, within racks and then across."""

    def __init__(self, gradient: torch.Tensor, hierarchy: Hierarchy) -> None:
        """`gradient` is this rank's; it is left as it is."""
        super().__init__(gradient, None)
        self._hierarchy = hierarchy

    def run(self) -> None:
        """All-reduce in two levels, then divide."""
        self._hierarchy.all_reduce(self.average)
        self.average.div_(dist.get_world_size())


class Averagers:
    """Every way with process groups, and so TCP connections, of its own: what one loses, the others do not feel."""

    def __init__(self, racks: Sequence[Sequence[int]]) -> None:
        """Made by all ranks at the same time; `racks` is empty where nobody asks for two levels."""
        self._ring = dist.new_group()
        self._hierarchy = Hierarchy(racks) if racks else None

    def exchange(self, way: str, gradient: torch.Tensor) -> ParameterServer | Ring:
        """One step's averaging of this rank's gradient."""
        if way == "parameter_server":
            return ParameterServer(gradient)
        if way == "all_reduce":
            return Ring(gradient, self._ring)
        if self._hierarchy is None:
            raise InternalError(f"{way} needs racks")
        return TwoLevels(gradient, self._hierarchy)


def disagreements(one: torch.Tensor, other: torch.Tensor) -> int:
    """Elements of two averages that differ by more than the order of summing can explain."""
    return int(torch.count_nonzero(~torch.isclose(one, other, rtol=AGREEMENT, atol=1e-7)))
