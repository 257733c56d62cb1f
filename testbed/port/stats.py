"""What one port of the `fabric` qdisc did since it was made, as the kernel or the model tells it.

Fields stand in the order of the kernel's structures: a sampler makes thousands of these, by position.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drops:
    """By cause, in packets or in bytes."""

    egress: int = 0
    """Over the limit of the class or the port, or over the egress alpha."""
    shared: int = 0
    """Over the ingress threshold, or nothing left of the shared pool."""
    headroom: int = 0
    """A lossless class whose headroom was full."""
    watchdog: int = 0
    """In a class under a fired watchdog."""
    flush: int = 0
    """Waiting when the port went down."""

    @property
    def total(self) -> int:
        """All causes."""
        return self.egress + self.shared + self.headroom + self.watchdog + self.flush


@dataclass(frozen=True, slots=True)
class ClassStats:
    """One class since the port was made; enqueued = sent + dropped + queue, in packets and in bytes, at any moment."""

    enqueued_packets: int = 0
    """Offered to the class, drops included."""
    enqueued_bytes: int = 0
    sent_packets: int = 0
    """Serialisation has begun."""
    sent_bytes: int = 0
    dropped_packets: Drops = Drops()
    dropped_bytes: Drops = Drops()
    marked: int = 0
    """ECT made CE by this port."""
    unmarkable: int = 0
    """Would have been marked but is not ECT; sent as it was."""
    queue_packets: int = 0
    queue_bytes: int = 0
    peak_packets: int = 0
    """Peaks are since the last read."""
    peak_bytes: int = 0
    wait_ns: int = 0
    """Waiting time summed over the packets sent."""
    pauses_sent: int = 0
    """XOFF frames, refreshes included."""
    resumes_sent: int = 0
    pauses_received: int = 0
    resumes_received: int = 0
    paused_ns: int = 0
    watchdog_fired: int = 0
    watchdog_restored: int = 0
    ingress_bytes: int = 0
    """Came in at this port and waits somewhere in the switch, charged to reserve or shared pool."""
    headroom_bytes: int = 0
    """The same, charged to headroom."""
    headroom_peak_bytes: int = 0
    paused: bool = False
    storm: bool = False
    """The watchdog has fired and not let go."""
    xoff: bool = False
    """Has told the far end to stop."""


@dataclass(frozen=True, slots=True)
class PortStats:
    """One port since it was made; sum of sent + control = delivered + wire + wire_flushed, in packets and in bytes."""

    now_ns: int
    """CLOCK_MONOTONIC of this reading."""
    queue_packets: int
    """Waiting, all classes."""
    queue_bytes: int
    peak_bytes: int
    wire_packets: int
    """Being serialised or propagating."""
    wire_bytes: int
    delivered_packets: int
    delivered_bytes: int
    wire_flushed_packets: int
    """Lost on the wire when the port went down."""
    wire_flushed_bytes: int
    control_packets: int
    """PFC frames that left."""
    control_bytes: int
    control_ignored: int
    """MAC control frames received that no class obeys."""
    control_failed: int
    """PFC frames for which the kernel had no memory."""
    busy_ns: int
    """Time spent serialising, the frame under way counted whole."""
    buffer_id: int
    buffer_ports: int
    pool_bytes: int
    """The buffer less all reserves and headrooms."""
    shared_bytes: int
    """Of the pool, in use."""
    shared_peak_bytes: int
    classes: tuple[ClassStats, ...]
    """All eight."""

    @property
    def dropped_packets(self) -> int:
        """All classes, all causes."""
        return sum(each.dropped_packets.total for each in self.classes)

    @property
    def marked(self) -> int:
        """All classes."""
        return sum(each.marked for each in self.classes)
