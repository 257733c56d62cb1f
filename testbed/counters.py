"""What every interface and port counted, read in a few dumps, and whether the books balance."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed import rtnl
from testbed.netlink import NetlinkSocket, attributes
from testbed.port.interface import PortCounters

ETHERNET_HEADER_BYTES = 14
_LINK_64_FILTER = 1
"""IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)."""


@dataclass(frozen=True, kw_only=True)
class InterfaceCounters:
    """struct rtnl_link_stats64, as far as a virtual cable fills it."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


@dataclass(frozen=True, kw_only=True)
class Counters:
    """An interface and the port behind it, since the fabric was made.

    tx is what left the port: `port.dropped_packets` never reached the cable.  Of `tx_dropped`, `refused_packets` were
    lost entering it and `unplugged_packets` never reached the port: the stack of a host drops what it has to send while
    its cable is unplugged.
    """

    tx_packets: int
    tx_bytes: int
    rx_packets: int
    rx_bytes: int
    tx_dropped: int
    rx_dropped: int
    port: PortCounters

    @property
    def refused_packets(self) -> int:
        """Released by the port, refused by the cable.  What waits in a polling receiver's ring is not counted yet."""
        return max(0, min(self.tx_dropped, self.port.sent_packets - self.tx_packets))

    @property
    def unplugged_packets(self) -> int:
        """Dropped before the port."""
        return self.tx_dropped - self.refused_packets


@dataclass(frozen=True, kw_only=True)
class Direction:
    """One direction of a link for the balance: its name, who sends and who receives."""

    name: str
    sender: str
    receiver: str


def read_interfaces(route: NetlinkSocket) -> dict[int, InterfaceCounters]:
    """Interface index -> counters of all interfaces of the socket's namespace, in one dump."""
    found = {}
    body = struct.pack("=BxHII", 0, 0, 0, _LINK_64_FILTER)
    for _kind, payload in route.dump(rtnl.RTM_GETSTATS, body):
        index = struct.unpack_from("=I", payload, 4)[0]
        values = struct.unpack_from("=8Q", attributes(payload[12:])[1])
        rx_packets, tx_packets, rx_bytes, tx_bytes, _rx_errors, _tx_errors, rx_dropped, tx_dropped = values
        found[index] = InterfaceCounters(
            rx_packets=rx_packets,
            tx_packets=tx_packets,
            rx_bytes=rx_bytes,
            tx_bytes=tx_bytes,
            rx_dropped=rx_dropped,
            tx_dropped=tx_dropped,
        )
    return found


def join(interface: InterfaceCounters, port: PortCounters, *, polls: bool, peer_polls: bool) -> Counters:
    """An interface with its port, every byte count with the Ethernet header.

    A veth that polls (GRO on) counts an arrival after that header was taken off, any other before; and what one end
    counts as arrived is what the other says that it sent: veth_xdp_rcv and veth_get_stats64 of drivers/net/veth.c.
    """
    return Counters(
        tx_packets=interface.tx_packets,
        tx_bytes=interface.tx_bytes + (ETHERNET_HEADER_BYTES * interface.tx_packets if peer_polls else 0),
        rx_packets=interface.rx_packets,
        rx_bytes=interface.rx_bytes + (ETHERNET_HEADER_BYTES * interface.rx_packets if polls else 0),
        tx_dropped=interface.tx_dropped,
        rx_dropped=interface.rx_dropped,
        port=port,
    )


def imbalances(directions: Sequence[Direction], counters: Mapping[str, Counters]) -> list[str]:
    """A sentence for each direction where sent != received + dropped, in packets and bytes; none when all is well.

    Meaningful at rest only: what is still in a queue or on a wire is named as such.
    """
    found = []
    for direction in directions:
        sender, receiver = counters[direction.sender], counters[direction.receiver]
        where = f"{direction.name} ({direction.sender} to {direction.receiver})"
        if sender.port.backlog_packets:
            found.append(f"{where}: {sender.port.backlog_packets} packets are still queued or on the wire")
            continue
        released, arrived = sender.port.sent_packets, receiver.rx_packets
        if not released - sender.refused_packets == sender.tx_packets == arrived:
            found.append(
                f"{where}: the port released {released} packets, the cable took {sender.tx_packets}, {arrived} arrived,"
                f" {sender.tx_dropped} were dropped"
            )
        elif sender.tx_bytes != receiver.rx_bytes:
            found.append(f"{where}: {sender.tx_bytes} B left, {receiver.rx_bytes} B arrived")
    return found
