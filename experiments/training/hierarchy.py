"""All-reduce in two levels, for racks whose uplinks are scarce.  Imports torch: for ranks only.

    rack 1           rack 2
    0   1            2   3         reduce-scatter in the rack     a chunk of the rack's sum at each      (h-1)/h n
    a   b            a   b
    |   |            |   |
    a---+------------a   |         all-reduce across racks        a ring per chunk                       2 (L-1)/L n/h
        b----------------b
    a b a b          a b a b       all-gather in the rack         everybody has everything               (h-1)/h n

h ranks per rack, L racks.  In all, a rank sends as much as in a flat ring, 2 (P-1)/P n; but only 2 (L-1)/L n leaves
a rack.  The reduce-scatter is a true one (every chunk straight to its owner): gloo's own is a whole all-reduce.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn import functional

from experiments.training.racks import columns
from experiments.workloads.exchanges import AllReduce


class Hierarchy:
    """The process groups of one arrangement of racks; every rank of the job makes it at the same time."""

    def __init__(self, racks: Sequence[Sequence[int]]) -> None:
        """`racks` are the ranks of each, equally many."""
        mine = dist.get_rank()
        self.size = len(racks[0])
        self._rack = self._across = None
        for members in racks:
            group = dist.new_group(list(members))
            if mine in members:
                self._rack = group
        for members in columns(racks):
            group = dist.new_group(members)
            if mine in members:
                self._across = group
        self._racks = len(racks)

    def all_reduce(self, array: torch.Tensor) -> None:
        """Sums a flat array over all ranks, in place."""
        padded = functional.pad(array, (0, -array.numel() % self.size))
        chunk = self._reduce_scatter(padded)
        if self._racks > 1:
            dist.all_reduce(chunk, group=self._across)
        if self.size > 1:
            dist.all_gather_into_tensor(padded, chunk, group=self._rack)
        array.copy_((padded if self.size > 1 else chunk)[: array.numel()])

    def _reduce_scatter(self, padded: torch.Tensor) -> torch.Tensor:
        """This rank's chunk of the rack's sum, added in rank order."""
        if self.size == 1:
            return padded.clone()
        received = torch.empty_like(padded)
        dist.all_to_all_single(received, padded, group=self._rack)
        return received.view(self.size, -1).sum(dim=0)


class HierarchicalAllReduce(AllReduce):
    """The exchange of `exchanges.py`, done in two levels; values are checked as for the flat one."""

    def __init__(self, size_bytes: int, hierarchy: Hierarchy) -> None:
        super().__init__(size_bytes)
        self._hierarchy = hierarchy

    def run(self) -> None:
        self._hierarchy.all_reduce(self.array)
