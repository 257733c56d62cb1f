"""What must be seen in an incast: where packets drop, what timeouts cost, what rto_min decides."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.port_policies.base_rtt import bdp_bytes
from experiments.lab import Lab
from topologies.model import Link

FAST = 0.7
"""Of the receiver's link: what large blocks without drops must reach, slow start included."""
LARGE_BYTES = 1_000_000
"""Over all senders: below it the round trips of slow start, not the link, decide."""

TIMER_GAIN = 1.2
"""facts.md, test 19: from 200 ms to 5 ms."""
TICK_US = 1000
"""The guest's HZ is 1000."""
WORK_US = 20_000
"""Beside timeouts: what sending and fast retransmission may take in the worst case."""
FIRST_RECEIVE_WINDOW_BYTES = 65535
"""What a receiver offers before it has measured anything: tcp_rmem's 131,072, half of it for bookkeeping."""
FIT = 0.95
"""Of the buffer: the rest is for the packets' headers."""


def claim(lab: Lab, table: Sequence[Mapping[str, Any]], last_link: Link) -> None:
    """All of them; `last_link` is the receiver's."""
    _claim_of_drops(lab, table, last_link)
    _claim_of_windows(lab, table, last_link)
    _claim_of_timeouts(lab, table)
    _claim_of_timers(lab, table)


def _claim_of_drops(lab: Lab, table: Sequence[Mapping[str, Any]], last_link: Link) -> None:
    fits = [
        line
        for line in table
        if "buffer_bytes" not in line and line["senders"] * line["each_bytes"] <= last_link.buffer_bytes * FIT
    ]
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
        if line["dropped"] == 0 and line["senders"] > 1 and line["senders"] * line["each_bytes"] >= LARGE_BYTES
    ]
    if smooth:
        slowest = min(smooth, key=lambda line: line["goodput_share"])
        lab.add_claim(
            f"without drops, {LARGE_BYTES} B or more from several senders fill the receiver's link",
            expected=f"goodput at least {FAST} of the line rate",
            measured=f"{slowest['goodput_share']:.2f} with {slowest['senders']} senders of {slowest['each_bytes']} B",
            holds=slowest["goodput_share"] >= FAST,
        )


def first_flight_bytes(each_bytes: int, *, mtu: int, initial_window: int, header_bytes: int) -> int:
    """What one sender may put on the wire before it hears anything: frames, as the queue counts them.

    The initial window, or what the receiver's first window of 64 KiB admits, whichever is less.
    """
    payload = mtu - header_bytes
    segments = min(initial_window, FIRST_RECEIVE_WINDOW_BYTES // payload, -(-each_bytes // payload))
    return min(segments * (mtu + 14), each_bytes + segments * (header_bytes + 14))


def _claim_of_windows(lab: Lab, table: Sequence[Mapping[str, Any]], link: Link) -> None:
    """All first flights at once: what neither the queue nor the wire can hold is dropped."""
    header_bytes = 40 + 12 * (lab.fabric.hosts.timestamps == "on")
    over = [
        line
        for line in table
        if "room_bytes" in line
        # One flight's worth leaves while all of them arrive.
        and (line["senders"] - 1)
        * first_flight_bytes(
            line["each_bytes"],
            mtu=lab.topology.mtu,
            initial_window=lab.fabric.hosts.initial_window,
            header_bytes=header_bytes,
        )
        > line["room_bytes"] + bdp_bytes(lab.topology, link.rate_bps)
    ]
    if over:
        lab.add_claim(
            "where N first flights (initial windows) exceed buffer + BDP, packets are dropped",
            expected=f"drops in each of {len(over)} lines",
            measured=f"in {sum(line['dropped'] > 0 for line in over)}",
            holds=all(line["dropped"] > 0 for line in over),
        )


def _claim_of_timeouts(lab: Lab, table: Sequence[Mapping[str, Any]]) -> None:
    """A sender that waits for its timer lets everybody wait; loss that needs no timer costs less than one."""
    rto_of = {id(line): line.get("rto_min_us", lab.fabric.hosts.rto_min_us) for line in table}
    stalled = [line for line in table if line["timeouts"]]
    if stalled:
        # Each may double the one before (RFC 6298, 5.5).
        least_us = {id(line): rto_of[id(line)] * line["most_timeouts"] for line in stalled}
        most_us = {
            id(line): sum(
                rto_of[id(line)] * 2**number + late_us(rto_of[id(line)] * 2**number)
                for number in range(line["most_timeouts"])
            )
            + WORK_US
            for line in stalled
        }
        worst = max(stalled, key=lambda line: line["worst_us"] / most_us[id(line)])
        lab.add_claim(
            "timeouts explain the stalls: a repetition lasts as long as the most timeouts of one sender",
            expected="between rto_min each, and each doubled by the next, as late as Linux's timers may be",
            measured=f"{worst['worst_us']:.0f} us for {worst['most_timeouts']} of {rto_of[id(worst)]} us, "
            f"with {worst['senders']} senders of {worst['each_bytes']} B",
            holds=all(least_us[id(line)] <= line["worst_us"] <= most_us[id(line)] for line in stalled),
        )
    repaired = [line for line in table if line["dropped"] and not line["timeouts"]]
    if repaired:
        longest = max(repaired, key=lambda line: line["worst_us"] / rto_of[id(line)])
        lab.add_claim(
            "loss that fast retransmission repairs costs less than one timeout",
            expected=f"less than rto_min, {rto_of[id(longest)]} us",
            measured=f"{longest['worst_us']:.0f} us with {longest['senders']} senders of {longest['each_bytes']} B",
            holds=all(line["worst_us"] < rto_of[id(line)] + WORK_US for line in repaired),
        )


def _claim_of_timers(lab: Lab, table: Sequence[Mapping[str, Any]]) -> None:
    """The same loss, another timer: goodput where senders time out goes with rto_min."""
    groups: dict[tuple[object, ...], dict[int, Mapping[str, Any]]] = {}
    for line in table:
        if "rto_min_us" in line:
            key = (line.get("policy"), line.get("buffer_bytes"), line["senders"], line["each_bytes"])
            groups.setdefault(key, {})[line["rto_min_us"]] = line
    pairs = [
        (lines[max(lines)], lines[min(lines)])
        for lines in groups.values()
        if len(lines) > 1 and lines[max(lines)]["timeouts"]
    ]
    if pairs:
        gain = min(slow["mean_us"] / fast["mean_us"] for slow, fast in pairs)
        lab.add_claim(
            "where senders time out, the least retransmission timeout decides",
            expected=f"at least {TIMER_GAIN} times the goodput with the shortest rto_min",
            measured=f"{gain:.2f} times in the worst of {len(pairs)} cases",
            holds=gain >= TIMER_GAIN,
        )


def late_us(timeout_us: int) -> int:
    """How much later than asked a timer of the kernel may fire: its wheel is coarser for longer times.

    Linux, kernel/time/timer.c: 1 tick up to 63 ticks, then 8 up to 511, 64 up to 4,095 and so on; ticks of 1 ms, and
    one more for where in the tick it began.
    """
    granularity, reach = 1, 64
    while timeout_us // TICK_US >= reach:
        granularity, reach = granularity * 8, reach * 8
    return (granularity + 1) * TICK_US
