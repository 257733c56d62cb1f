"""Equal bytes in few large or many small transfers: which takes longer, which congests more, and why?

    few     [=================]a[=================]a            a: the answer, a round trip before the next may begin
    many    [=]a[=]a[=]a[=]a[=]a[=]a[=]a[=]a[=]a ...

    time = transfers x latency + bytes / rate + round trips in which a small window leaves the link idle

Three ways of having transfers: a fresh connection for each (handshake, initial window), one connection back to back,
and one that pauses for longer than TCP's timeout before each, whose window TCP then takes back
(tcp_slow_start_after_idle, RFC 2861).  The window is read off the socket at the start and end of every transfer.  One
sender alone is held against the sum above; all senders at once show queue, marks and drops at the receiver's port.

    ./run experiments/frequency.py
    ./run experiments/frequency.py --set counts=4,40,400 --set host.cc=dctcp --set host.ecn=on

Expected: from one sender ten times as many transfers take longer in every mode, by what latency and slow start cost.
Four at once (seed 1): where each transfer starts with a small window, the few large ones overflow the port (702 and 253
drops) and the many small hardly do (0 and 11); back to back the window stays, and which drops more is chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Delay, Integers, Size, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.repeated import MODES, Repeated, Transfer, program
from topologies.errors import UnknownName, UserError

SEGMENT_BYTES = 52 + 14 + 24
"""Of a segment on the wire beside its payload: IP, TCP with timestamps, Ethernet, and preamble, FCS and gap."""
BAND = 0.15
"""Of the sum against the measurement: windows are replayed round by round, TCP grows them ACK by ACK."""
TRAIN_BYTES = 128 << 10
"""Chosen because it fits: a byte's round trip is too short for a train's, a large transfer's has its own queue in it.

Found on 100 Gb/s with 8 MB; hold it against another rate before you rely on it.
A few windows: their round trip has the wait for interrupts and for the train's own segments in it, and no queue."""
LONGER = 1.05
"""Measurably: what ten times as many transfers take at least."""


class Settings(BaseSettings):
    """The sweep."""

    size: Size = Field(default=written("8M"), ge=1 << 16, description="bytes of each sender, however they are cut up")
    counts: Integers = Field(default=written("4,40"), description="transfers into which they are cut")
    modes: Words = Field(default=written("fresh,persistent,idle"), description=f"of {', '.join(MODES)}")
    gap: Delay = Field(default=written("20ms"), gt=0, description="pause before each transfer of the mode idle")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the transfers of one sender must take, in nanoseconds."""

    latency_ns: float
    bytes_ns: float
    slow_start_ns: float
    rounds: int
    """Round trips in which the window was too small for the link."""

    @property
    def total_ns(self) -> float:
        """Their sum."""
        return self.latency_ns + self.bytes_ns + self.slow_start_ns


def parts(transfers: Sequence[Transfer], *, size_bytes: int, rate_bps: float, each_ns: float, round_ns: float) -> Parts:
    """`each_ns` is what a transfer of one byte takes, `round_ns` a train's round trip; windows as the socket said."""
    mss_bytes = transfers[0].mss_bytes
    segments = -(-size_bytes // mss_bytes)
    segment_ns = (mss_bytes + SEGMENT_BYTES) * 8e9 / rate_bps
    stalls = [idle_rounds_ns(segments, each.cwnd_start, segment_ns=segment_ns, round_ns=round_ns) for each in transfers]
    return Parts(
        latency_ns=len(transfers) * each_ns,
        bytes_ns=len(transfers) * (size_bytes + segments * SEGMENT_BYTES) * 8e9 / rate_bps,
        slow_start_ns=sum(sum(each) for each in stalls),
        rounds=sum(len(each) for each in stalls),
    )


def idle_rounds_ns(segments: int, window: int, *, segment_ns: float, round_ns: float) -> list[float]:
    """How long the link is idle in each round of slow start, whose window doubles, until it fills the round trip.

    The last window needs no permission to send more: it causes no wait.
    """
    found = []
    left = segments - window
    while left > 0 and window * segment_ns < round_ns + segment_ns:
        found.append(round_ns + segment_ns - window * segment_ns)
        window *= 2
        left -= window
    return found


def run(lab: Lab, settings: Settings) -> None:
    """Alone and all at once, per mode and number of transfers."""
    _check(settings)
    ranks = len(lab.topology.hosts)
    if ranks < 2:
        raise UserError(f"--topology: {ranks} host; a sender and a receiver are needed")
    table: list[dict[str, Any]] = []
    for mode in settings.modes:
        tiny_ns, round_ns = _tiny_ns(lab, settings, mode), _round_ns(lab, settings, mode)
        for senders in sorted({1, ranks - 1}):
            for count in settings.counts:
                table.append(_measure(lab, settings, mode, count, senders, each_ns=tiny_ns, round_ns=round_ns))
    lab.add("frequency", table)
    for mode in settings.modes:
        _claim(lab, mode, [row for row in table if row["mode"] == mode and row["senders"] == 1])


def _check(settings: Settings) -> None:
    for mode in settings.modes:
        if mode not in MODES:
            raise UnknownName("mode", mode, dict.fromkeys(MODES))
    for count in settings.counts:
        if count < 1 or settings.size % count:
            raise UserError(f"--set counts={count}: does not cut size={settings.size} bytes into equal transfers")
    if list(settings.counts) != sorted(set(settings.counts)):
        raise UserError("--set counts: write different numbers, the least first")


def _job(lab: Lab, plan: Repeated, senders: int) -> list[list[Transfer]]:
    found = cast("list[list[Transfer]]", lab.job(program, plan, senders))
    return [each for each in found if each]


def _tiny_ns(lab: Lab, settings: Settings, mode: str) -> float:
    """What a transfer takes however small it is."""
    plan = Repeated(mode=mode, transfers=5, size_bytes=1, gap_ns=settings.gap)
    (transfers,) = _job(lab, plan, 1)
    # The first may meet caches that are still empty (ARP, routes).
    return min(each.end_ns - each.start_ns for each in transfers)


def _round_ns(lab: Lab, settings: Settings, mode: str) -> float:
    """TCP's own round-trip time in transfers too short for a queue of their own to build up."""
    plan = Repeated(mode=mode, transfers=10, size_bytes=TRAIN_BYTES, gap_ns=settings.gap)
    (transfers,) = _job(lab, plan, 1)
    return 1e3 * sum(each.rtt_us for each in transfers) / len(transfers)


def _measure(
    lab: Lab, settings: Settings, mode: str, count: int, senders: int, *, each_ns: float, round_ns: float
) -> dict[str, Any]:
    size_bytes = settings.size // count
    before = lab.sample()
    found = _job(lab, Repeated(mode=mode, transfers=count, size_bytes=size_bytes, gap_ns=settings.gap), senders)
    after = lab.sample()
    times_ns = [sum(each.end_ns - each.start_ns for each in transfers) for transfers in found]
    lab.add_busy_ns(max(times_ns))
    transfers = [each for of_sender in found for each in of_sender]
    rate_bps = min(link.rate_bps for link in lab.topology.links)
    wanted = parts(found[0], size_bytes=size_bytes, rate_bps=rate_bps, each_ns=each_ns, round_ns=round_ns)
    row = {
        "mode": mode,
        "senders": senders,
        "transfers": count,
        "bytes_each": size_bytes,
        "time_us": round(max(times_ns) / 1e3, 3),
        "idle_restarts": sum(each.cwnd_start < each.cwnd_before for each in transfers),
        "cwnd_start": round(sum(each.cwnd_start for each in transfers) / len(transfers), 1),
        "cwnd_end": round(sum(each.cwnd_end for each in transfers) / len(transfers), 1),
        "rtt_us": round(sum(each.rtt_us for each in transfers) / len(transfers), 1),
        "retransmitted": sum(each.retransmitted for each in transfers),
        **_congestion(before, after),
    }
    if senders == 1:
        row |= {
            "latency_us": round(wanted.latency_ns / 1e3, 3),
            "bytes_us": round(wanted.bytes_ns / 1e3, 3),
            "slow_start_us": round(wanted.slow_start_ns / 1e3, 3),
            "slow_start_rounds": wanted.rounds,
            "sum_us": round(wanted.total_ns / 1e3, 3),
        }
    return row


def _congestion(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Of all ports together."""
    return {
        name: sum(getattr(after[end].port, counter) - getattr(before[end].port, counter) for end in after)
        for name, counter in (("marked", "marked_packets"), ("dropped", "dropped_packets"))
    }


def _claim(lab: Lab, mode: str, rows: Sequence[dict[str, Any]]) -> None:
    for few, many in pairwise(rows):
        ratio = many["time_us"] / few["time_us"]
        lab.add_claim(
            f"{mode}: equal bytes in {many['transfers']} transfers take longer than in {few['transfers']}",
            expected=f"at least {LONGER} times as long",
            measured=f"{ratio:.3f}",
            holds=ratio >= LONGER,
        )
    for row in rows:
        lab.add_claim(
            f"{mode}, {row['transfers']} transfers: latency, bytes and slow start explain the time",
            expected=f"{row['sum_us']} us +- {BAND:.0%}",
            measured=f"{row['time_us']} us",
            holds=abs(row["time_us"] / row["sum_us"] - 1) <= BAND,
        )
    restarts = sum(row["idle_restarts"] for row in rows)
    lab.add_claim(
        f"{mode}: windows taken back after a pause",
        expected="some" if mode == "idle" else "none",
        measured=str(restarts),
        holds=(restarts > 0) == (mode == "idle"),
    )


EXPERIMENT = Experiment(
    name="frequency",
    question="Equal bytes in few large or many small transfers: which takes longer, which congests more, and why?",
    settings=Settings,
    run=run,
    topology="star:hosts=5,rate=10G,delay=25us,mtu=1500",
    host={"slow_start_after_idle": "on", "rto_min": "5ms"},
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
