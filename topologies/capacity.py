"""How wide a fabric is, in numbers that the field compares: oversubscription per tier and bisection bandwidth."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from topologies.graph import distances, leaves
from topologies.model import Interface, Topology


@dataclass(frozen=True, kw_only=True)
class Tier:
    """The switches that are equally far from the nearest host."""

    name: str
    switches: int
    down_bps: int
    """Towards the hosts, of the switch where the ratio is worst."""
    up_bps: int
    """Away from the hosts, of the same switch; 0 at the top of the fabric."""

    @property
    def oversubscription(self) -> Fraction | None:
        """Down over up: 1 is non-blocking, 3 means that three bits per second want one; None at the top."""
        return Fraction(self.down_bps, self.up_bps) if self.up_bps else None


def levels(topology: Topology) -> Mapping[str, int]:
    """Switch name -> hops to the nearest switch with a host: 0 for a leaf.  Switches without any path are absent."""
    nearest: dict[str, int] = {}
    for leaf in leaves(topology):
        for switch, hops in distances(topology, leaf.name).items():
            nearest[switch] = min(hops, nearest.get(switch, hops))
    return nearest


def tiers(topology: Topology) -> tuple[Tier, ...]:
    """From the hosts upwards.

    Down is every cable to a host or to a lower tier.  Up is every other cable between switches: also one to a switch of
    the same tier, such as the middle of a dumbbell, which is the way out of the rack there.
    """
    level = levels(topology)
    return tuple(_tier(topology, level, number) for number in sorted(set(level.values())))


def _tier(topology: Topology, level: Mapping[str, int], number: int) -> Tier:
    members = [switch for switch in topology.switches if level.get(switch.name) == number]
    sums = [_down_and_up(topology, level, switch.name) for switch in members]
    leading_up = [pair for pair in sums if pair[1]]
    down, up = max(leading_up, key=lambda pair: Fraction(*pair)) if leading_up else max(sums)
    name = " and ".join(dict.fromkeys(switch.tier for switch in members))
    return Tier(name=name, switches=len(members), down_bps=down, up_bps=up)


def _down_and_up(topology: Topology, level: Mapping[str, int], switch: str) -> tuple[int, int]:
    down = up = 0
    for own in topology.interfaces_of[switch]:
        rate_bps = topology.link_of[own.name].rate_bps
        if _leads_down(topology, level, own):
            down += rate_bps
        else:
            up += rate_bps
    return down, up


def _leads_down(topology: Topology, level: Mapping[str, int], own: Interface) -> bool:
    peer = topology.peer_of[own.name].node
    return peer in topology.host_named or level[peer] < level[own.node]


def bisection_bps(topology: Topology) -> int:
    """What the first half of the hosts can send to the second half at once, in bit/s, one direction.

    Maximum flow between the two halves, with every cable at its rate and hosts that never forward.  The halves are cut
    in the order of the hosts, which is rack by rack and pod by pod: in the regular fabrics here that is the worst equal
    cut; of an irregular fabric it is the bandwidth of this one cut, not a minimum over all of them (that problem is
    NP-hard).  With an odd number of hosts the one in the middle belongs to the second half.
    """
    import networkx as nx

    half = len(topology.hosts) // 2
    if half == 0:
        return 0
    sides = {host.name: "first" if number < half else "second" for number, host in enumerate(topology.hosts)}
    network = nx.DiGraph()
    network.add_nodes_from(("first", "second"))
    for link in topology.links:
        for here, there in link.ends():
            tail, head = sides.get(here.node, here.node), sides.get(there.node, there.node)
            known = network.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            network.add_edge(tail, head, capacity=known + link.rate_bps)
    return int(nx.maximum_flow_value(network, "first", "second"))
