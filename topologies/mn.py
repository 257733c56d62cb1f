"""Our fabrics for plain Mininet: `mn --custom topologies/leaf_spine.py --topo leaf_spine,4,4,4`.

`mn` executes the text of the custom file outside any module and looks for a dictionary `topos`; the values after the
topology's name become the generator's parameters in order, `key=value` by name.  Nodes, datapath ids, ports,
addresses and the order of the links are those of the Topology; rates, delays and buffers are left to whoever builds
the links (`--link` of mn, or our testbed).  Mininet is imported only when a Topo is made.
"""

from collections.abc import Callable, Mapping
from typing import Any

from topologies.errors import MissingFeature
from topologies.generator import Generator
from topologies.model import Host, Interface, Link, Topology

PREFIX_LENGTH = 8
"""Of every host's address: the whole fabric is one subnet, the switches forward on 10.pod.leaf."""


def mininet_topologies(generator: Generator) -> Mapping[str, Callable[..., Any]]:
    """What a custom file of `mn` calls `topos`."""

    def build(*values: str | int | float, **given: str | int | float) -> Any:
        return mininet_topo(generator.build_positional(*values, **given))

    return {generator.name: build}


def mininet_topo(topology: Topology) -> Any:
    """A mininet.topo.Topo of the fabric.  Raises MissingFeature where Mininet is not installed."""
    try:
        from mininet.topo import Topo
    except ImportError as error:
        raise MissingFeature("Mininet is not importable", "install Debian's package mininet") from error

    class FabricTopo(Topo):  # type: ignore[misc]
        """Keeps our order where Mininet would sort by name, so that the n-th link is everywhere the n-th."""

        def build(self) -> None:
            for host in topology.hosts:
                self.addHost(host.name, **host_options(topology, host))
            for switch in topology.switches:
                self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}")
            for link in topology.links:
                self.addLink(link.a.node, link.b.node, key=link.number, **link_options(link))

        def nodes(self, sort: bool = True) -> list[str]:
            return [node.name for node in topology.nodes]

        def links(self, sort: bool = False, withKeys: bool = False, withInfo: bool = False) -> list[Any]:  # noqa: N803
            return [
                (link.a.node, link.b.node)
                + (link.number,) * withKeys
                + (self.linkInfo(link.a.node, link.b.node, link.number),) * withInfo
                for link in topology.links
            ]

    return FabricTopo()


def host_options(topology: Topology, host: Host) -> dict[str, str]:
    """What Mininet's addHost takes: the first NIC's address."""
    first, *_ = topology.interfaces_of[host.name]
    return {"ip": f"{first.ip}/{PREFIX_LENGTH}", "mac": str(first.mac)}


def link_options(link: Link) -> dict[str, Any]:
    """What Mininet's addLink takes: ports, and the addresses of hosts' ends, which a second NIC gets only here."""
    options: dict[str, Any] = {"port1": link.a.port, "port2": link.b.port}
    for end, number in ((link.a, 1), (link.b, 2)):
        if end.mac is not None:
            options[f"addr{number}"] = end.mac
            options[f"params{number}"] = _addressed(end)
    return options


def _addressed(end: Interface) -> dict[str, str]:
    return {"ip": f"{end.ip}/{PREFIX_LENGTH}"}
