"""The collectives by name: nccl-tests' conventions for each, and the messages gloo sends for it.

S, the size in tables, is the whole array: what one rank holds after an all-gather, what it holds before a
reduce-scatter.  busbw = S / time x factor is then comparable with a link's rate, whatever the number of ranks.
Source: nccl-tests doc/PERFORMANCE.md and src/*.cu (facts.md 4.2).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from experiments.workloads import messages
from experiments.workloads.messages import ELEMENT_BYTES, Message
from topologies.errors import UnknownName, UserError


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One collective."""

    name: str
    factor: Callable[[int], float]
    """busbw / algbw, from the number of ranks."""
    messages: Callable[[int, int], Iterator[Message]]
    """(ranks, size_bytes) -> what gloo sends."""
    split: bool = False
    """Ranks hold equal parts of the array: its size is rounded down to whole elements for each."""
    sized: bool = True
    """False for the barrier, which moves nothing."""
    reduces: bool = False
    """Adds up (nccl-tests prints `sum` as its redop)."""
    rooted: bool = False
    """Rank 0 is special (nccl-tests prints it as root)."""

    def size_bytes(self, wanted_bytes: int, ranks: int) -> int:
        """The largest size that is not above `wanted_bytes` and divides as it must.  Raises UserError."""
        if not self.sized:
            return 0
        unit = ELEMENT_BYTES * (ranks if self.split else 1)
        size = wanted_bytes // unit * unit
        if size == 0:
            raise UserError(f"{self.name}: {wanted_bytes} B are less than one float32 for each of {ranks} ranks")
        return size


def _ring(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _part(ranks: int) -> float:
    return (ranks - 1) / ranks


def _whole(ranks: int) -> float:
    return 1.0


_ALL = (
    Operation(name="all_reduce", factor=_ring, messages=messages.all_reduce, reduces=True),
    Operation(name="all_gather", factor=_part, messages=messages.all_gather, split=True),
    Operation(name="reduce_scatter", factor=_part, messages=messages.reduce_scatter, split=True, reduces=True),
    Operation(name="broadcast", factor=_whole, messages=messages.broadcast, rooted=True),
    Operation(name="reduce", factor=_whole, messages=messages.reduce, reduces=True, rooted=True),
    Operation(name="gather", factor=_part, messages=messages.gather, split=True, rooted=True),
    Operation(name="scatter", factor=_part, messages=messages.scatter, split=True, rooted=True),
    Operation(name="all_to_all", factor=_part, messages=messages.all_to_all, split=True),
    Operation(name="barrier", factor=_whole, messages=messages.barrier, sized=False),
    Operation(name="send_recv", factor=_whole, messages=messages.send_recv),
)
OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _ALL}


def operation_named(name: str) -> Operation:
    """Raises UnknownName."""
    if name not in OPERATIONS:
        raise UnknownName("operation", name, OPERATIONS)
    return OPERATIONS[name]
