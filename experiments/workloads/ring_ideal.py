"""How fast a ring all-reduce could be on a fabric if its bytes were spread perfectly: a fluid bound, pure arithmetic.

A rank sends 2 (P-1)/P S to the rank before it (gloo's direction).  The time is that of the slowest of: a host's link;
and all links out of, or into, a leaf together, which carry the flows that leave or enter that leaf.
"""

from collections import Counter
from collections.abc import Sequence

from experiments.bounds import ETHERNET_HEADER_BYTES
from topologies.graph import NOTHING, leaf_of, switch_cables
from topologies.model import Topology

HEADER_BYTES = 52
"""IPv4 and TCP with its time stamp option, inside the MTU."""


def ideal_ns(topology: Topology, hosts: Sequence[str], size_bytes: int, down: frozenset[str] = NOTHING) -> float:
    """For these hosts in rank order, with these links down.  `size_bytes` is S."""
    ranks = len(hosts)
    nic = {host: topology.interfaces_of[host][0].name for host in hosts}
    leaf = {host: leaf_of(topology, nic[host]).name for host in hosts}
    sent_bytes = 2 * (ranks - 1) / ranks * size_bytes * wire_share(topology.mtu)
    out, into = Counter[str](), Counter[str]()
    for rank, host in enumerate(hosts):
        to = hosts[rank - 1]
        if leaf[host] != leaf[to]:
            out[leaf[host]] += 1
            into[leaf[to]] += 1
    loads = [sent_bytes / topology.link_of[nic[host]].rate_bps for host in hosts]
    for name in set(leaf.values()):
        flows = max(out[name], into[name])
        if flows:
            loads.append(sent_bytes * flows / uplink_bps(topology, name, down))
    return max(loads) * 8e9


def uplink_bps(topology: Topology, leaf: str, down: frozenset[str] = NOTHING) -> int:
    """What a leaf's live cables to other switches carry together."""
    return sum(topology.link_of[own.name].rate_bps for own, _ in switch_cables(topology, leaf, down))


def wire_share(mtu: int) -> float:
    """Bytes of frame per byte of payload in full packets."""
    return (mtu + ETHERNET_HEADER_BYTES) / (mtu - HEADER_BYTES)
