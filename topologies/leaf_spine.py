r"""Racks under leaves under spines: what do path choice and oversubscription between racks cost?

spine1    spine2    spine3    spine4       every leaf has `cables` links of `uplink_rate`
   :    .    :    .    :    .    :         and `uplink_delay` to every spine (full mesh)
 leaf1     leaf2     leaf3     leaf4
 / .. \    / .. \    / .. \    / .. \      `hosts` per leaf at `rate` and `delay`
h1 .. h4  h5 .. h8  h9 . h12  h13 . h16    10.0.leaf.host
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


def leaf_spine(
    *,
    leaves: Annotated[int, "leaf switches"] = 4,
    hosts: Annotated[int, "hosts per leaf"] = 4,
    spines: Annotated[int, "spine switches"] = 4,
    rate: Annotated[str, "rate of the hosts' links"] = "100G",
    uplink_rate: Annotated[str, "rate of every uplink; rate means as the hosts' links"] = "rate",
    delay: Annotated[str, "one-way delay of the hosts' links"] = "1us",
    uplink_delay: Annotated[str, "one-way delay of every uplink; delay means as the hosts' links"] = "delay",
    cables: Annotated[int, "parallel uplinks from a leaf to each spine"] = 1,
    buffer: Annotated[str, "buffer of every port; auto is 5 kB per Gb/s"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 9000,
) -> Topology:
    """Racks under leaves, every leaf linked to every spine: one path per spine between racks.  Raises UserError."""
    asked = dict(locals())
    near, up = read.wires(rate=rate, uplink_rate=uplink_rate, delay=delay, uplink_delay=uplink_delay, buffer=buffer)
    per_leaf, per_pair = read.count("hosts", hosts), read.count("cables", cables, most=16)
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    leaf_switches = [fabric.switch(f"leaf{leaf}", tier="leaf") for leaf in read.numbers("leaves", leaves)]
    spine_switches = [fabric.switch(f"spine{spine}", tier="spine") for spine in read.numbers("spines", spines)]
    for leaf, leaf_switch in enumerate(leaf_switches, start=1):
        for number in range(1, per_leaf + 1):
            host = fabric.host(f"h{(leaf - 1) * per_leaf + number}", rack=leaf)
            fabric.cable(host, leaf_switch, near, address=address_of(pod=0, leaf=leaf, host=number))
    fabric.mesh(leaf_switches, spine_switches, up, cables=per_pair)
    return fabric.topology("leaf_spine", parameters=asked)


GENERATOR = Generator(leaf_spine)
topos = mininet_topologies(GENERATOR)
