"""Was this machine fast enough for the real clock?  From its processors' idle time, late timers, and rates reached.

    /proc/stat before and after  -> idle share of every processor
    sleeps of a millisecond      -> how much later than asked they ended
    links' counters              -> the rate that the busiest link really reached
    bursts before the run        -> the rate of every cable alone (testbed/calibration.py)

`verdict` is pure; `Watch` reads and sleeps.  Under the virtual clock none of this matters: bounds.py holds its bounds.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from experiments.bounds import ETHERNET_HEADER_BYTES
from testbed.calibration import Calibrated
from topologies.errors import UserError
from topologies.model import Topology
from topologies.units import format_rate

LEAST_IDLE = 0.10
"""Of every processor: with less, packets wait for a processor, and what is measured is this machine."""
LATE_FRAMES = 8
"""A timer may be as late as so many frames take at the links' rate: a port's bursts are then no longer than a NIC's."""
LEAST_TRUE = 0.1
"""Of a cable's rate: how far a burst over it alone may be from what was asked for."""
PERCENTILE = 0.99
SLEEP_S = 0.001
STAT = Path("/proc/stat")


@dataclass(frozen=True, kw_only=True)
class CpuTime:
    """Of one processor since boot, in ticks."""

    idle: int
    """Idle or waiting for a disk."""
    total: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What `Watch` saw while a run lasted."""

    idle: Mapping[str, float]
    """Processor -> share of the time."""
    late_ns: Sequence[int]
    """By how much sleeps were too long."""


def parse_stat(text: str) -> dict[str, CpuTime]:
    """`cpu0 user nice system idle iowait irq softirq steal ...` of /proc/stat (proc(5)); guest time is part of user.

    Raises UserError where no processor has a line.
    """
    found = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:8]]
            found[name] = CpuTime(idle=ticks[3] + ticks[4], total=sum(ticks))
    if not found:
        raise UserError("/proc/stat tells of no processor: the real clock's validity cannot be known here")
    return found


def idle_shares(before: Mapping[str, CpuTime], after: Mapping[str, CpuTime]) -> dict[str, float]:
    """Of the time between two readings; processors that came or went in between are left out."""
    return {
        name: (after[name].idle - begun.idle) / (after[name].total - begun.total)
        for name, begun in before.items()
        if name in after and after[name].total > begun.total
    }


def verdict(observed: Observed, *, rate_bps: int, reached_bps: float, frame_bytes: int) -> list[str]:
    """Why a run's times are not to be trusted, one sentence each, the last with the rate that would be; none if it is.

    `rate_bps` is that of the busiest link, `reached_bps` what it carried while operations ran.
    """
    reasons, possible_bps = [], float(rate_bps)
    if observed.idle:
        name = min(observed.idle, key=lambda each: observed.idle[each])
        idle = observed.idle[name]
        if idle < LEAST_IDLE:
            reasons.append(f"{name} was idle for {idle:.1%} of the time, {LEAST_IDLE:.0%} is the least")
            possible_bps = min(possible_bps, reached_bps * (1 - LEAST_IDLE) / (1 - idle))
    late_ns, frame_bits = percentile(observed.late_ns, PERCENTILE), frame_bytes * 8
    allowed_ns = LATE_FRAMES * frame_bits * 1e9 / rate_bps
    if late_ns > allowed_ns:
        reasons.append(
            f"one timer in a hundred was {late_ns / 1e3:.1f} us late or more, "
            f"{LATE_FRAMES} frames at {format_rate(rate_bps)} take {allowed_ns / 1e3:.1f} us"
        )
        possible_bps = min(possible_bps, LATE_FRAMES * frame_bits * 1e9 / late_ns)
    return [*reasons, _advice(possible_bps)] if reasons else []


def calibration_faults(calibrated: Sequence[Calibrated]) -> list[str]:
    """Cables that do not do their rate even while nothing else runs: the worst in words, and how many more."""
    off = {each.interface: abs(each.measured_bps / each.asked_bps - 1) for each in calibrated}
    wrong = sorted((each for each in calibrated if off[each.interface] > LEAST_TRUE), key=lambda it: -off[it.interface])
    if not wrong:
        return []
    worst, more = wrong[0], f", and {len(wrong) - 1} more like it" if len(wrong) > 1 else ""
    asked, measured = format_rate(worst.asked_bps), format_rate(max(1, round(worst.measured_bps)))
    # The same delay of a burst is a smaller part of a longer one.
    possible_bps = LEAST_TRUE / abs(1 / worst.measured_bps - 1 / worst.asked_bps)
    return [
        f"calibration: {worst.frames} frames alone passed {worst.interface} at {measured}, {asked} was asked for{more}"
        f"; {_advice(possible_bps)}"
    ]


def faults(observed: Observed | None, topology: Topology, sent_bytes: Mapping[str, int], *, busy_ns: int) -> list[str]:
    """The verdict on a run whose interfaces sent so much while operations ran for `busy_ns`; none where unobserved."""
    if observed is None:
        return []
    reached = {name: sent * 8e9 / max(1, busy_ns) for name, sent in sent_bytes.items()}
    busiest = max(reached, key=lambda name: reached[name] / topology.link_of[name].rate_bps)
    return verdict(
        observed,
        rate_bps=topology.link_of[busiest].rate_bps,
        reached_bps=reached[busiest],
        frame_bytes=topology.mtu + ETHERNET_HEADER_BYTES,
    )


def _advice(possible_bps: float) -> str:
    """Two digits, rounded down: it is an estimate, and the next run is judged again."""
    size = 10 ** max(0, math.floor(math.log10(max(possible_bps, 1))) - 1)
    rate = format_rate(max(1, int(possible_bps // size * size)))
    return f"on this machine links of {rate} would do; or use --clock virtual, which needs no speed"


def percentile(values: Sequence[int], share: float) -> int:
    """The least value that is not below this share of them; 0 for none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0


class Watch:
    """Observes this machine from entering to leaving it, in a thread that sleeps nearly all the time."""

    def __init__(self, *, real_clock: bool = True) -> None:
        """Nothing is read before it is entered, and nothing at all where the clock is not the machine's."""
        self._real_clock = real_clock
        self._late_ns: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sleep, daemon=True)
        self._before: Mapping[str, CpuTime] = {}
        self.observed: Observed | None = None
        """Once it has been left."""

    def __enter__(self) -> "Watch":
        if self._real_clock:
            self._before = parse_stat(STAT.read_text())
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._real_clock:
            return
        self._stop.set()
        self._thread.join()
        idle = idle_shares(self._before, parse_stat(STAT.read_text()))
        self.observed = Observed(idle=idle, late_ns=tuple(self._late_ns))

    def _sleep(self) -> None:
        while not self._stop.is_set():
            due_ns = time.monotonic_ns() + round(SLEEP_S * 1e9)
            time.sleep(SLEEP_S)  # how long it really takes is what is measured
            self._late_ns.append(max(0, time.monotonic_ns() - due_ns))
