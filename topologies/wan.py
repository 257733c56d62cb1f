r"""Sites joined by long, thin cables to one cloud: what does training cost when the workers are far apart?

                  cloud              a server on the core, at `rate` and `delay`
                    |
                  core
        /     .     :     .     \    `wan_rate` and `wan_delay` to every site
    site1     site2     site3 ...
    / | \     / | \                  at `rate` and `delay`: an edge server and `hosts` workers per site
edge1 h1 h2  edge2 h3 h4
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
from topologies.units import format_size

CLOUD, EDGE = "cloud", "edge"
"""Name of the host at the core, and how the names of the sites' servers begin."""


def wan(
    *,
    sites: Annotated[int, "sites"] = 2,
    hosts: Annotated[int, "workers per site"] = 4,
    rate: Annotated[str, "rate of the hosts' links, the cloud's included"] = "10G",
    wan_rate: Annotated[str, "rate between a site and the core"] = "1G",
    delay: Annotated[str, "one-way delay of the hosts' links"] = "1us",
    wan_delay: Annotated[str, "one-way delay between a site and the core"] = "5ms",
    buffer: Annotated[str, "buffer of the hosts' ports; auto is 5 kB per Gb/s"] = "auto",
    wan_buffer: Annotated[str, "buffer of the ports between sites; auto is wan_rate x site to site and back"] = "auto",
    mtu: Annotated[int, "bytes of IP packet"] = 1500,
) -> Topology:
    """Sites with an edge server and workers each, all linked over long distances to one cloud.  Raises UserError."""
    asked = dict(locals())
    near = read.wire(rate=rate, delay=delay, buffer=buffer)
    if wan_buffer.strip().lower() == "auto":
        wan_buffer = format_size(_bandwidth_delay_bytes(wan_rate, wan_delay))
    far = read.wire(rate=wan_rate, delay=wan_delay, buffer=wan_buffer, names=("wan_rate", "wan_delay", "wan_buffer"))
    fabric = Builder(mtu=read.mtu("mtu", mtu))
    core = fabric.switch("core", tier="core")
    per_site = read.count("hosts", hosts)
    fabric.cable(fabric.host(CLOUD), core, near, address=address_of(pod=0, leaf=0, host=1))
    for site in read.numbers("sites", sites):
        switch = fabric.switch(f"site{site}", tier="leaf")
        names = [f"{EDGE}{site}", *(f"h{(site - 1) * per_site + number}" for number in range(1, per_site + 1))]
        for number, name in enumerate(names, start=1):
            host = fabric.host(name, rack=site)
            fabric.cable(host, switch, near, address=address_of(pod=0, leaf=site, host=number))
        fabric.cable(switch, core, far)
    return fabric.topology("wan", parameters=asked)


def _bandwidth_delay_bytes(rate: str, delay: str) -> int:
    """What a router holds by the classical rule: a round trip, here from site to site (Appenzeller et al. 2004)."""
    rate_bps, delay_ns = read.rate_of("wan_rate", rate), read.delay_of("wan_delay", delay)
    return max(rate_bps * 4 * delay_ns // (8 * 10**9), read.LEAST_BUFFER_BYTES)


GENERATOR = Generator(wan)
topos = mininet_topologies(GENERATOR)
