r"""Switches in a cycle: what do pauses do where traffic can go round in a circle?

 h1 h2     h3 h4
  \ |      | /
   s1 ---- s2         clockwise is s1, s2, s3, s4, s1; `hosts` per switch at `rate` and `delay`,
   |        |         cables between switches at `uplink_rate` and `uplink_delay`
   s4 ---- s3
  / |      | \        ports of a switch: its hosts, then clockwise, then back
 h7 h8     h5 h6

With an even number of switches there are two ways to the opposite one.  The clockwise port has the lower number, so
choice 0 goes clockwise from everywhere: with `single` the paths close a circle of buffers that wait for each other.
"""

import sys
from pathlib import Path
from typing import Annotated

if __name__ == "builtins":  # Mininet's `mn --custom` executes this text outside any module: let it find our package
    sys.path.insert(0, str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))

from topologies import parameters as read
from topologies.builder import Builder, address_of
from topologies.generator import Generator
from topologies.mn import mininet_topologies
from topologies.model import Topology


def ring(
    *,
    switches: Annotated[int, "switches in the ring, 3 at least"] = 4,
    hosts: Annotated[int, "hosts per switch"] = 2,
    rate: Annotated[str, "rate of the hosts' links"] = "100G",
    uplink_rate: Annotated[str, "rate of the links between switches; rate means as the hosts' links"] = "rate",
    delay: Annotated[str, "one-way delay of the hosts' links"] = "1us",
    uplink_delay: Annotated[str, "one-way delay between switches; delay means as the hosts' links"] = "delay",
    buffer: Annotated[str, "buffer of every port; auto is 5 kB per Gb/s"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 9000,
) -> Topology:
    """Switches in a cycle, each with its hosts: a fabric in which lossless traffic can deadlock.  Raises UserError."""
    asked = dict(locals())
    near, between = read.wires(
        rate=rate, uplink_rate=uplink_rate, delay=delay, uplink_delay=uplink_delay, buffer=buffer
    )
    count, per_switch = read.count("switches", switches, least=3), read.count("hosts", hosts)
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    ring_switches = [fabric.switch(f"s{number}", tier="leaf") for number in range(1, count + 1)]
    for place, switch in enumerate(ring_switches, start=1):
        for number in range(1, per_switch + 1):
            host = fabric.host(f"h{(place - 1) * per_switch + number}", rack=place)
            fabric.cable(host, switch, near, address=address_of(pod=0, leaf=place, host=number))
    clockwise, back = per_switch + 1, per_switch + 2
    for place, switch in enumerate(ring_switches):
        fabric.cable(switch, ring_switches[(place + 1) % count], between, ports=(clockwise, back))
    return fabric.topology("ring", parameters=asked)


GENERATOR = Generator(ring)
topos = mininet_topologies(GENERATOR)
