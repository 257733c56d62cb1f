"""Equal bytes in few large or many small transfers: which takes longer, which congests more, and why?

    few     [=================]a[=================]a            a: the answer, a round trip before the next may begin
    many    [=]a[=]a[=]a[=]a[=]a[=]a[=]a[=]a[=]a ...

    time = transfers x latency + bytes / rate + round trips in which a small window leaves the link idle

Three ways of having transfers: a fresh connection for each (handshake, initial window), one connection back to back,
and one that pauses for longer than TCP's timeout before each, whose window TCP then takes back
(tcp_slow_start_after_idle, RFC 2861).  The window is read off the socket at the start and end of every transfer.  One
sender alone is held against the sum above, in which nothing is fitted: latency is what one byte takes, measured; a
round trip is that and the segments that switches take in on the way; windows are the socket's.  All senders at once
show queue, marks and drops at the receiver's port.  `gloo` and `gloo_idle` do the same with all-reduces of all hosts.

    ./run experiments/frequency.py
    ./run experiments/frequency.py --topology star:hosts=2,rate=25G,delay=10us,mtu=1500 --set counts=4,40,400
    ./run experiments/frequency.py --set counts=4,40,400 --set host.cc=dctcp --set host.ecn=on

Expected: ten times as many transfers take longer in every mode, by what latency and slow start cost; all-reduces too.
NICs do not moderate interrupts here: waits for their flushes would hide behind, and add to, everything that is summed.
Where the receiver's first window of 64 KiB cut the first flight short (`cut_by_receiver`: fresh connections with jumbo
frames), the sum lacks that and is not claimed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Any, cast

from pydantic import Field

from experiments.buckets import SEGMENT_BYTES as GLOO_SEGMENT_BYTES
from experiments.buckets import TINY_BYTES, Ring
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Delay, Integers, Size, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads import repeated_collectives as collective
from experiments.workloads.repeated import COUNTED, MODES, Repeated, Sent, Transfer, program
from experiments.workloads.repeated_collectives import MODES as COLLECTIVE_MODES
from topologies.errors import UnknownName, UserError
from topologies.graph import distance, leaf_of
from topologies.model import Topology

SEGMENT_BYTES = 52 + 14 + 24
"""Of a segment on the wire beside its payload: IP, TCP with timestamps, Ethernet, and preamble, FCS and gap."""
BAND = 0.05
"""Of the sum against the measurement: 2% was found at 10 and 25 Gb/s; windows are replayed round by round, while TCP
grows them ACK by ACK."""
RING_BAND = 0.15
"""Of a gloo all-reduce against its latency and bytes, as in buckets.py."""
HEADERS_BYTES = 52
"""IP and TCP with timestamps, within the MTU."""
LONGER = 1.05
"""Measurably: what ten times as many transfers take at least."""
ALL_MODES = (*MODES, *COLLECTIVE_MODES)


class Settings(BaseSettings):
    """The sweep."""

    size: Size = Field(default=written("8M"), ge=1 << 16, description="bytes of each sender, however they are cut up")
    counts: Integers = Field(default=written("4,40"), description="transfers, or all-reduces, into which they are cut")
    modes: Words = Field(default=written(",".join(ALL_MODES)), description=f"of {', '.join(ALL_MODES)}")
    gap: Delay = Field(
        default=written("20ms"), gt=0, description="pause before each transfer of the modes idle and gloo_idle"
    )


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


@dataclass(frozen=True, kw_only=True)
class Path:
    """From a sender to the receiver, and what was measured on it."""

    rate_bps: float
    switches: int
    byte_ns: float
    """What one byte and its answer take on a connection that stands: a round trip without anything to serialise."""


def parts(transfers: Sequence[Transfer], path: Path, *, size_bytes: int, each_ns: float) -> Parts:
    """`each_ns` is what a transfer of one byte takes in this mode; windows as the socket said."""
    mss_bytes = transfers[0].mss_bytes
    segments = -(-size_bytes // mss_bytes)
    segment_ns = (mss_bytes + SEGMENT_BYTES) * 8e9 / path.rate_bps
    # the last segment is taken in by every switch before it goes on; the first one of a window, too, and by its NIC
    last_ns = path.switches * min(segment_ns, (size_bytes + SEGMENT_BYTES) * 8e9 / path.rate_bps)
    round_ns = path.byte_ns + (1 + path.switches) * segment_ns
    stalls = [
        idle_rounds_ns(segments, each.cwnd_start, each.cwnd_end, segment_ns=segment_ns, round_ns=round_ns)
        for each in transfers
    ]
    return Parts(
        latency_ns=len(transfers) * (each_ns + last_ns),
        bytes_ns=len(transfers) * (size_bytes + segments * SEGMENT_BYTES) * 8e9 / path.rate_bps,
        slow_start_ns=sum(sum(each) for each in stalls),
        rounds=sum(len(each) for each in stalls),
    )


def idle_rounds_ns(segments: int, window: int, most: int, *, segment_ns: float, round_ns: float) -> list[float]:
    """How long the link is idle in each round of slow start, whose window doubles, until it fills the round trip.

    `most` is what the window had grown to at the end: slow start may end earlier (HyStart).  The last window needs no
    permission to send more: it causes no wait.
    """
    found = []
    left = segments - window
    while left > 0 and window * segment_ns < round_ns:
        found.append(round_ns - window * segment_ns)
        window = min(2 * window, max(most, window))
        left -= window
    return found


def run(lab: Lab, settings: Settings) -> None:
    """Per mode and number of transfers: alone and all at once, or all hosts together."""
    _check(settings)
    ranks = len(lab.topology.hosts)
    if ranks < 2:
        raise UserError(f"--topology: {ranks} host; a sender and a receiver are needed")
    sockets = [mode for mode in settings.modes if mode in MODES]
    collectives = [mode for mode in settings.modes if mode in COLLECTIVE_MODES]
    byte_ns = _one_byte_ns(lab, settings, "persistent")
    if sockets:
        _sockets(lab, settings, sockets, ranks, byte_ns)
    if collectives:
        _collectives(lab, settings, collectives, byte_ns)


def _sockets(lab: Lab, settings: Settings, modes: Sequence[str], ranks: int, byte_ns: float) -> None:
    path = Path(
        rate_bps=min(link.rate_bps for link in lab.topology.links), switches=_switches(lab.topology), byte_ns=byte_ns
    )
    table: list[dict[str, Any]] = []
    for mode in modes:
        each_ns = _one_byte_ns(lab, settings, mode)
        for senders in sorted({1, ranks - 1}):
            table += [_measure(lab, settings, mode, count, senders, path, each_ns) for count in settings.counts]
    lab.add("frequency", table)
    for mode in modes:
        _claim(lab, mode, [row for row in table if row["mode"] == mode and row["senders"] == 1])


def _switches(topology: Topology) -> int:
    """Between the receiver, the first host, and the first sender, the second."""
    receiver, sender = (
        leaf_of(topology, topology.interfaces_of[host.name][0].name).name for host in topology.hosts[:2]
    )
    return distance(topology, sender, receiver) + 1


def _check(settings: Settings) -> None:
    for mode in settings.modes:
        if mode not in ALL_MODES:
            raise UnknownName("mode", mode, dict.fromkeys(ALL_MODES))
    for count in settings.counts:
        if count < 1 or settings.size % count:
            raise UserError(f"--set counts={count}: does not cut size={settings.size} bytes into equal transfers")
    if list(settings.counts) != sorted(set(settings.counts)):
        raise UserError("--set counts: write different numbers, the least first")


def _job(lab: Lab, plan: Repeated, senders: int) -> list[Sent]:
    found = cast("list[Sent | None]", lab.job(program, plan, senders, process_group=False))
    return [each for each in found if each is not None]


def _one_byte_ns(lab: Lab, settings: Settings, mode: str) -> float:
    """What a transfer takes however small it is."""
    plan = Repeated(mode=mode, transfers=5, size_bytes=1, gap_ns=settings.gap)
    (sent,) = _job(lab, plan, 1)
    # The first may meet caches that are still empty (ARP, routes).
    return min(each.end_ns - each.start_ns for each in sent.transfers)


def _measure(
    lab: Lab, settings: Settings, mode: str, count: int, senders: int, path: Path, each_ns: float
) -> dict[str, Any]:
    size_bytes = settings.size // count
    before = lab.sample()
    found = _job(lab, Repeated(mode=mode, transfers=count, size_bytes=size_bytes, gap_ns=settings.gap), senders)
    after = lab.sample()
    times_ns = [sum(each.end_ns - each.start_ns for each in sent.transfers) for sent in found]
    lab.add_busy_ns(max(times_ns))
    transfers = [each for sent in found for each in sent.transfers]
    wanted = parts(found[0].transfers, path, size_bytes=size_bytes, each_ns=each_ns)
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
        "cut_by_receiver": sum(each.is_cut for each in transfers),
        "retransmitted": sum(each.retransmitted for each in transfers),
        **_counted([sent.counted for sent in found]),
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


def _counted(counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Of all senders."""
    return {name: sum(each[name] for each in counted) for name in COUNTED}


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
        if row["cut_by_receiver"]:
            continue
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


def _collectives(lab: Lab, settings: Settings, modes: Sequence[str], byte_ns: float) -> None:
    """All-reduces of all hosts; a look at the sockets every quarter of a round trip."""
    smallest = collective.Plan(count=8, size_bytes=TINY_BYTES, gap_ns=0, look_ns=1)
    smallest_ns, _ = _all_reduces(lab, smallest)
    ring = Ring.of(lab.topology, smallest_ns=smallest_ns / smallest.count)
    table = [_reduce(lab, settings, mode, count, ring, byte_ns) for mode in modes for count in settings.counts]
    lab.add("collectives", table)
    for mode in modes:
        _claim_collectives(lab, mode, [row for row in table if row["mode"] == mode])
    _claim_idle(lab, table)


def _reduce(lab: Lab, settings: Settings, mode: str, count: int, ring: Ring, byte_ns: float) -> dict[str, Any]:
    size_bytes = settings.size // count
    gap_ns = settings.gap if mode == "gloo_idle" else 0
    plan = collective.Plan(count=count, size_bytes=size_bytes, gap_ns=gap_ns, look_ns=round(byte_ns / 4))
    time_ns, found = _all_reduces(lab, plan)
    reduced = [each for exchanged in found for each in exchanged.reduced]
    mss_bytes = lab.topology.mtu - HEADERS_BYTES
    bytes_ns = ring.steps / ring.ranks * size_bytes * (1 + SEGMENT_BYTES / mss_bytes) * ring.byte_ns
    segment_ns = (mss_bytes + SEGMENT_BYTES) * ring.byte_ns
    # what a rank has to send in its first step: two of gloo's segments
    segments = 2 * -(-min(size_bytes // (2 * ring.ranks), GLOO_SEGMENT_BYTES) // mss_bytes)
    round_ns = byte_ns + (1 + ring.switches) * segment_ns
    stalls = [
        sum(idle_rounds_ns(segments, each.cwnd_least, each.cwnd_end, segment_ns=segment_ns, round_ns=round_ns))
        for each in reduced
        if each.cwnd_least < each.cwnd_before
    ]
    parts_us = {
        "latency_us": count * ring.latency_ns(size_bytes) / 1e3,
        "bytes_us": count * bytes_ns / 1e3,
        "slow_start_us": sum(stalls) / ring.ranks / 1e3,
    }
    return {
        "mode": mode,
        "all_reduces": count,
        "bytes_each": size_bytes,
        "time_us": round(time_ns / 1e3, 3),
        "idle_restarts": len(stalls),
        "cwnd_least": round(mean(each.cwnd_least for each in reduced), 1),
        "cwnd_end": round(mean(each.cwnd_end for each in reduced), 1),
        "retransmitted": sum(each.retransmitted for each in found),
        **_counted([each.counted for each in found]),
        **{name: round(value, 3) for name, value in parts_us.items()},
        "sum_us": round(sum(parts_us.values()), 3),
    }


def _all_reduces(lab: Lab, plan: collective.Plan) -> tuple[float, list[collective.Exchanged]]:
    """Time of all, pauses left out; what ranks brought back."""
    found = cast("list[collective.Exchanged]", lab.job(collective.program, plan))
    times = [
        max(each.end_ns for each in across) - min(each.start_ns for each in across)
        for across in zip(*(exchanged.reduced for exchanged in found), strict=True)
    ]
    first = min(each.reduced[0].start_ns for each in found)
    whole = max(each.reduced[-1].end_ns for each in found) - first
    time_ns = float(sum(times) if plan.gap_ns else whole)
    lab.add_busy_ns(round(time_ns * (plan.count + 1) / plan.count))
    return time_ns, found


def _claim_collectives(lab: Lab, mode: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for few, many in pairwise(rows):
        ratio = many["time_us"] / few["time_us"]
        lab.add_claim(
            f"{mode}: equal bytes in {many['all_reduces']} all-reduces take longer than in {few['all_reduces']}",
            expected=f"at least {LONGER} times as long",
            measured=f"{ratio:.3f}",
            holds=ratio >= LONGER,
        )
    restarts = sum(row["idle_restarts"] for row in rows)
    lab.add_claim(
        f"{mode}: windows taken back after a pause",
        expected="some" if mode == "gloo_idle" else "none",
        measured=str(restarts),
        holds=(restarts > 0) == (mode == "gloo_idle"),
    )
    # After a pause a large all-reduce has two segments in one small window: neither hides what the other waits for.
    for row in rows if mode == "gloo" else rows[-1:]:
        lab.add_claim(
            f"{mode}, {row['all_reduces']} all-reduces: latency, bytes and slow start explain the time",
            expected=f"{row['sum_us']} us +- {RING_BAND:.0%}",
            measured=f"{row['time_us']} us",
            holds=abs(row["time_us"] / row["sum_us"] - 1) <= RING_BAND,
        )


def _claim_idle(lab: Lab, table: Sequence[Mapping[str, Any]]) -> None:
    """Pauses, which are not counted, make an all-reduce longer: its windows have to open again.

    Claimed of the smallest: in large ones the steps that follow make up for what the first one lost.
    """
    back_to_back = {row["all_reduces"]: row["time_us"] for row in table if row["mode"] == "gloo"}
    for row in table[-1:]:
        if row["mode"] == "gloo_idle" and row["all_reduces"] in back_to_back:
            longer_us = row["time_us"] - back_to_back[row["all_reduces"]]
            lab.add_claim(
                f"{row['all_reduces']} all-reduces take longer after pauses, which are not counted, than back to back",
                expected=f"by half of slow start's {row['slow_start_us']:.0f} us or more",
                measured=f"{longer_us:.0f} us",
                holds=longer_us >= row["slow_start_us"] / 2 > 0,
            )


EXPERIMENT = Experiment(
    name="frequency",
    question="Equal bytes in few large or many small transfers: which takes longer, which congests more, and why?",
    settings=Settings,
    run=run,
    topology="star:hosts=5,rate=10G,delay=25us,mtu=1500",
    host={"slow_start_after_idle": "on", "rto_min": "5ms", "moderation": "off"},
)

if __name__ == "__main__":
    main(EXPERIMENT)
