"""How long a collective takes when nothing but the hosts' links limits it, as gloo runs it: textbook cost models.

The unit is S / B: the time that the whole array needs on one host link.  The latency term is left out, so the models
hold for large arrays; P is the number of ranks.  Sources: facts.md 4.1 (Thakur et al. 2005) and 4.3.
"""

from collections.abc import Callable, Mapping

from experiments.workloads.messages import reduce_ring
from topologies.errors import UnknownName


def _ring(ranks: int, size_bytes: int) -> float:
    return 2 * (ranks - 1) / ranks


def _part(ranks: int, size_bytes: int) -> float:
    return (ranks - 1) / ranks


def _tree(ranks: int, size_bytes: int) -> float:
    """Every parent sends to all its children at once, over one link, and a child cannot forward before it has all.

    L(L+1)/2 for 2**L ranks, not L: measured as 3 and 6 for 4 and 8 ranks.  Not a bound: a root that happened to serve
    its children in turn would be done in L.
    """

    def finish(rank: int, reach: int) -> float:
        children, distance = [], reach
        while rank + distance < ranks:
            children.append((rank + distance, 2 * distance))
            distance *= 2
        return max((len(children) + finish(*child) for child in children), default=0.0)

    return finish(0, 1)


def _reduce(ranks: int, size_bytes: int) -> float:
    """The ring's sends of one rank, then the chunks of all ranks into rank 0's link."""
    if ranks == 1:
        return 0.0
    sent = sum(message.size_bytes for message in reduce_ring(ranks, size_bytes))
    return sent / ranks / size_bytes + (ranks - 1) / ranks


LINK_TIMES: Mapping[str, Callable[[int, int], float]] = {
    "all_reduce": _ring,
    "all_gather": _part,
    "reduce_scatter": _ring,
    "broadcast": _tree,
    "reduce": _reduce,
    "gather": _part,
    "scatter": _part,
    "all_to_all": _part,
    "send_recv": lambda ranks, size_bytes: 1.0,
}
"""(ranks, size_bytes) -> time in units of S / B.  The barrier has no bandwidth term."""


def ideal_ns(op: str, *, ranks: int, size_bytes: int, payload_bps: float) -> float:
    """Least time of `op` where every host has a link that carries `payload_bps`.  Raises UnknownName."""
    if op not in LINK_TIMES:
        raise UnknownName("cost model", op, LINK_TIMES)
    return LINK_TIMES[op](ranks, size_bytes) * size_bytes * 8e9 / payload_bps
