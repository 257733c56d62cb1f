"""The model's shared buffer: who is charged for a packet, when an ingress must stop, when it may go on.

Pure accounts, as the switch of the HPCC simulator keeps them (switch-mmu.cc; `qdisc/README.md` lists the differences).
"""

from dataclasses import dataclass, field

from testbed.port.config import CLASSES, ClassConfig, PortConfig

SHARED, HEADROOM = "shared", "headroom"
"""Why a packet may not come in."""


@dataclass(eq=False)
class Ingress:
    """What waits in the buffer and came in through one port."""

    config: PortConfig | None = None
    """Of that port; None for what came in through no port of the buffer."""
    used: list[int] = field(default_factory=lambda: [0] * CLASSES)
    """Bytes of reserve and pool."""
    headroom: list[int] = field(default_factory=lambda: [0] * CLASSES)
    headroom_peak: list[int] = field(default_factory=lambda: [0] * CLASSES)
    stopped: set[int] = field(default_factory=set)
    """Classes that the far end has been told not to send."""

    def settings(self, index: int) -> ClassConfig:
        """Thresholds of one class."""
        return ClassConfig() if self.config is None else self.config.classes[index]

    def over_reserve(self, index: int) -> int:
        """What a class uses of the pool."""
        return max(0, self.used[index] - self.settings(index).reserve_bytes)


@dataclass
class SharedBuffer:
    """The accounts of one switch."""

    total_bytes: int
    ingresses: list[Ingress] = field(default_factory=list)
    local: Ingress = field(default_factory=Ingress)
    used_bytes: int = 0
    """Of the pool."""
    peak_bytes: int = 0

    @property
    def pool_bytes(self) -> int:
        """The buffer less what is promised."""
        promised = 0
        for ingress in self.ingresses:
            for index in range(CLASSES):
                settings = ingress.settings(index)
                promised += settings.reserve_bytes + (settings.headroom_bytes if settings.pfc else 0)
        return self.total_bytes - promised

    @property
    def free_bytes(self) -> int:
        """Of the pool."""
        return max(0, self.pool_bytes - self.used_bytes)

    def threshold_bytes(self, ingress: Ingress, index: int) -> int:
        """What an ingress may use of the pool now."""
        settings = ingress.settings(index)
        if settings.alpha:
            return int(settings.alpha * self.free_bytes)
        return settings.xoff_bytes or self.free_bytes

    def charge(self, ingress: Ingress, index: int, size: int) -> str | None:
        """Charges a packet to its ingress, or says why it may not come in."""
        settings = ingress.settings(index)
        over = ingress.used[index] + size - settings.reserve_bytes
        part = min(size, max(0, over))
        if over > 0 and (over > self.threshold_bytes(ingress, index) or part > self.free_bytes):
            if not settings.pfc:
                return SHARED
            if ingress.headroom[index] + size > settings.headroom_bytes:
                return HEADROOM
            ingress.headroom[index] += size
            return None
        ingress.used[index] += size
        self.used_bytes += part
        return None

    def release(self, ingress: Ingress, index: int, size: int) -> None:
        """A packet leaves the buffer: headroom first, then the pool, then the reserve."""
        from_headroom = min(size, ingress.headroom[index])
        before = ingress.over_reserve(index)
        ingress.headroom[index] -= from_headroom
        ingress.used[index] -= size - from_headroom
        self.used_bytes -= before - ingress.over_reserve(index)

    def change(self, ingress: Ingress, config: PortConfig) -> None:
        """Other thresholds for one ingress, another size for all: a new reserve moves bytes into or out of the pool."""
        before = sum(ingress.over_reserve(index) for index in range(CLASSES))
        ingress.config, self.total_bytes = config, config.buffer_bytes
        self.used_bytes += sum(ingress.over_reserve(index) for index in range(CLASSES)) - before

    def must_stop(self, ingress: Ingress, index: int) -> bool:
        """XOFF: any headroom in use, or the threshold reached."""
        if not ingress.settings(index).pfc or index in ingress.stopped:
            return False
        return bool(ingress.headroom[index]) or ingress.over_reserve(index) >= self.threshold_bytes(ingress, index)

    def may_go_on(self, ingress: Ingress, index: int) -> bool:
        """XON: no headroom in use, and nothing shared or far enough below the threshold."""
        if index not in ingress.stopped or ingress.headroom[index]:
            return False
        used, offset = ingress.over_reserve(index), ingress.settings(index).xon_offset_bytes
        return not used or used + offset <= self.threshold_bytes(ingress, index)

    def note_peaks(self, ingress: Ingress, index: int) -> None:
        """After an arrival."""
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        ingress.headroom_peak[index] = max(ingress.headroom_peak[index], ingress.headroom[index])
