"""Rail-optimised: a host has a NIC per accelerator, and NIC r of every host is on leaf r.  What stays inside a rail?

     spine1    spine2    spine3    spine4         every leaf has `cables` links to every spine
        :    .    :    .    :    .    :           (full mesh)
      leaf1     leaf2     leaf3     leaf4         leaf r is rail r: 10.0.r.host
       |||       |||       |||       |||
       ||+-------||+-------||+-------||+---- h1   h1-eth0 is on leaf1, h1-eth1 on leaf2, ...
       |+--------|+--------|+--------|+----- h2
       +---------+---------+---------+------ h3   `hosts` with `rails` NICs each, at `rate`

The NICs of one rail are one switch apart; the spines carry only traffic between rails.
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


def rail(
    *,
    hosts: Annotated[int, "hosts, each with a NIC on every rail"] = 4,
    rails: Annotated[int, "NICs per host and leaf switches"] = 4,
    spines: Annotated[int, "spine switches"] = 4,
    rate: Annotated[str, "rate of every NIC"] = "100G",
    uplink_rate: Annotated[str, "rate of every uplink; rate means as the NICs"] = "rate",
    delay: Annotated[str, "one-way delay of the NICs' links"] = "1us",
    uplink_delay: Annotated[str, "one-way delay of every uplink; delay means as the NICs' links"] = "delay",
    cables: Annotated[int, "parallel uplinks from a leaf to each spine"] = 1,
    buffer: Annotated[str, "buffer of every port; auto is 5 kB per Gb/s"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 9000,
) -> Topology:
    """Hosts with several NICs, NIC r on leaf r, spines above: a rail is one hop.  Raises UserError."""
    asked = dict(locals())
    near, up = read.wires(rate=rate, uplink_rate=uplink_rate, delay=delay, uplink_delay=uplink_delay, buffer=buffer)
    per_pair = read.count("cables", cables, most=16)
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    leaves = [fabric.switch(f"leaf{number}", tier="leaf") for number in read.numbers("rails", rails, most=16)]
    tops = [fabric.switch(f"spine{number}", tier="spine") for number in read.numbers("spines", spines)]
    for number in read.numbers("hosts", hosts):
        host = fabric.host(f"h{number}")
        for rail_number, leaf in enumerate(leaves, start=1):
            fabric.cable(host, leaf, near, address=address_of(pod=0, leaf=rail_number, host=number))
    fabric.mesh(leaves, tops, up, cables=per_pair)
    return fabric.topology("rail", parameters=asked)


GENERATOR = Generator(rail)
topos = mininet_topologies(GENERATOR)
