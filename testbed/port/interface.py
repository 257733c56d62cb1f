"""What a switch port or NIC is to the fabric: a recipe for one egress, told in netlink and read back.

A kind of port is one file that implements `Port` and one line in `registry.py`.  The fabric does the talking: it sends
what `requests` returns, dumps traffic control once per namespace, and compares `in_force` with `wanted`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.netlink import NetlinkSocket, Request
from testbed.port.host_cost import FREE, HostCost
from testbed.port.stats import Drops
from testbed.traffic_control import TrafficControl


@dataclass(frozen=True, kw_only=True)
class Egress:
    """One direction of one link, seen from the interface that sends."""

    interface: str
    index: int
    """Interface index in the sender's namespace."""
    node: str
    is_switch: bool
    port: int
    link: str
    """Name of the link, for messages."""
    peer: str
    """The interface at the other end."""
    rate_bps: int
    delay_ns: int
    buffer_bytes: int
    mtu: int
    """Bytes of IP packet."""
    cost: HostCost = FREE
    """Of the software behind a host's NIC."""

    @property
    def frame_bytes(self) -> int:
        """The longest frame, Ethernet header included, without FCS: what Linux calls the packet's length."""
        return self.mtu + 14


@dataclass(frozen=True, kw_only=True)
class PortCounters:
    """What one egress did since it was made."""

    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    backlog_packets: int
    """In the queue or on the wire."""
    backlog_bytes: int
    marked_packets: int = 0
    unmarkable_packets: int = 0
    """Would have been marked but do not take part in ECN."""
    drops: Drops | None = None
    """By cause, where the port knows."""
    pauses_sent: int = 0
    """XOFF frames, refreshes included."""
    resumes_sent: int = 0
    pauses_received: int = 0
    paused_ns: int = 0
    watchdog_fired: int = 0
    queue_max_bytes: int = 0
    """The longest queue so far."""
    arrived_packets: int = 0
    """Offered to the port, drops included."""
    control_packets: int = 0
    """PFC frames of its own."""
    wire_lost_packets: int = 0
    """On the wire when the port went down."""


class Port(Protocol):
    """A kind of port."""

    name: str
    """As the registry and the manifest call it."""
    polices: bool
    """Whether police actions are part of it: they are another dump."""

    def check_kernel(self, route: NetlinkSocket) -> None:
        """Raises MissingFeature where the kernel lacks what this port is made of."""

    def check(self, egress: Egress) -> None:
        """Raises UserError when this port cannot do what the link asks."""

    def requests(self, egress: Egress) -> Sequence[Request]:
        """Makes the port; sent in the sender's namespace before the interface comes up."""

    def wanted(self, egress: Egress) -> Mapping[str, int | str]:
        """Setting -> value that must be read back."""

    def in_force(self, egress: Egress, found: TrafficControl) -> Mapping[str, int | str]:
        """The same settings as the kernel reports them; a missing one is absent."""

    def counters(self, egress: Egress, found: TrafficControl) -> PortCounters:
        """What it did."""

    def faults(self, egress: Egress, found: TrafficControl) -> Sequence[str]:
        """What does not add up at a port at rest, in words."""

    def describe(self) -> Mapping[str, int | str]:
        """What is the same for every port of this kind, for the manifest."""
