"""Path pinning, as Meta's AI clusters first did it: the destination's place in its rack says which uplink.

    slot of the destination   0   1   2   3   4 ...
    uplink                    0   1   2   3   0 ...     (modulo the uplinks)

Perfect when racks are whole and all links are up: every slot has an uplink of its own, or its fair share.  A rack of
which a job has every other host uses every other uplink only; and what was pinned to a link that is down goes, all of
it, to the next one.  More than 30% of training time was lost so (facts.md 1.3).
"""

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from controller.path_marks import mark_of
from controller.policies.base import Policy, Situation
from controller.selector.selection import NO_CHOICE, Selection
from topologies.graph import NOTHING, hosts_below, next_hops
from topologies.model import Interface


@dataclass(frozen=True, kw_only=True)
class Pinned(Policy):
    """One path per destination and leaf of the source."""

    name: ClassVar[str] = "pinned"
    summary: ClassVar[str] = "the destination's place in its rack is its uplink; the next one where that is down"

    def selection(self, situation: Situation) -> Selection:
        """An exact entry for every pair of hosts on different leaves that can reach each other."""
        topology = situation.topology
        assigned: dict[tuple[IPv4Address, IPv4Address], int] = {}
        for here, there in situation.widths:
            for slot, destination in enumerate(hosts_below(topology, there)):
                egress = _path(situation, here, there, slot)
                mark = mark_of(topology, destination, ("", *egress, ""), situation.down)
                for source in hosts_below(topology, here):
                    if source.ip is not None and destination.ip is not None:
                        assigned[source.ip, destination.ip] = mark
        return Selection(widths=dict.fromkeys(situation.widths, NO_CHOICE), assigned=assigned)


def _path(situation: Situation, here: str, leaf: str, slot: int) -> list[str]:
    """Egress interfaces from leaf to leaf."""
    found: list[str] = []
    while here != leaf:
        hop = _hop(situation, here, leaf, slot)
        found.append(hop.name)
        here = situation.topology.peer_of[hop.name].node
    return found


def _hop(situation: Situation, here: str, leaf: str, slot: int) -> Interface:
    """The slot's own next hop, or the first one after it that is live."""
    whole = next_hops(situation.topology, here, leaf, NOTHING)
    live = next_hops(situation.topology, here, leaf, situation.down)
    turned = [whole[(slot + number) % len(whole)] for number in range(len(whole))]
    return next((hop for hop in turned if hop in live), live[slot % len(live)])
