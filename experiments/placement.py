"""Which host each rank sits on: what a scheduler does to a ring.  Pure; the run's seed is an argument.

contiguous     h1 h2 | h3 h4      rack by rack: a ring leaves each rack once
interleaved    h1 h3 h2 h4        a rank per rack in turn: a ring leaves its rack at every step
random         drawn from the seed
part_filled    h1 h3 ..           every other host of each rack, interleaved: other jobs have the rest.  It broke
                                  Meta's path pinning, which counts on racks whose hosts all take part
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest
from types import MappingProxyType

from topologies.errors import UnknownName, UserError
from topologies.graph import leaf_of
from topologies.model import Topology

Racks = Sequence[Sequence[str]]


def racks(topology: Topology) -> list[list[str]]:
    """Hosts by the leaf of their first NIC, in the topology's order."""
    found: dict[str, list[str]] = defaultdict(list)
    for host in topology.hosts:
        found[leaf_of(topology, topology.interfaces_of[host.name][0].name).name].append(host.name)
    return list(found.values())


def _contiguous(hosts: Racks, _seed: int) -> list[str]:
    return list(chain.from_iterable(hosts))


def _interleaved(hosts: Racks, _seed: int) -> list[str]:
    return [host for row in zip_longest(*hosts) for host in row if host is not None]


def _random(hosts: Racks, seed: int) -> list[str]:
    found = _contiguous(hosts, seed)
    random.Random(f"placement {seed}").shuffle(found)
    return found


def _part_filled(hosts: Racks, seed: int) -> list[str]:
    return _interleaved([rack[::2] for rack in hosts], seed)


PLACEMENTS: Mapping[str, Callable[[Racks, int], list[str]]] = MappingProxyType(
    {"contiguous": _contiguous, "interleaved": _interleaved, "random": _random, "part_filled": _part_filled}
)
"""Name -> how."""
MEANING = "which host each rank sits on: contiguous, interleaved, random, part_filled (every other host of each rack)"
"""For `Field(description=...)` of an experiment's `placement`."""


def place(topology: Topology, placement: str, *, seed: int, ranks: int | None = None) -> list[str]:
    """Hosts in rank order, all that the placement has or the first `ranks`.  Raises UnknownName or UserError."""
    if placement not in PLACEMENTS:
        raise UnknownName("placement", placement, PLACEMENTS)
    found = PLACEMENTS[placement](racks(topology), seed)
    if ranks is not None and not 1 <= ranks <= len(found):
        raise UserError(f"{ranks} ranks: placement {placement} has room for 1 to {len(found)} on this topology")
    return found[:ranks]
