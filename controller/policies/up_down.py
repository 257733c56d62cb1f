r"""Up*/down* routing: a path first goes towards the root, then away from it, and never turns back up.

        root          up: to a switch nearer to the root (the first switch of the topology); of two switches equally
       /    \         near, to the one that comes first
     s2      s4       s2 -> root -> s4: up, down: allowed
       \    /         s2 -> s3   -> s4: down, up: forbidden, though it is as short
         s3

No circle of buffers that wait for each other can form: on it some packet would have to turn from down to up.  So
lossless traffic (PFC) cannot deadlock, on a ring or after failures.  Pairs of hosts are spread over the shortest paths
that are allowed.

Source: Schroeder et al., Autonet: a High-speed, Self-configuring Local Area Network Using Point-to-point Links, IEEE
JSAC 9(8), 1991.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from controller.path_marks import mark_of
from controller.policies.base import Policy, Situation
from controller.selector.selection import NO_CHOICE, Selection
from topologies.errors import UserError
from topologies.graph import distances, hosts_below, next_hops

MOST_PAIRS = 1 << 16
"""Exact entries that the selector's table holds."""


@dataclass(frozen=True, kw_only=True)
class UpDown(Policy):
    """One allowed shortest path per pair of hosts."""

    name: ClassVar[str] = "up_down"
    summary: ClassVar[str] = "shortest paths that never turn from down to up, spread over pairs: no PFC deadlock"

    def selection(self, situation: Situation) -> Selection:
        """An exact entry for every pair of hosts on different leaves.

        Raises UserError where no shortest path is allowed, or where there are more pairs than entries.
        """
        topology, heights = situation.topology, _heights(situation)
        place = {end.name: number for number, end in enumerate(topology.host_interfaces())}
        assigned = {}
        for here, there in situation.widths:
            ends = [(a, b) for a in hosts_below(topology, here) for b in hosts_below(topology, there)]
            marks = [
                mark_of(topology, ends[0][1], ("", *path, ""), situation.down)
                for path in _allowed(situation, heights, here, there)
            ]
            if not marks:
                raise UserError(
                    f"policy up_down: every shortest path from {here} to {there} turns from down to up, and only "
                    "shortest paths can be taken; use another topology (a ring of 4 has none such) or policy"
                )
            for source, destination in ends:
                if source.ip is not None and destination.ip is not None:
                    number = place[source.name] + place[destination.name]
                    assigned[source.ip, destination.ip] = marks[number % len(marks)]
        if len(assigned) > MOST_PAIRS:
            raise UserError(
                f"policy up_down: {len(assigned)} pairs of hosts need an entry each, the selector holds {MOST_PAIRS}; "
                "use fewer hosts or another policy"
            )
        return Selection(widths=dict.fromkeys(situation.widths, NO_CHOICE), assigned=assigned)


def _heights(situation: Situation) -> Mapping[str, tuple[int, int]]:
    """Switch -> (hops from the root of its part of the fabric, its place): the smaller is the higher."""
    found: dict[str, tuple[int, int]] = {}
    place = {switch.name: number for number, switch in enumerate(situation.topology.switches)}
    for switch in situation.topology.switches:
        if switch.name not in found:
            hops = distances(situation.topology, switch.name, situation.down)
            found |= {name: (distance, place[name]) for name, distance in hops.items()}
    return found


def _allowed(
    situation: Situation, heights: Mapping[str, tuple[int, int]], here: str, leaf: str, *, down: bool = False
) -> Iterator[tuple[str, ...]]:
    """Egress interfaces of every shortest path without a turn from down to up, in port order."""
    if here == leaf:
        yield ()
        return
    for own in next_hops(situation.topology, here, leaf, situation.down):
        peer = situation.topology.peer_of[own.name].node
        climbs = heights[peer] < heights[here]
        if not (down and climbs):
            for rest in _allowed(situation, heights, peer, leaf, down=not climbs):
                yield (own.name, *rest)
