"""One switch: what does the traffic do when only the hosts' own ports can be in the way?

 h1   h2   h3  ...  hN
  |    |    |        |        every host one cable of `rate` and `delay`
+-----------------------+
|          s1           |
+-----------------------+
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


def star(
    *,
    hosts: Annotated[int, "hosts on the switch"] = 8,
    rate: Annotated[str, "rate of every link"] = "100G",
    delay: Annotated[str, "one-way delay of every link"] = "1us",
    buffer: Annotated[str, "buffer of every port; auto is 5 kB per Gb/s"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 9000,
) -> Topology:
    """One switch with all hosts: no path choice, congestion only at the receivers' ports.  Raises UserError."""
    asked = dict(locals())
    wire = read.wire(rate=rate, delay=delay, buffer=buffer)
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    switch = fabric.switch("s1", tier="leaf")
    for number in read.numbers("hosts", hosts):
        host = fabric.host(f"h{number}", rack=1)
        fabric.cable(host, switch, wire, address=address_of(pod=0, leaf=1, host=number))
    return fabric.topology("star", parameters=asked)


GENERATOR = Generator(star)
topos = mininet_topologies(GENERATOR)
