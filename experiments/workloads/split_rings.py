"""A ring all-reduce spread over several connections per pair of ranks: gloo's analogue of queue-pair scaling.

    split         the array in as many parts as there are connections, all under way at once, one per connection
    round_robin   in parts of `chunk_bytes`, all posted at once; the n-th goes over connection n modulo connections

One collective of gloo uses one connection, and successive ones rotate over the process group's devices (facts.md 4.3):
so a part is an asynchronous all-reduce of its own.  Meta tried both ways and chose the second (facts.md 1.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.workers.rank import Rank
from topologies.errors import UnknownName

if TYPE_CHECKING:
    from experiments.workloads.exchanges import AllReduce

SPREADS = ("split", "round_robin")
WARM_UP = "warm-up"
START = "start of round"
"""Begins the label of the line-up from which a round leaves."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What every rank does."""

    size_bytes: int
    connections: int = 1
    spread: str = "split"
    chunk_bytes: int = 1 << 20
    labels: Sequence[str] = ("all_reduce",)
    """A round each.  Ranks line up under this label first: whoever watches may change the fabric there."""
    warmup: int = 0
    """Rounds before them, under the label WARM_UP."""
    together: bool = True
    """Rounds begin and end at line-ups, when nothing is under way; otherwise one follows the other at once."""

    def __post_init__(self) -> None:
        """Raises UnknownName."""
        if self.spread not in SPREADS:
            raise UnknownName("way to spread over connections", self.spread, SPREADS)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One rank's part of one all-reduce."""

    label: str
    start_ns: int
    end_ns: int
    wrong: int
    """Elements with another value than the sum; 0 where rounds follow each other and nobody looks."""
    timeouts: int = 0
    """Retransmission timers of TCP that fired at this rank's host meanwhile."""


def parts(elements: int, rounds: Rounds, element_bytes: int) -> int:
    """Into how many all-reduces a round is cut."""
    if rounds.spread == "split":
        return min(rounds.connections, elements)
    return max(1, -(-elements * element_bytes // rounds.chunk_bytes))


def program(rank: Rank, rounds: Rounds) -> list[Round]:
    """Every rank's rounds, warm-up first."""
    from experiments.workloads.exchanges import AllReduce  # imports torch, which only ranks need
    from experiments.workloads.messages import ELEMENT_BYTES

    exchange = AllReduce(rounds.size_bytes)
    pieces = list(exchange.array.chunk(parts(exchange.elements, rounds, ELEMENT_BYTES)))
    labels = [WARM_UP] * rounds.warmup + list(rounds.labels)
    if not rounds.together:
        from testbed.workers.together import COMMON_START

        exchange.fill(0)
        rank.line_up(COMMON_START)
    return [_round(rank, rounds, exchange, pieces, label, number) for number, label in enumerate(labels)]


def _round(rank: Rank, rounds: Rounds, exchange: "AllReduce", pieces: Sequence[Any], label: str, number: int) -> Round:
    import torch.distributed as dist

    if rounds.together:
        exchange.fill(number)
        rank.line_up(label)
        rank.line_up(f"{START} {label}")
    before = rank.counters()
    with rank.operation("all_reduce", rounds.size_bytes) as span:
        works = [dist.all_reduce(piece, async_op=True) for piece in pieces]
        for work in works:
            work.wait()
    timeouts = (rank.counters() - before).timeouts
    wrong = 0
    if rounds.together:
        rank.line_up(f"end of round {label}")
        wrong = exchange.wrong(number)
    return Round(label=label, start_ns=span.start_ns, end_ns=span.end_ns, wrong=wrong, timeouts=timeouts)


@dataclass(frozen=True, kw_only=True)
class RoundTime:
    """A round over all ranks."""

    label: str
    time_ns: int
    """From the first rank's start to the last rank's end."""
    wrong: int
    timeouts: int = 0


def kept(found: Sequence[RoundTime]) -> list[RoundTime]:
    """Without the warm-up."""
    return [each for each in found if each.label != WARM_UP]


def times(found: Sequence[Sequence[Round]]) -> list[RoundTime]:
    """found[rank][round] -> a time per round, warm-up included: what links carried, they carried then too.  Pure."""
    return [
        RoundTime(
            label=across[0].label,
            time_ns=max(each.end_ns for each in across) - min(each.start_ns for each in across),
            wrong=sum(each.wrong for each in across),
            timeouts=sum(each.timeouts for each in across),
        )
        for across in zip(*found, strict=True)
    ]
