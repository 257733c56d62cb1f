"""Samples of ports at any instants, put into at most MOST equal steps of time for pictures.  Pure.

utilisation   bytes sent in the step / what the rate allows; counters are taken as straight between samples
queue         the most that waited at once in the step: the high-water mark of the samples that cover it
events        drops, marks, pauses in the step
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.report.series import Columns, coded
from topologies.model import Topology

MOST = 200
"""Steps of a picture: two pixels each."""
SLIVER = 0.0005
"""Of all bytes, before and after the time that is shown: how ranks find each other, and how connections end."""
COUNTED = ("marked_packets", "dropped_packets", "pauses_sent", "paused_ns")
"""Counters whose increase in each step is kept."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Bins:
    """One row per interface, one column per step."""

    edges_ns: Floats
    interfaces: tuple[str, ...]
    utilisation: Floats
    """Share of the rate, 0 to 1."""
    queue_bytes: Floats
    events: Mapping[str, Floats]
    """Counter -> its increase, over all interfaces."""

    @property
    def steps(self) -> int:
        """How many."""
        return len(self.edges_ns) - 1


def bin_ports(ports: Columns, topology: Topology, *, most: int = MOST) -> Bins | None:
    """Steps over the time in which nearly all bytes were sent; None where none was."""
    times = ports["time_ns"]
    groups = dict(by_interface(ports, topology))
    window = _active(ports, groups)
    if window is None:
        return None
    distinct = len(np.unique(times[(times > window[0]) & (times <= window[1])]))
    edges = np.linspace(window[0], window[1], max(1, min(most, distinct)) + 1)
    utilisation, queues = [], []
    events = {name: np.zeros(len(edges) - 1) for name in COUNTED}
    for name, rows in groups.items():
        at = times[rows]
        capacity = np.diff(edges) * topology.link_of[name].rate_bps / 8e9
        utilisation.append(np.diff(np.interp(edges, at, ports["sent_bytes"][rows])) / capacity)
        queues.append(_high_water(edges, at, ports["queue_max_bytes"][rows]))
        for counter, total in events.items():
            total += np.diff(np.interp(edges, at, ports[counter][rows]))
    return Bins(
        edges_ns=edges,
        interfaces=tuple(groups),
        utilisation=np.clip(np.array(utilisation), 0, 1),
        queue_bytes=np.array(queues),
        events=events,
    )


def by_interface(ports: Columns, topology: Topology) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Name -> rows in time order, for interfaces of the fabric, in the fabric's order."""
    number, names = coded(ports["interface"])
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(len(names) + 1))
    rows = {name: order[starts[at] : starts[at + 1]] for at, name in enumerate(names)}
    yield from ((end.name, rows[end.name]) for end in topology.interfaces() if end.name in rows)


def _active(ports: Columns, groups: Mapping[str, NDArray[np.int64]]) -> tuple[int, int] | None:
    """The samples between which all bytes but a sliver at either end were sent."""
    begins, ends, moved = [], [], []
    for rows in groups.values():
        sent = np.diff(ports["sent_bytes"][rows])
        at = np.flatnonzero(sent)
        begins.append(ports["time_ns"][rows[at]])
        ends.append(ports["time_ns"][rows[at + 1]])
        moved.append(sent[at])
    begin, end, sent = (np.concatenate(parts) for parts in (begins, ends, moved))
    if not len(sent):
        return None
    order = np.argsort(end, kind="stable")
    until = np.cumsum(sent[order])
    kept = order[(until > SLIVER * until[-1]) & (until - sent[order] < (1 - SLIVER) * until[-1])]
    return int(begin[kept].min()), int(end[kept].max())


def _high_water(edges: Floats, at: NDArray[Any], marks: NDArray[Any]) -> Floats:
    """A sample's mark covers the time since the sample before it, so a step without samples has the next one's."""
    found = np.full(len(edges) - 1, -1.0)
    step = np.searchsorted(edges, at, side="left") - 1
    inside = (step >= 0) & (step < len(found))
    np.maximum.at(found, step[inside], marks[inside])
    for index in range(len(found) - 2, -1, -1):
        if found[index] < 0:
            found[index] = found[index + 1]
    cleared: Floats = np.maximum(found, 0.0)
    return cleared
