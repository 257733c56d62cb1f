"""A packet's whole path as four digits in its mark: the one thing that the selector and the rules agree on.

skb->mark is four digits of one byte.  Digit D (byte D-1, the least significant first) is the choice to make at a
switch that is D hops from the destination's leaf:

    edge --digit 4--> aggregation --digit 3--> core --> aggregation --> edge     k-ary fat tree, k/2 choices each
    leaf --digit 2--> spine --digit 1--> leaf                                    digit 1: parallel cables only

A switch takes next_hop[digit modulo n] of its n equal ports towards that leaf, in port order.  The *width* of a level
is how many digits it uses: the least common multiple of n over its switches, so that every port of every switch gets
the same share of the digits; in a regular fabric that is n itself.  An unmarked packet takes choice 0 everywhere.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import lcm

from topologies.errors import InternalError, UserError
from topologies.graph import NOTHING, distances, leaf_of, leaves, next_hops
from topologies.model import Interface, Topology

LEVELS = 4
"""Digits in a mark."""
DIGIT_BITS = 8
MOST_CHOICES = 255
"""Largest width of a level, so that a width fits in a byte as well."""

Widths = tuple[int, int, int, int]
"""Choices at the levels 1 to 4 on the way from one leaf to another; 1 where there is nothing to choose."""


def encode(digits: Sequence[int]) -> int:
    """The mark of the digits of levels 1, 2, ...  Raises InternalError for a digit that does not fit."""
    if len(digits) > LEVELS or not all(0 <= digit <= MOST_CHOICES for digit in digits):
        raise InternalError(f"{digits} are not at most {LEVELS} digits of a mark")
    return sum(digit << DIGIT_BITS * level for level, digit in enumerate(digits))


def digit_at(mark: int, level: int) -> int:
    """The choice that a mark makes `level` hops from the destination's leaf; level counts from 1."""
    return mark >> DIGIT_BITS * (level - 1) & 0xFF


def level_mask(level: int) -> int:
    """The bits of a mark that a switch `level` hops from the destination's leaf looks at."""
    return 0xFF << DIGIT_BITS * (level - 1)


@lru_cache(maxsize=1 << 16)
def widths(topology: Topology, source: str, destination: str, down: frozenset[str] = NOTHING) -> Widths:
    """Choices at each level on all shortest paths from leaf to leaf.

    Raises UserError where a fabric has more choices, or farther away, than a mark can say.
    """
    far = distances(topology, destination, down)
    found = [1] * LEVELS
    level, here = far.get(source, 0), {source}
    while level > 0:
        hops = {switch: next_hops(topology, switch, destination, down) for switch in here}
        width = lcm(*(len(hop) for hop in hops.values()))
        if width > 1:
            check_width(topology, destination, level, width)
            found[level - 1] = width
        here = {topology.peer_of[own.name].node for hop in hops.values() for own in hop}
        level -= 1
    return found[0], found[1], found[2], found[3]


@lru_cache(maxsize=1 << 12)
def level_widths(topology: Topology, destination: str, down: frozenset[str] = NOTHING) -> Widths:
    """Like `widths`, but from every leaf at once: the digits that the rules towards a leaf must know."""
    sources = [leaf.name for leaf in leaves(topology) if leaf.name in distances(topology, destination, down)]
    columns = zip(*(widths(topology, source, destination, down) for source in sources), strict=True)
    found = [lcm(*column) for column in columns]
    for level, width in enumerate(found, start=1):
        check_width(topology, destination, level, width)
    return found[0], found[1], found[2], found[3]


def check_width(topology: Topology, destination: str, level: int, width: int) -> None:
    """Raises UserError where a choice of this width, this far from its destination, has no digit."""
    where = f"topology {topology.name}: {width} equal paths, {level} hops from {destination}"
    if width > 1 and level > LEVELS:
        raise UserError(f"{where}; a mark has digits for the last {LEVELS} hops only: make the fabric less deep")
    if width > MOST_CHOICES:
        raise UserError(f"{where}; a digit tells at most {MOST_CHOICES} apart: use fewer parallel links")


def connected(topology: Topology, source: Interface, destination: Interface, down: frozenset[str] = NOTHING) -> bool:
    """Whether `path` has one."""
    far = distances(topology, leaf_of(topology, destination.name).name, down)
    return leaf_of(topology, source.name).name in far


def path(
    topology: Topology, source: Interface, destination: Interface, mark: int, down: frozenset[str] = NOTHING
) -> tuple[str, ...]:
    """The egress interfaces that a marked packet leaves through, from the sender's NIC to the last switch.

    Raises UserError where the two are not connected.
    """
    here, last = leaf_of(topology, source.name).name, leaf_of(topology, destination.name).name
    far = distances(topology, last, down)
    if here not in far:
        raise UserError(f"there is no path from {source.name} to {destination.name}")
    found = [source.name]
    while here != last:
        hops = next_hops(topology, here, last, down)
        taken = hops[digit_at(mark, far[here]) % len(hops)] if len(hops) > 1 else hops[0]
        found.append(taken.name)
        here = topology.peer_of[taken.name].node
    return (*found, topology.peer_of[destination.name].name)


def mark_of(topology: Topology, destination: Interface, egress: Sequence[str], down: frozenset[str] = NOTHING) -> int:
    """The smallest mark whose packets leave through these interfaces: the inverse of `path`.

    `egress` is what `path` gives: the sender's NIC first.  Raises UserError where it is no shortest path.
    """
    last = leaf_of(topology, destination.name).name
    far, digits = distances(topology, last, down), [0] * LEVELS
    for name in egress[1:-1]:
        here = next((end.node for end in topology.interfaces() if end.name == name), None)
        names = [hop.name for hop in next_hops(topology, here, last, down)] if here is not None else []
        if here is None or name not in names:
            raise UserError(f"{name} is on no shortest path to {destination.name}")
        if len(names) > 1:
            digits[far[here] - 1] = names.index(name)
    return encode(digits)
