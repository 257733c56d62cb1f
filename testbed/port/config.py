"""What one port of the `fabric` qdisc is told: rate, delay, classes, marking, shared buffer, PFC.

Pure values; `netlink.py` turns them into the kernel's attributes and back, `model.py` behaves as the kernel does.
Sizes are bytes of frame (Ethernet header included, FCS not), as the kernel counts a packet.
"""

from dataclasses import dataclass
from fractions import Fraction

from topologies.errors import UserError

CLASSES = 8
DSCPS = 64
ETHERNET_OVERHEAD_BYTES = 24
"""Preamble and start delimiter 8, FCS 4, gap 12: what a frame takes on the wire beyond its own bytes."""
MAX_PAUSE_QUANTA = 65535
PFC_FRAME_BYTES = 60
"""Ethernet's shortest frame, without FCS: what a pause takes."""
_MIN_QUANTUM_BYTES, _MIN_PAUSE_QUANTA = 256, 32
_MAX_TIME_NS = 1000 * 10**9
_MAX_ALPHA = 2**16


@dataclass(frozen=True, kw_only=True)
class Marking:
    """ECN: never at or below kmin, with pmax x (queue - kmin) / (kmax - kmin) up to kmax, always above kmax.

    The queue is what waits in the class, without the packet itself.  kmin = kmax is DCTCP's step.
    """

    kmin: int
    """Bytes, or packets if `in_packets`."""
    kmax: int
    pmax: float = 1.0
    """Probability at kmax; the kernel keeps it in parts per 10^9."""
    in_packets: bool = False
    on_arrival: bool = False
    """Decide when the packet comes (as RED does) instead of when its serialisation begins (as HPCC's switch does)."""

    def __post_init__(self) -> None:
        """Refuses thresholds out of order.  Raises UserError."""
        if not 0 <= self.kmin <= self.kmax < 2**32:
            raise UserError(f"ecn: kmin {self.kmin} and kmax {self.kmax} must satisfy 0 <= kmin <= kmax < 2^32")
        if not 0 <= self.pmax <= 1:
            raise UserError(f"ecn: pmax {self.pmax} is not in 0..1")

    @property
    def pmax_ppb(self) -> int:
        """As the kernel keeps it."""
        return round(self.pmax * 10**9)


@dataclass(frozen=True, kw_only=True)
class Watchdog:
    """What happens to a class that is paused for too long with packets waiting."""

    limit_ns: int
    """A pause longer than this fires it."""
    restore_ns: int
    """It lets go once the class has not been paused for this long."""
    forward: bool = False
    """While fired, ignore pauses; otherwise drop the class: what waits and what comes."""

    def __post_init__(self) -> None:
        """Refuses times the kernel would refuse.  Raises UserError."""
        if not 0 < self.limit_ns <= _MAX_TIME_NS or not 0 <= self.restore_ns <= _MAX_TIME_NS:
            raise UserError("watchdog: limit must be in 1 ns..1,000 s and restore in 0..1,000 s")


@dataclass(frozen=True, kw_only=True)
class ClassConfig:
    """One of the eight traffic classes; its index is also its PFC priority."""

    priority: int = 0
    """0..7; the higher is served first, equals take turns."""
    quantum_bytes: int = 9216
    """Bytes on the wire per turn among equals."""
    limit_bytes: int = 0
    """What may wait; 0 is no limit of its own."""
    egress_alpha: Fraction = Fraction(0)
    """A lossy class may hold at most alpha x free shared bytes in this queue; 0 is no such limit; steps of 1/256."""
    marking: Marking | None = None
    pfc: bool = False
    """Lossless: obeys pauses, and where a buffer is shared sends them."""
    exempt: bool = False
    """Not charged to the shared buffer."""
    reserve_bytes: int = 0
    """Of the shared buffer, kept for what comes in at this port in this class."""
    headroom_bytes: int = 0
    """Kept for what still comes in after XOFF."""
    alpha: Fraction = Fraction(0)
    """XOFF (lossless) or drop (lossy) when the ingress uses alpha x free shared bytes; 0: `xoff_bytes` counts."""
    xoff_bytes: int = 0
    """Fixed threshold in shared bytes; 0 with alpha 0: all that is free."""
    xon_offset_bytes: int = 0
    """XON when the ingress is this far below its threshold."""
    watchdog: Watchdog | None = None

    def __post_init__(self) -> None:
        """Refuses what the kernel would refuse.  Raises UserError."""
        if not 0 <= self.priority < CLASSES:
            raise UserError(f"class: priority {self.priority} is not in 0..7")
        if not _MIN_QUANTUM_BYTES <= self.quantum_bytes < 2**32:
            raise UserError(f"class: quantum of {self.quantum_bytes} B is not in {_MIN_QUANTUM_BYTES}..2^32-1")
        for name in ("reserve_bytes", "headroom_bytes", "xoff_bytes", "xon_offset_bytes", "limit_bytes"):
            if not 0 <= getattr(self, name) < 2**32:
                raise UserError(f"class: {name} {getattr(self, name)} is not in 0..2^32-1")
        for name in ("alpha", "egress_alpha"):
            value: Fraction = getattr(self, name)
            if not 0 <= value <= _MAX_ALPHA or (value * 256).denominator != 1:
                raise UserError(f"class: {name} {value} is not a multiple of 1/256 in 0..{_MAX_ALPHA}")


@dataclass(frozen=True, kw_only=True)
class PortConfig:
    """One egress port: of a switch (`buffer_id` above 0: it shares the switch's buffer) or of a host."""

    rate_bps: int
    delay_ns: int = 0
    overhead_bytes: int = 0
    """Added to every frame's time on the wire: ETHERNET_OVERHEAD_BYTES for Ethernet's."""
    limit_bytes: int = 0
    """What may wait in all classes together; 0 is no limit."""
    dscp_classes: tuple[int, ...] = (0,) * DSCPS
    """Class of each DSCP."""
    default_class: int = 0
    """Class of what is not IP (ARP, LLDP)."""
    seed: int | None = None
    """Of the marking generator; None leaves it as it is (1 in a new port)."""
    buffer_id: int = 0
    """Number of the shared buffer in this namespace; 0 shares nothing."""
    buffer_bytes: int = 0
    """Size of that buffer: the same for all its ports."""
    pause_quanta: int = MAX_PAUSE_QUANTA
    """Duration in our pause frames, in units of 512 bit times; refreshed after half of it."""
    classes: tuple[ClassConfig, ...] = (ClassConfig(),) * CLASSES

    def __post_init__(self) -> None:
        """Refuses what the kernel would refuse.  Raises UserError."""
        if not 0 < self.rate_bps < 2**63:
            raise UserError(f"port: rate of {self.rate_bps} bit/s must be above 0")
        if not 0 <= self.delay_ns <= _MAX_TIME_NS:
            raise UserError(f"port: delay of {self.delay_ns} ns is not in 0..1,000 s")
        if not 0 <= self.overhead_bytes < 2**16:
            raise UserError(f"port: overhead of {self.overhead_bytes} B is not in 0..65535")
        if len(self.dscp_classes) != DSCPS or not all(0 <= index < CLASSES for index in self.dscp_classes):
            raise UserError("port: the DSCP map needs 64 classes of 0..7")
        if len(self.classes) != CLASSES or not 0 <= self.default_class < CLASSES:
            raise UserError("port: there are eight classes, 0..7")
        if not _MIN_PAUSE_QUANTA <= self.pause_quanta <= MAX_PAUSE_QUANTA:
            raise UserError(
                f"port: pause of {self.pause_quanta} quanta is not in {_MIN_PAUSE_QUANTA}..{MAX_PAUSE_QUANTA}"
            )
        promised = sum(each.reserve_bytes + (each.headroom_bytes if each.pfc else 0) for each in self.classes)
        if self.buffer_id and promised > self.buffer_bytes:
            raise UserError(
                f"port: its reserves and headrooms of {promised} B do not fit into a buffer of {self.buffer_bytes} B"
            )
