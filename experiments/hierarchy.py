"""Hierarchical all-reduce: how many bytes must leave a rack?

       spines                          interleaved ring   every hop leaves its rack     h x 2 (P-1)/P n per rack
     /   |   \\                         contiguous ring    one hop leaves each rack          2 (P-1)/P n
 leaf1 leaf2 leaf3 ...                 hierarchical       a ring across per chunk           2 (L-1)/L n
 / \\   / \\   / \\     h hosts each
 L leaves, P = h L ranks               counted at the leaves' uplinks

The same sum of the same arrays, three ways; every element is checked.  What the uplinks carried is read from the ports
of the leaves, less what an empty job of the same process groups carries, and must equal gloo's messages to the byte.

    ./run experiments/hierarchy.py
    ./run experiments/hierarchy.py --topology leaf_spine:leaves=2,hosts=8,spines=1     (uplinks 8 times oversubscribed)

Expected: contiguous to interleaved 1 : h.  Hierarchical to interleaved 1 : (P-1)/(L-1), which is h for many racks and
better than h for few: a ring over L ranks sends (L-1)/L of what the ring over P sends, not (P-1)/P.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.results import Row
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, Words, written
from experiments.training.racks import (
    by_rack,
    contiguous,
    hierarchical_messages,
    interleaved,
    leaving_bytes,
    rank_racks,
    uplinks,
)
from experiments.workloads import messages
from experiments.workloads.collectives import sample
from experiments.workloads.messages import ELEMENT_BYTES, Message, wire_bytes
from experiments.workloads.operations import operation_named
from experiments.workloads.samples import Iteration, Sample, Step, audit, row
from testbed.counters import Counters
from testbed.workers.counters import header_bytes
from testbed.workers.rank import Rank
from topologies.errors import UnknownName, UserError

CONTIGUOUS, INTERLEAVED, HIERARCHICAL = WAYS = ("contiguous_ring", "interleaved_ring", "hierarchical")
HEADERS = 0.005
"""Gloo's 144 B per message, of which the two ways have different numbers."""
RESENT = 0.001
"""What lost packets may add: SACK blocks in acknowledgements.  A packet that an uplink dropped did not leave by it."""


class Settings(BaseSettings):
    """What is summed."""

    ways: Words = Field(default=written(",".join(WAYS)), description=f"of {', '.join(WAYS)}")
    size: Size = Field(default=written("8M"), ge=4, description="bytes of each rank's array")
    iterations: int = Field(default=2, ge=1, description="measured iterations of each")


@dataclass(frozen=True, kw_only=True)
class Found:
    """One way."""

    racks: list[list[int]]
    iterations: list[Iteration]
    leaving_bytes: dict[str, int]
    """Leaf -> payload out of its uplinks, over all iterations."""

    @property
    def total_bytes(self) -> int:
        """Over all leaves."""
        return sum(self.leaving_bytes.values())

    @property
    def resent(self) -> int:
        """Segments, over all ranks and iterations."""
        return sum(one.counters.retransmitted_segments for it in self.iterations for one in it.samples)

    @property
    def best_ns(self) -> int:
        """The fastest iteration."""
        return min(iteration.time_ns for iteration in self.iterations)


def run(lab: Lab, settings: Settings) -> None:
    """Two jobs per way: one that does nothing, one that sums."""
    for way in settings.ways:
        if way not in WAYS:
            raise UnknownName("way", way, dict.fromkeys(WAYS))
    racks = by_rack(lab.topology, [host.name for host in lab.topology.hosts])
    if len(racks) < 2:
        raise UserError(f"topology {lab.topology.name}: a hierarchy needs two racks or more")
    size_bytes = _whole_chunks(settings.size, len(lab.topology.hosts))
    found = {way: _measure(lab, way, racks, size_bytes, settings.iterations) for way in settings.ways}
    lab.add_rows(_row(way, iteration) for way, it in found.items() for iteration in it.iterations)
    lab.add("audit", [_audit(way, it.racks, iteration) for way, it in found.items() for iteration in it.iterations])
    lab.add("hierarchy", [_line(way, it) for way, it in found.items()])
    _claim(lab, found)


def _whole_chunks(size_bytes: int, ranks: int) -> int:
    """Rounded down so that every ring cuts it into equal segments: ratios of bytes are then exact."""
    unit = 2 * ranks * ranks * ELEMENT_BYTES
    if size_bytes < unit:
        raise UserError(f"--set size={size_bytes}: too small for {ranks} ranks; write {unit} or more")
    return size_bytes // unit * unit


def _measure(lab: Lab, way: str, racks: Mapping[str, Sequence[str]], size_bytes: int, iterations: int) -> Found:
    hosts = interleaved(racks) if way == INTERLEAVED else contiguous(racks)
    ranks = rank_racks(lab.topology, hosts)
    before = lab.sample()
    lab.job(program, way, ranks, size_bytes, 0, hosts=hosts)
    between = lab.sample()
    samples = cast("list[list[Sample]]", lab.job(program, way, ranks, size_bytes, iterations, hosts=hosts))
    empty, full = (_leaving(lab, racks, *ends) for ends in ((before, between), (between, lab.sample())))
    found = [
        Iteration(step=Step(op=way, size_bytes=size_bytes), samples=tuple(across))
        for across in zip(*samples, strict=True)
    ]
    for iteration in found:
        lab.add_busy_ns(iteration.time_ns)
    return Found(racks=ranks, iterations=found, leaving_bytes={leaf: full[leaf] - empty[leaf] for leaf in racks})


def program(rank: Rank, way: str, racks: Sequence[Sequence[int]], size_bytes: int, iterations: int) -> list[Sample]:
    """What every rank runs."""
    from experiments.training.hierarchy import HierarchicalAllReduce, Hierarchy
    from experiments.workloads.exchanges import AllReduce

    exchange = HierarchicalAllReduce(size_bytes, Hierarchy(racks)) if way == HIERARCHICAL else AllReduce(size_bytes)
    step = Step(op=way, size_bytes=size_bytes)
    return [sample(rank, step, exchange, number) for number in range(iterations)]


def _leaving(
    lab: Lab, racks: Mapping[str, Sequence[str]], before: Mapping[str, Counters], after: Mapping[str, Counters]
) -> dict[str, int]:
    """Leaf -> TCP payload that its uplinks carried out in between."""
    per_packet = header_bytes(timestamps=lab.fabric.hosts.timestamps == "on")
    return {
        leaf: sum(
            after[name].tx_bytes
            - before[name].tx_bytes
            - per_packet * (after[name].tx_packets - before[name].tx_packets)
            for name in uplinks(lab.topology, leaf)
        )
        for leaf in racks
    }


def _messages(way: str, racks: Sequence[Sequence[int]], size_bytes: int) -> list[Message]:
    if way == HIERARCHICAL:
        return list(hierarchical_messages(racks, size_bytes))
    return list(messages.all_reduce(sum(len(each) for each in racks), size_bytes))


def _row(way: str, iteration: Iteration) -> Row:
    return row(iteration, factor=operation_named("all_reduce").factor(len(iteration.samples)))


def _audit(way: str, racks: Sequence[Sequence[int]], iteration: Iteration) -> dict[str, Any]:
    sent = _messages(way, racks, iteration.step.size_bytes)
    return audit(iteration, wire_bytes(sent, ranks=len(iteration.samples)))


def _expected(way: str, found: Found) -> dict[str, int]:
    per_iteration = leaving_bytes(_messages(way, found.racks, found.iterations[0].step.size_bytes), found.racks)
    return {leaf: count * len(found.iterations) for leaf, count in zip(found.leaving_bytes, per_iteration, strict=True)}


def _line(way: str, found: Found) -> dict[str, Any]:
    return {
        "way": way,
        "racks": len(found.racks),
        "hosts_per_rack": len(found.racks[0]),
        "time_us": round(found.best_ns / 1e3, 3),
        "leaving_a_rack_bytes": max(found.leaving_bytes.values()) // len(found.iterations),
        "expected_bytes": max(_expected(way, found).values()) // len(found.iterations),
        "retransmissions": found.resent,
    }


def _claim(lab: Lab, found: Mapping[str, Found]) -> None:
    for way, it in found.items():
        expected = _expected(way, it)
        lab.add_claim(
            f"{way}: the uplinks of every leaf carry what gloo's messages between racks need",
            expected=f"{_listed(expected)}, {_exactly(it.resent)}",
            measured=_listed(it.leaving_bytes),
            holds=all(_near(got, expected[leaf], it.resent) for leaf, got in it.leaving_bytes.items()),
        )
    if INTERLEAVED not in found:
        return
    ring = found[INTERLEAVED]
    racks, hosts = len(ring.racks), len(ring.racks[0])
    if CONTIGUOUS in found:
        near = found[CONTIGUOUS]
        resent = ring.resent + near.resent
        lab.add_claim(
            "a contiguous ring sends 1 : h of an interleaved one's bytes between racks",
            expected=f"{hosts}, {_exactly(resent)}",
            measured=_ratio(ring.total_bytes, near.total_bytes),
            holds=_near(ring.total_bytes, near.total_bytes * hosts, resent),
        )
        lab.add_claim(
            "a ring that follows the racks is faster than one that does not",
            expected=f"less than {ring.best_ns / 1e3:.1f} us",
            measured=f"{near.best_ns / 1e3:.1f} us",
            holds=near.best_ns < ring.best_ns,
        )
    if HIERARCHICAL in found:
        levels = found[HIERARCHICAL]
        ratio = Fraction(racks * hosts - 1, racks - 1)
        lab.add_claim(
            "the hierarchy sends 1 : (P-1)/(L-1) of an interleaved ring's bytes between racks: 1 : h or better",
            expected=f"{float(ratio):.4f} within {HEADERS:.1%} for gloo's headers; h = {hosts}",
            measured=_ratio(ring.total_bytes, levels.total_bytes),
            holds=abs(ring.total_bytes / levels.total_bytes / ratio - 1) <= HEADERS,
        )


def _near(got: int, wanted: int, resent: int) -> bool:
    """Equal, or little more where something was sent twice."""
    return got == wanted or (resent > 0 and wanted < got <= wanted * (1 + RESENT))


def _exactly(resent: int) -> str:
    return "to the byte" if resent == 0 else f"and at most {RESENT:.1%} more for {resent} segments sent twice"


def _ratio(many: int, few: int) -> str:
    return f"{many} B / {few} B = {many / few:.6f}"


def _listed(counts: Mapping[str, int]) -> str:
    found = list(dict.fromkeys(counts.values()))
    return f"{found[0]} B each" if len(found) == 1 else ", ".join(f"{leaf} {it} B" for leaf, it in counts.items())


EXPERIMENT = Experiment(
    name="hierarchy",
    question="How many bytes leave a rack in a hierarchical all-reduce, and in rings that do or do not follow racks?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
