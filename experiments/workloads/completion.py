"""How long a flow takes at best, and how much longer it took: flow completion times and slowdowns.  Pure.

    ideal = one-way delay of the path + all its bytes, headers included, at the path's slowest link
          + what the last frame needs at each of the other links

That is the convention of HPCC's simulations (facts.md, A8: base RTT + bytes over rate), with the one-way delay in place
of the RTT: they look at the sender's last acknowledgement, we at the receiver's last byte.  Slow start is not in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from testbed.workers.counters import ETHERNET_HEADER_BYTES
from topologies.graph import leaf_of, paths
from topologies.model import Link, Topology

CLASSES: Mapping[str, int] = {
    "up to 10 kB": 10_000,
    "up to 100 kB": 100_000,
    "up to 1 MB": 1_000_000,
    "up to 10 MB": 10_000_000,
}
"""Upper bounds in bytes; what is larger is in the last class."""
LARGEST = "above 10 MB"
PERCENTILES = (50, 95, 99)


def size_class(size_bytes: int) -> str:
    """The name of the class."""
    return next((name for name, bound in CLASSES.items() if size_bytes <= bound), LARGEST)


@lru_cache(maxsize=4096)
def _paths(topology: Topology, source: str, destination: str) -> tuple[tuple[Link, ...], ...]:
    """Every shortest path between the first NICs of two hosts, as links."""
    nics = [topology.interfaces_of[host][0].name for host in (source, destination)]
    ends = [leaf_of(topology, nic).name for nic in nics]
    return tuple(
        (topology.link_of[nics[0]], *(topology.link_of[own.name] for own in path), topology.link_of[nics[1]])
        for path in paths(topology, *ends)
    )


def ideal_ns(topology: Topology, source: str, destination: str, size_bytes: int, *, header_bytes: int) -> float:
    """On an idle fabric, over the best of the shortest paths."""
    return min(
        _along(
            path,
            size_bytes,
            payload_bytes=topology.mtu + ETHERNET_HEADER_BYTES - header_bytes,
            header_bytes=header_bytes,
        )
        for path in _paths(topology, source, destination)
    )


def _along(path: Sequence[Link], size_bytes: int, *, payload_bytes: int, header_bytes: int) -> float:
    frames = -(-size_bytes // payload_bytes)
    last_bytes = size_bytes - (frames - 1) * payload_bytes + header_bytes
    rates = sorted(link.rate_bps for link in path)
    serialised = (size_bytes + frames * header_bytes) / rates[0] + sum(last_bytes / rate for rate in rates[1:])
    return sum(link.delay_ns for link in path) + serialised * 8e9


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def by_class(flows: Iterable[tuple[int, float, float]]) -> list[dict[str, Any]]:
    """(size_bytes, fct_us, slowdown) of each flow -> a line per class that occurs, smallest first, and one over all."""
    groups: dict[str, list[tuple[float, float]]] = {name: [] for name in (*CLASSES, LARGEST, "all")}
    for size_bytes, fct_us, slowdown in flows:
        for name in (size_class(size_bytes), "all"):
            groups[name].append((fct_us, slowdown))
    return [_line(name, members) for name, members in groups.items() if members]


def _line(name: str, members: Sequence[tuple[float, float]]) -> dict[str, Any]:
    times, slowdowns = ([each[i] for each in members] for i in (0, 1))
    return {
        "size": name,
        "flows": len(members),
        "mean_fct_us": round(sum(times) / len(times), 3),
        "mean_slowdown": round(sum(slowdowns) / len(slowdowns), 3),
        **{f"p{percent}_slowdown": round(percentile(slowdowns, percent), 3) for percent in PERCENTILES},
        "worst_slowdown": round(max(slowdowns), 3),
    }
