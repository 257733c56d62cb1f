"""Incast: N hosts answer one at the same instant.  When does the switch's last port overflow, and what does it cost?

    h2 ---\\
    h3 ----\\         N x size arrive at one port at N times its rate;
    h4 -----[leaf]---> h1      its buffer fills, then it drops; TCP repairs,
    ...    /                   and where it must wait for a timeout, it stalls
    hN+1 -/

The pattern of a parameter server's push, of gather, of a storage read, of the last phase of a reduce.  Every repetition
opens fresh connections (not timed), so every block begins with the initial window: N x 10 packets at once.

    ./run experiments/incast.py --topology star:hosts=33,buffer=100k --set sizes=32k,256k --set host.rto_min=1ms

Expected: no drop while N x size fits the port's buffer; with larger blocks drops grow with N; goodput falls where
`timeouts` says so, by rto_min each, and not where fast retransmission repairs the loss.
"""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Sizes, written
from experiments.workloads.blocks import program
from experiments.workloads.messages import WireBytes
from experiments.workloads.samples import Iteration, Sample, Step, audit, iterations, row
from testbed.counters import Counters
from topologies.errors import UserError
from topologies.model import Link, Topology

FAST = 0.7
"""Of the receiver's link: what large blocks without timeouts must reach, slow start included."""
LARGE_BYTES = 1_000_000
"""Over all senders: below it the round trips of slow start, not the link, decide."""


class Settings(BaseSettings):
    """How many senders, how much from each."""

    fan_in: str = Field(
        default="auto", description="numbers of senders, comma separated; auto: powers of two and all others"
    )
    sizes: Sizes = Field(default=written("32k,256k,1M"), description="bytes that each sender sends")
    repetitions: int = Field(default=3, ge=1, description="measured repetitions of each, on fresh connections")
    warmup: int = Field(default=0, ge=0, description="repetitions before them")


def run(lab: Lab, settings: Settings) -> None:
    """One job per number of senders; the first host receives."""
    receiver, *others = (host.name for host in lab.topology.hosts)
    last_link = _last_link(lab.topology, receiver)
    table, audits = [], []
    for senders in fan_ins(settings.fan_in, len(others)):
        for size_bytes in settings.sizes:
            hosts = [receiver, *others[:senders]]
            before = lab.sample()
            found = lab.job(
                program, (size_bytes,), settings.repetitions, settings.warmup, hosts=hosts, process_group=False
            )
            dropped = _drops(lab.sample(), before)
            step = Step(op="incast", size_bytes=size_bytes * senders)
            measured = list(iterations([step], cast("list[list[list[Sample]]]", found)))
            for iteration in measured:
                lab.add_busy_ns(iteration.time_ns)
            kept = [iteration for iteration in measured if iteration.number >= 0]
            lab.add_rows(row(iteration, factor=1.0) for iteration in kept)
            audits += [audit(iteration, _wire(senders, size_bytes)) for iteration in kept]
            table.append(_line(senders, size_bytes, kept, dropped, last_link))
    lab.add("incast", table)
    lab.add("audit", audits)
    _claim(lab, table, last_link)


def fan_ins(text: str, most: int) -> list[int]:
    """The numbers of senders to try.  Raises UserError."""
    if text == "auto":
        return sorted({2**power for power in range(most.bit_length())} | {most})
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--set fan_in={text}: write whole numbers separated by commas, or auto") from None
    for number in numbers:
        if not 1 <= number <= most:
            raise UserError(
                f"--set fan_in={number}: this topology has {most} hosts beside the receiver; write 1 to that"
            )
    return numbers


def _last_link(topology: Topology, host: str) -> Link:
    nic = topology.interfaces_of[host][0]
    return next(link for link in topology.links if nic in (link.a, link.b))


def _drops(after: Mapping[str, Counters], before: Mapping[str, Counters]) -> int:
    return sum(after[name].port.dropped_packets - before[name].port.dropped_packets for name in after)


def _wire(senders: int, size_bytes: int) -> list[WireBytes]:
    return [WireBytes(rx=senders * size_bytes), *[WireBytes(tx=size_bytes)] * senders]


def _line(senders: int, size_bytes: int, kept: Sequence[Iteration], dropped: int, last_link: Link) -> dict[str, Any]:
    times_us = [iteration.time_ns / 1e3 for iteration in kept]
    counters = [one.counters for iteration in kept for one in iteration.samples]
    goodput = senders * size_bytes * 8e6 / mean(times_us) / last_link.rate_bps
    return {
        "senders": senders,
        "each_bytes": size_bytes,
        "mean_us": round(mean(times_us), 3),
        "worst_us": round(max(times_us), 3),
        "goodput_share": round(goodput, 4),
        "dropped": dropped,
        "retransmissions": sum(it.retransmitted_segments for it in counters),
        "timeouts": sum(it.timeouts for it in counters),
        "loss_probes": sum(it.loss_probes for it in counters),
    }


def _claim(lab: Lab, table: Sequence[dict[str, Any]], last_link: Link) -> None:
    fits = [line for line in table if line["senders"] * line["each_bytes"] <= last_link.buffer_bytes * FIT]
    if fits:
        lab.add_claim(
            f"nothing is dropped while all blocks together fit the last port's buffer of {last_link.buffer_bytes} B",
            expected="0 drops",
            measured=str(sum(line["dropped"] for line in fits)),
            holds=all(line["dropped"] == 0 for line in fits),
        )
    lab.add_claim(
        "every packet dropped was sent again",
        expected="at least as many retransmissions as drops, for each number of senders and size",
        measured=f"{sum(line['retransmissions'] for line in table)} for {sum(line['dropped'] for line in table)}",
        holds=all(line["retransmissions"] >= line["dropped"] for line in table),
    )
    smooth = [
        line
        for line in table
        if line["timeouts"] == 0 and line["senders"] > 1 and line["senders"] * line["each_bytes"] >= LARGE_BYTES
    ]
    if smooth:
        slowest = min(smooth, key=lambda line: line["goodput_share"])
        lab.add_claim(
            f"without timeouts, {LARGE_BYTES} B or more from several senders fill the receiver's link, drops or not",
            expected=f"goodput at least {FAST} of the line rate",
            measured=f"{slowest['goodput_share']:.2f} with {slowest['senders']} senders of {slowest['each_bytes']} B",
            holds=slowest["goodput_share"] >= FAST,
        )


FIT = 0.95
"""Of the buffer: the rest is for the packets' headers."""

EXPERIMENT = Experiment(
    name="incast",
    question="From how many simultaneous senders on does the receiver's port overflow, and what does that cost?",
    settings=Settings,
    run=run,
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
