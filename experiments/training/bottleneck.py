"""Which port the bytes of a step waited for: how long each was sending while they were under way.  Pure.

    ranks    |--compute--|--[waits][ bytes under way      ]--|      `under_way`: all ranks have begun the collective,
    samples  .     .     .     .     .     .     .     .            and one has not ended it yet
                         |<------ window -------->|                 from the sample before to the sample after
    port     sends 41 us of the 50 us under way: 82%

A port that sends nearly all the time while others rest is the bottleneck, be it slow or with more to carry.  Where many
send alike, the collective is as fast as its links; where none is busy for half of the time, it is latency that ranks
wait for.  Samples may be further apart than steps are long: what is compared is the same window on both sides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np
from numpy.typing import NDArray

from experiments.training.accounting import Span, common, length, union

BUSY = 0.5
"""Of the time under way: a port that sends for less holds up nobody."""
LONGER = 1.25
"""Times what ports that carry data usually need, as in diagnosis.py."""
CARRIES = 0.1
"""Of the most that a port sent: less is acknowledgements, and not what others are compared with."""
SLOWER = 0.9
"""Of the usual speed while sending: a port below it is named as slow, another as having more to carry."""

Numbers = NDArray[np.int64]


class Verdict(StrEnum):
    """What the bytes waited for."""

    LINK = "one link"
    EVEN = "all links alike"
    LATENCY = "latency"


@dataclass(frozen=True, kw_only=True)
class PortSeries:
    """Counters of one port at its samples, which all ports share."""

    interface: str
    time_ns: Numbers
    sending_ns: Numbers
    sent_bytes: Numbers
    queue_max_bytes: Numbers


@dataclass(frozen=True, kw_only=True)
class Load:
    """A port in a window."""

    interface: str
    sending: float
    """Share of the time under way."""
    sent_bytes: int
    sending_ns: int
    queue_bytes: int
    """Most that waited at once."""

    @property
    def speed_gbps(self) -> float:
        """While it was sending."""
        return self.sent_bytes * 8 / self.sending_ns if self.sending_ns else 0.0


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What the bytes of a window waited for."""

    verdict: Verdict
    busiest: Load
    usual: float
    """Median share of sending of the other ports that carry data."""
    usual_gbps: float
    longest: Load
    """The port with the longest queue."""
    under_way_ns: int

    @property
    def is_slow(self) -> bool:
        """Whether the busiest port sends more slowly than others do, rather than more."""
        return self.busiest.speed_gbps < SLOWER * self.usual_gbps


def window(time_ns: Numbers, span: Span) -> tuple[int, int] | None:
    """Places of the last sample before and of the first one after; None where samples do not reach so far."""
    first = int(np.searchsorted(time_ns, span[0], side="right")) - 1
    last = int(np.searchsorted(time_ns, span[1], side="left"))
    return (first, last) if first >= 0 and last < len(time_ns) else None


def loads(ports: Sequence[PortSeries], places: tuple[int, int], *, under_way_ns: int) -> list[Load]:
    """Every port between two samples, of which bytes were under way for so long."""
    first, last = places
    return [
        Load(
            interface=port.interface,
            sending=min(1.0, int(port.sending_ns[last] - port.sending_ns[first]) / under_way_ns),
            sent_bytes=int(port.sent_bytes[last] - port.sent_bytes[first]),
            sending_ns=int(port.sending_ns[last] - port.sending_ns[first]),
            queue_bytes=int(port.queue_max_bytes[first + 1 : last + 1].max(initial=0)),
        )
        for port in ports
    ]


def bottleneck(ports: Sequence[PortSeries], span: Span, under_way: Sequence[Span]) -> Bottleneck | None:
    """Of the window around `span`; None where nothing was sampled, under way or sent."""
    places = window(ports[0].time_ns, span) if ports else None
    if places is None:
        return None
    times = ports[0].time_ns
    under_way_ns = length(common([(int(times[places[0]]), int(times[places[1]]))], under_way))
    return judge(loads(ports, places, under_way_ns=under_way_ns), under_way_ns=under_way_ns) if under_way_ns else None


def judge(found: Sequence[Load], *, under_way_ns: int) -> Bottleneck | None:
    """None where nothing was sent."""
    most_bytes = max(load.sent_bytes for load in found)
    if not most_bytes:
        return None
    ranked = sorted(found, key=lambda load: (-load.sending_ns, load.interface))
    busiest, *others = [load for load in ranked if load.sent_bytes >= CARRIES * most_bytes]
    usual = median(load.sending for load in others) if others else busiest.sending
    usual_gbps = median(load.speed_gbps for load in others) if others else busiest.speed_gbps
    if busiest.sending < BUSY:
        verdict = Verdict.LATENCY
    elif others and busiest.sending >= LONGER * usual:
        verdict = Verdict.LINK
    else:
        verdict = Verdict.EVEN
    return Bottleneck(
        verdict=verdict,
        busiest=busiest,
        usual=usual,
        usual_gbps=usual_gbps,
        longest=max(ranked, key=lambda load: load.queue_bytes),
        under_way_ns=under_way_ns,
    )


def of_steps(ports: Sequence[PortSeries], under_way: Mapping[int, Sequence[Span]]) -> Mapping[int, Bottleneck]:
    """Step -> what it waited for; `under_way` has each step's spans, disjoint and in order.

    A window may reach into the steps beside: what is under way there counts on both sides.
    """
    everything = union(span for spans in under_way.values() for span in spans)
    found = {}
    for step, spans in under_way.items():
        judged = bottleneck(ports, (spans[0][0], spans[-1][1]), everything) if spans else None
        if judged is not None:
            found[step] = judged
    return found
