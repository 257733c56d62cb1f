"""The pause frames among a NIC's arrivals: MAC control, not the host's traffic, though its counters count them.

Only ports that know PFC are asked: a reading begins their high-water marks anew, and those belong to the run's report.
"""

import socket

from testbed.netlink import NetlinkSocket
from testbed.port.config import ClassConfig
from testbed.port.netlink import KIND, decode, decode_stats
from testbed.traffic_control import Qdisc, read_traffic_control


class MacControlArrivals:
    """Counts what the ports of some NICs have obeyed or ignored; nothing where no port knows PFC."""

    def __init__(self, interfaces: tuple[str, ...]) -> None:
        """In the network namespace that the thread is in."""
        indexes = [socket.if_nametoindex(name) for name in interfaces]
        self._route = NetlinkSocket()
        self._indexes = [index for index, root in self._roots(indexes) if any(each.pfc for each in _classes(root))]

    def read(self) -> int:
        """Frames so far, each of PFC_FRAME_BYTES."""
        if not self._indexes:
            return 0
        ports = [decode_stats(root.extra) for _, root in self._roots(self._indexes)]
        obeyed = sum(each.pauses_received + each.resumes_received for port in ports for each in port.classes)
        return obeyed + sum(port.control_ignored for port in ports)

    def _roots(self, indexes: list[int]) -> list[tuple[int, Qdisc]]:
        control = read_traffic_control(self._route, policers=False)
        roots = [(index, control.root(index)) for index in indexes]
        return [(index, root) for index, root in roots if root is not None and root.kind == KIND]


def _classes(root: Qdisc) -> tuple[ClassConfig, ...]:
    return decode(root.options).classes
