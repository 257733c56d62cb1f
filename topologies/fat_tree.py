r"""Three tiers of equal k-port switches: what does full bisection at every tier give, and what does a failure take?

          c1          c2          c3          c4            (k/2)^2 cores, one cable to every pod
           :     .     :     .     :     .     :            (p1a1 to c1 and c2, p1a2 to c3 and c4, ...)
      p1a1    p1a2       p2a1    p2a2       ...             k/2 aggregation switches in each of k pods
        |  \/  |           |  \/  |
        |  /\  |           |  /\  |
      p1e1    p1e2       p2e1    p2e2       ...             k/2 edge switches in a pod
      /  \    /  \       /  \    /  \
     h1  h2  h3  h4     h5  h6  h7  h8      ...             k/2 hosts on an edge switch: 10.pod.edge.host

The drawing is k = 4.  Al-Fares, Loukissas, Vahdat, "A scalable, commodity data center network architecture",
SIGCOMM 2008.
"""

import sys
from pathlib import Path
from typing import Annotated

if __name__ == "builtins":  # Mininet's `mn --custom` executes this text outside any module: let it find our package
    sys.path.insert(0, str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))

from topologies import parameters as read
from topologies.builder import Builder, address_of
from topologies.errors import UserError
from topologies.generator import Generator
from topologies.mn import mininet_topologies
from topologies.model import Switch, Topology
from topologies.parameters import Wire


def fat_tree(
    *,
    k: Annotated[int, "ports of every switch, even; k^3/4 hosts"] = 4,
    rate: Annotated[str, "rate of the hosts' links"] = "100G",
    uplink_rate: Annotated[str, "rate of every link between switches; rate means as the hosts' links"] = "rate",
    delay: Annotated[str, "one-way delay of the hosts' links"] = "1us",
    uplink_delay: Annotated[str, "one-way delay between switches; delay means as the hosts' links"] = "delay",
    buffer: Annotated[str, "buffer of every port; auto is 5 kB per Gb/s"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 9000,
) -> Topology:
    """Three tiers of equal k-port switches in k pods: k^2/4 paths between pods, full bisection.  Raises UserError."""
    asked = dict(locals())
    near, up = read.wires(rate=rate, uplink_rate=uplink_rate, delay=delay, uplink_delay=uplink_delay, buffer=buffer)
    half, odd = divmod(read.count("k", k, least=2, most=64), 2)
    if odd:
        raise UserError(f"k: {k} is odd; half of a switch's ports go up and half go down, so k must be even")
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    pods = [_pod(fabric, pod, half, near, up) for pod in range(1, 2 * half + 1)]
    cores = [fabric.switch(f"c{core}", tier="core") for core in range(1, half * half + 1)]
    for aggregations in pods:
        for index, aggregation in enumerate(aggregations):
            for core in cores[index * half : (index + 1) * half]:
                fabric.cable(aggregation, core, up)
    return fabric.topology("fat_tree", parameters=asked)


def _pod(fabric: Builder, pod: int, half: int, near: Wire, up: Wire) -> list[Switch]:
    """Adds a pod with its hosts and gives its aggregation switches."""
    edges = [fabric.switch(f"p{pod}e{edge}", tier="edge", pod=pod) for edge in range(1, half + 1)]
    aggregations = [fabric.switch(f"p{pod}a{number}", tier="aggregation", pod=pod) for number in range(1, half + 1)]
    for leaf, edge in enumerate(edges, start=1):
        for number in range(1, half + 1):
            host = fabric.host(f"h{((pod - 1) * half + leaf - 1) * half + number}", pod=pod, rack=leaf)
            fabric.cable(host, edge, near, address=address_of(pod=pod, leaf=leaf, host=number))
    fabric.mesh(edges, aggregations, up)
    return aggregations


GENERATOR = Generator(fat_tree)
topos = mininet_topologies(GENERATOR)
