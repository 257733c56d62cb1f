"""Two switches and one cable between them: how do flows share a bottleneck?

h1 --+                          +-- h5
h2 --+                          +-- h6
h3 --+ left ==============right +-- h7        `hosts` on each side, at `rate` and `delay`;
h4 --+        bottleneck        +-- h8        the middle at `bottleneck_rate`, `_delay`
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


def dumbbell(
    *,
    hosts: Annotated[int, "hosts on each side"] = 4,
    rate: Annotated[str, "rate of the hosts' links"] = "100G",
    bottleneck_rate: Annotated[str, "rate of the middle link; rate means as the hosts' links"] = "rate",
    delay: Annotated[str, "one-way delay of the hosts' links"] = "1us",
    bottleneck_delay: Annotated[str, "one-way delay of the middle link; delay means as the hosts' links"] = "delay",
    buffer: Annotated[str, "buffer of every port; auto is 5 kB per Gb/s"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 9000,
) -> Topology:
    """Two switches and one cable between them: every flow from left to right shares it.  Raises UserError."""
    asked = dict(locals())
    near, middle = read.wires(
        rate=rate,
        uplink_rate=bottleneck_rate,
        delay=delay,
        uplink_delay=bottleneck_delay,
        buffer=buffer,
        between="bottleneck",
    )
    per_side = read.count("hosts", hosts)
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    left, right = (fabric.switch(name, tier="leaf") for name in ("left", "right"))
    for leaf, side in enumerate((left, right), start=1):
        for number in range(1, per_side + 1):
            host = fabric.host(f"h{(leaf - 1) * per_side + number}", rack=leaf)
            fabric.cable(host, side, near, address=address_of(pod=0, leaf=leaf, host=number))
    fabric.cable(left, right, middle)
    return fabric.topology("dumbbell", parameters=asked)


GENERATOR = Generator(dumbbell)
topos = mininet_topologies(GENERATOR)
