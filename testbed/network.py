"""The Mininet object of a fabric: its API, its CLI, and none of its effects on the machine."""

from typing import Any

from mininet.net import Mininet

from testbed.link import FabricIntf, FabricLink
from testbed.node import FabricHost, FabricSwitch
from topologies.errors import UserError
from topologies.model import Link


class FabricNet(Mininet):  # type: ignore[misc]  # Mininet has no types
    """Hosts, switches and links of a fabric that exists already, for `net.get('h1').cmd(...)` and `CLI(net)`."""

    def __init__(self) -> None:
        """An empty network.  Mininet's first object raises sysctls of the whole machine: it is kept from doing so."""
        before, Mininet.inited = Mininet.inited, True
        try:
            super().__init__(topo=None, controller=None, link=FabricLink, intf=FabricIntf, build=False)
        finally:
            Mininet.inited = before

    def adopt(self, node: FabricHost | FabricSwitch) -> None:
        """Takes a node in."""
        (self.hosts if isinstance(node, FabricHost) else self.switches).append(node)
        self.nameToNode[node.name] = node

    def adopt_link(self, link: Link) -> FabricLink:
        """Takes a cable in."""
        cable = FabricLink(
            self[link.a.node],
            self[link.b.node],
            port1=link.a.port,
            port2=link.b.port,
            intfName1=link.a.name,
            intfName2=link.b.name,
            addr1=link.a.mac,
            addr2=link.b.mac,
            intf=FabricIntf,
        )
        self.links.append(cable)
        return cable

    def build(self) -> None:
        """The fabric has built it."""
        self.built = True

    def start(self) -> None:
        """The fabric has started it."""

    def addLink(self, *_args: Any, **_options: Any) -> None:  # noqa: N802
        """Refused: a fabric is what its topology says."""
        raise UserError("a link cannot be added to a running fabric; write it into the topology file")
