"""Which ranks share a rack, in which orders a ring may visit them, and what then crosses the racks' uplinks.  Pure.

contiguous    rack 1: 0 1 2 3 | rack 2: 4 5 6 7     a ring leaves every rack once
interleaved   rack 1: 0 2 4 6 | rack 2: 1 3 5 7     every hop of the ring leaves a rack
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from experiments.workloads import messages
from experiments.workloads.messages import ELEMENT_BYTES, PREAMBLE_BYTES, Message
from topologies.errors import UserError
from topologies.graph import leaf_of, switch_cables
from topologies.model import Topology


def rack_of(topology: Topology, host: str) -> str:
    """The leaf at a host's first NIC."""
    return leaf_of(topology, topology.interfaces_of[host][0].name).name


def by_rack(topology: Topology, hosts: Sequence[str]) -> dict[str, list[str]]:
    """Leaf -> its hosts, both in the order in which they come.  Raises UserError where racks are of unequal size."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        found.setdefault(rack_of(topology, host), []).append(host)
    if len({len(each) for each in found.values()}) > 1:
        sizes = ", ".join(f"{leaf} has {len(each)}" for leaf, each in found.items())
        raise UserError(
            f"a hierarchy needs racks of equal size; of these {len(hosts)} hosts {sizes}: take whole racks, or leave "
            "the hierarchy out"
        )
    return found


def contiguous(racks: Mapping[str, Sequence[str]]) -> list[str]:
    """Rack after rack."""
    return list(chain.from_iterable(racks.values()))


def interleaved(racks: Mapping[str, Sequence[str]]) -> list[str]:
    """One host of each rack in turn."""
    return list(chain.from_iterable(zip(*racks.values(), strict=True)))


def rank_racks(topology: Topology, hosts: Sequence[str]) -> list[list[int]]:
    """Ranks of each rack, rank r on hosts[r].  Raises UserError where racks are of unequal size."""
    place = {host: rank for rank, host in enumerate(hosts)}
    return [[place[host] for host in each] for each in by_rack(topology, hosts).values()]


def columns(racks: Sequence[Sequence[int]]) -> list[list[int]]:
    """The groups across racks: the i-th rank of each."""
    return [list(each) for each in zip(*racks, strict=True)]


def leaving_bytes(sent: Iterable[Message], racks: Sequence[Sequence[int]]) -> list[int]:
    """Per rack: TCP payload that its uplinks carry out for these messages, gloo's headers included (`messages.py`)."""
    rack_of_rank = {rank: number for number, ranks in enumerate(racks) for rank in ranks}
    found = [0] * len(racks)
    for message in sent:
        source, destination = rack_of_rank[message.src], rack_of_rank[message.dst]
        if source != destination:
            found[source] += 2 * PREAMBLE_BYTES + message.size_bytes
            found[destination] += PREAMBLE_BYTES
    return found


def uplinks(topology: Topology, leaf: str) -> list[str]:
    """The interfaces of a leaf that lead to other switches."""
    return [own.name for own, _ in switch_cables(topology, leaf)]


def hierarchical_messages(racks: Sequence[Sequence[int]], size_bytes: int) -> Iterator[Message]:
    """What gloo sends for an all-reduce in two levels (`hierarchy.py`); `size_bytes` is that of the array."""
    size = len(racks[0])
    padded_bytes = -(-size_bytes // (ELEMENT_BYTES * size)) * ELEMENT_BYTES * size
    for ranks in racks:
        for kind in (messages.all_to_all, messages.all_gather):
            yield from _renamed(kind(size, padded_bytes), ranks)
    for ranks in columns(racks):
        yield from _renamed(messages.all_reduce(len(racks), padded_bytes // size), ranks)


def _renamed(found: Iterator[Message], ranks: Sequence[int]) -> Iterator[Message]:
    """Messages of a group's ranks 0, 1, ... as those of the job's."""
    return (Message(ranks[each.src], ranks[each.dst], each.size_bytes) for each in found)
