"""Mininet's interfaces and links over netlink: `link leaf1 spine1 down`, `h1.setIP(...)` without a process each."""

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from mininet.link import Intf, Link

from testbed import rtnl
from testbed.netlink import Request, attributes
from topologies.errors import UserError

_RTM_GETADDR = 22
_IFA_LOCAL = 2


class FabricIntf(Intf):  # type: ignore[misc]  # Mininet has no types
    """An interface that the fabric has made."""

    ip: str | None
    mac: str | None
    index: int
    """Its number in its node's namespace."""
    after_up: Sequence[Request] = ()
    """What the kernel forgets when the interface goes down: routes, ARP entries."""

    def config(self, **_params: Any) -> dict[str, object]:
        """The fabric has configured it."""
        return {}

    def ifconfig(self, *args: str) -> Any:
        """`up` and `down` through netlink, anything else through the command; returns '' when all is well."""
        if tuple(args) not in (("up",), ("down",)):
            return super().ifconfig(*args)
        up = args == ("up",)
        self.node.apply(rtnl.set_up(index=self.index, name=self.name, up=up))
        if up:
            self.node.apply(*self.after_up)
        return ""

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802
        """Whether it is administratively up; with `setUp` first makes it so."""
        if setUp:
            self.ifconfig("up")
        return bool(self._flags()[0] & rtnl.IFF_UP)

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> str:  # noqa: N802, N803
        """Adds an address, written `10.0.0.1/8` or with its prefix length apart.  Raises UserError without one."""
        ip, _, prefix = ipstr.partition("/")
        if not prefix and prefixLen is None:
            raise UserError(f"{self.name}: the address {ipstr} has no prefix length")
        length = int(prefix or prefixLen or 0)
        self.node.apply(
            rtnl.new_ipv4(index=self.index, name=self.name, ip=IPv4Address(ip), prefix=length, prefix_route=True)
        )
        self.ip, self.prefixLen = ip, length
        return ""

    def setMAC(self, macstr: str) -> str:  # noqa: N802
        """Another MAC address."""
        self.node.apply(rtnl.set_address(index=self.index, name=self.name, mac=macstr))
        self.mac = macstr
        return ""

    def updateIP(self) -> str | None:  # noqa: N802
        """Its first IPv4 address as the kernel has it."""
        found: str | None = None
        for _kind, payload in self.node.route.dump(_RTM_GETADDR, struct.pack("=BBBBi", 2, 0, 0, 0, 0)):
            if struct.unpack_from("=i", payload, 4)[0] == self.index and found is None:
                found = str(IPv4Address(attributes(payload[8:])[_IFA_LOCAL]))
        self.ip = found
        return found

    def updateMAC(self) -> str | None:  # noqa: N802
        """Its MAC address as the kernel has it."""
        self.mac = self._flags()[1]
        return self.mac

    def updateAddr(self) -> tuple[str | None, str | None]:  # noqa: N802
        """Both."""
        return self.updateIP(), self.updateMAC()

    def status(self) -> str:
        """OK, or MISSING when the kernel has it no more."""
        return "OK" if self._flags()[1] else "MISSING"

    def rename(self, newname: str) -> str:
        """Refused: switches and captures know it by its name."""
        raise UserError(f"{self.name} cannot be renamed to {newname}: its switch and its captures know it by its name")

    def delete(self) -> None:
        """Removes the cable it belongs to."""
        if self.status() == "OK":
            self.node.apply(rtnl.delete_link(index=self.index, name=self.name))
        self.node.delIntf(self)
        self.link = None

    def _flags(self) -> tuple[int, str | None]:
        for _kind, payload in self.node.route.dump(rtnl.RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
            _family, index, flags, _change = struct.unpack_from("=BxxxiII", payload)
            if index == self.index:
                return flags, attributes(payload[16:])[rtnl.IFLA_ADDRESS].hex(":")
        return 0, None


class FabricLink(Link):  # type: ignore[misc]
    """A cable that the fabric has made."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_options: Any) -> None:  # noqa: N802
        """The fabric has made every pair in one batch."""

    def stop(self) -> None:
        """The cables go with the fabric."""
