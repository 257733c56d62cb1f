"""Every run's audit of its own records: samples and captures add up to what the ports counted, or the run is not valid.

first sample .. last sample      of every port: bytes, packets, marks, drops, pauses
frames in an interface's file    what its port and the port at the other end of its cable sent
"""

from collections.abc import Iterable, Iterator, Mapping

from testbed.capture import Captured
from testbed.counters import Counters
from topologies.model import Topology

Totals = Mapping[str, Mapping[str, int]]
"""Interface -> quantity -> how much it grew over the run."""
COUNTED = (
    *("sent_bytes", "sent_packets", "marked_packets", "dropped_packets"),
    *("pauses_sent", "pauses_received", "paused_ns"),
)
"""Of PortCounters, and of the columns of ports.parquet."""
SHOWN = 5
"""Sentences, or a run in which nothing fits says nothing else."""


def sums_faults(
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
    *,
    sampled: Totals | None,
    captured: Mapping[str, Captured],
    topology: Topology,
) -> list[str]:
    """A sentence for each quantity that two records tell differently.  `captured` are files that left nothing out."""
    said = [*_of_series(before, after, sampled or {}), *_of_captures(before, after, captured, topology)]
    left = len(said) - SHOWN
    return [*said[:SHOWN], f"and {left} more sums like these"] if left > 0 else said


def _of_series(before: Mapping[str, Counters], after: Mapping[str, Counters], sampled: Totals) -> Iterator[str]:
    for interface, totals in sampled.items():
        for key in COUNTED:
            counted = getattr(after[interface].port, key) - getattr(before[interface].port, key)
            if totals[key] != counted:
                yield f"{interface}: samples add up to {totals[key]} {key}, the port counted {counted}"


def _of_captures(
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
    captured: Mapping[str, Captured],
    topology: Topology,
) -> Iterable[str]:
    for interface, found in captured.items():
        ends = (interface, topology.peer_of[interface].name)
        passed = sum(after[end].tx_packets - before[end].tx_packets for end in ends)
        if found.packets + found.dropped != passed:
            yield f"{interface}: its capture has {found.packets} packets, {passed} passed"
