"""The collectives as torch runs them: buffers, the call, and a check of every element.  Imported inside ranks only.

Element i of the array of rank r in iteration t is  i mod 8191 + 1 + r + 17 (t mod 101): its place, its owner and its
age are all in the value, so a misplaced chunk, a missing or doubled contribution, and a buffer left over from the
iteration before all show.  Sums over up to 1,024 ranks stay below 2**24 and are exact in float32 in any order.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist

from experiments.workloads.messages import ELEMENT_BYTES

PERIOD = 8191
"""Prime, so that no power-of-two chunk begins at the same phase as another."""
BLOCK = 16 * PERIOD
"""Elements filled or compared at a time: half a megabyte stays in a core's cache, and no check needs a second array."""
_RAMP = (torch.arange(BLOCK + PERIOD) % PERIOD).float()
_EXPECTED = torch.empty(BLOCK)
_DIFFERS = torch.empty(BLOCK, dtype=torch.bool)


def mark(rank: int, iteration: int) -> int:
    """What tells one rank's array of one iteration from another's."""
    return 1 + rank + 17 * (iteration % 101)


def fill(array: torch.Tensor, *, start: int, shift: int) -> None:
    """array[i] = (start + i) mod PERIOD + shift."""
    for begin in range(0, array.numel(), BLOCK):
        part = array[begin : begin + BLOCK]
        phase = (start + begin) % PERIOD
        torch.add(_RAMP[phase : phase + part.numel()], shift, out=part)


def count_wrong(array: torch.Tensor, *, start: int, shift: int, scale: int = 1) -> int:
    """How many elements differ from scale x ((start + i) mod PERIOD) + shift.  Not-a-number differs."""
    wrong = 0
    for begin in range(0, array.numel(), BLOCK):
        part = array[begin : begin + BLOCK]
        phase = (start + begin) % PERIOD
        expected, differs = _EXPECTED[: part.numel()], _DIFFERS[: part.numel()]
        torch.mul(_RAMP[phase : phase + part.numel()], scale, out=expected).add_(shift)
        torch.ne(part, expected, out=differs)
        wrong += int(torch.count_nonzero(differs))
    return wrong


def empty(elements: int) -> torch.Tensor:
    """Memory that is really there: a first touch inside the timed window would be timed on a real clock."""
    return torch.full((elements,), -1.0)


class Exchange(Protocol):
    """One collective on one size, repeated."""

    def fill(self, iteration: int) -> None:
        """Puts this iteration's values in place; not timed."""

    def run(self) -> None:
        """The collective; returns when this rank's part is complete."""

    def wrong(self, iteration: int) -> int:
        """How many elements that this rank must now hold have another value; not timed."""


class _Arrays:
    """What every exchange knows: who it is, how many there are, the whole array in elements, and a chunk of it."""

    def __init__(self, size_bytes: int) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.elements = size_bytes // ELEMENT_BYTES
        self.chunk = self.elements // self.ranks

    def sum_of_marks(self, iteration: int) -> int:
        return sum(mark(rank, iteration) for rank in range(self.ranks))

    def wrong_parts(self, array: torch.Tensor, iteration: int, *, place: int | None = None) -> int:
        """Chunk r of `array` must be what rank r had at chunk r of its array, or at chunk `place`."""
        return sum(
            count_wrong(part, start=(source if place is None else place) * self.chunk, shift=mark(source, iteration))
            for source, part in enumerate(torch.chunk(array, self.ranks))
        )


class AllReduce(_Arrays):
    """In place, sum."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.array = empty(self.elements)

    def fill(self, iteration: int) -> None:
        fill(self.array, start=0, shift=mark(self.rank, iteration))

    def run(self) -> None:
        dist.all_reduce(self.array)

    def wrong(self, iteration: int) -> int:
        return count_wrong(self.array, start=0, shift=self.sum_of_marks(iteration), scale=self.ranks)


class Reduce(AllReduce):
    """To rank 0; what the others then hold is undefined."""

    def run(self) -> None:
        dist.reduce(self.array, dst=0)

    def wrong(self, iteration: int) -> int:
        return super().wrong(iteration) if self.rank == 0 else 0


class Broadcast(AllReduce):
    """From rank 0."""

    def run(self) -> None:
        dist.broadcast(self.array, src=0)

    def wrong(self, iteration: int) -> int:
        return count_wrong(self.array, start=0, shift=mark(0, iteration))


class AllGather(_Arrays):
    """Every rank's chunk to every rank."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.mine, self.whole = empty(self.chunk), empty(self.elements)

    def fill(self, iteration: int) -> None:
        fill(self.mine, start=self.rank * self.chunk, shift=mark(self.rank, iteration))

    def run(self) -> None:
        dist.all_gather_into_tensor(self.whole, self.mine)

    def wrong(self, iteration: int) -> int:
        return self.wrong_parts(self.whole, iteration)


class ReduceScatter(_Arrays):
    """Chunk r of the sum to rank r."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.mine, self.whole = empty(self.chunk), empty(self.elements)

    def fill(self, iteration: int) -> None:
        fill(self.whole, start=0, shift=mark(self.rank, iteration))

    def run(self) -> None:
        dist.reduce_scatter_tensor(self.mine, self.whole)

    def wrong(self, iteration: int) -> int:
        start = self.rank * self.chunk
        return count_wrong(self.mine, start=start, shift=self.sum_of_marks(iteration), scale=self.ranks)


class Gather(_Arrays):
    """Every rank's chunk to rank 0."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.mine = empty(self.chunk)
        self.whole = empty(self.elements if self.rank == 0 else 0)
        self.parts = list(torch.chunk(self.whole, self.ranks)) if self.rank == 0 else None

    def fill(self, iteration: int) -> None:
        fill(self.mine, start=self.rank * self.chunk, shift=mark(self.rank, iteration))

    def run(self) -> None:
        dist.gather(self.mine, self.parts, dst=0)

    def wrong(self, iteration: int) -> int:
        return self.wrong_parts(self.whole, iteration) if self.rank == 0 else 0


class Scatter(Gather):
    """Chunk r of rank 0 to rank r."""

    def fill(self, iteration: int) -> None:
        fill(self.whole, start=0, shift=mark(0, iteration))

    def run(self) -> None:
        dist.scatter(self.mine, self.parts, src=0)

    def wrong(self, iteration: int) -> int:
        return count_wrong(self.mine, start=self.rank * self.chunk, shift=mark(0, iteration))


class AllToAll(_Arrays):
    """Chunk d of rank s becomes chunk s of rank d."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.outgoing, self.incoming = empty(self.elements), empty(self.elements)

    def fill(self, iteration: int) -> None:
        fill(self.outgoing, start=0, shift=mark(self.rank, iteration))

    def run(self) -> None:
        dist.all_to_all_single(self.incoming, self.outgoing)

    def wrong(self, iteration: int) -> int:
        return self.wrong_parts(self.incoming, iteration, place=self.rank)


class Barrier(_Arrays):
    """Nobody leaves before everybody has come."""

    def fill(self, iteration: int) -> None:
        pass

    def run(self) -> None:
        dist.barrier()

    def wrong(self, iteration: int) -> int:
        return 0


class SendRecv(_Arrays):
    """The whole array to rank + 1, and one from rank - 1."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.outgoing, self.incoming = empty(self.elements), empty(self.elements)

    def fill(self, iteration: int) -> None:
        fill(self.outgoing, start=0, shift=mark(self.rank, iteration))

    def run(self) -> None:
        sent = dist.isend(self.outgoing, dst=(self.rank + 1) % self.ranks)
        dist.recv(self.incoming, src=(self.rank - 1) % self.ranks)
        if sent is not None:
            sent.wait()

    def wrong(self, iteration: int) -> int:
        return count_wrong(self.incoming, start=0, shift=mark((self.rank - 1) % self.ranks, iteration))


EXCHANGES: Mapping[str, type[AllReduce | AllGather | ReduceScatter | Gather | AllToAll | Barrier | SendRecv]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "gather": Gather,
    "scatter": Scatter,
    "all_to_all": AllToAll,
    "barrier": Barrier,
    "send_recv": SendRecv,
}
