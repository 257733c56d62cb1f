"""What must be true of every run whatever it measured; each bound is a pure function from values to broken sentences.

A run that breaks one is `valid: false` and says why: the fault is then in the testbed, or in the machine, not in the
fabric under study.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.results import LinkUse, Row
from topologies.model import Topology

WIRE_TOLERANCE = 0.02
"""Of the bytes a collective must move; headers are taken off exactly, retransmissions are allowed for apart."""
ETHERNET_HEADER_BYTES = 14
SACK_BYTES = 28
"""What is left of TCP's 40 B of options beside timestamps: three SACK blocks and padding (RFC 2018)."""
SHOWN = 5
"""Broken cases named per bound: one is enough to look, a thousand hide the next bound."""


def correct(rows: Iterable[Row]) -> list[str]:
    """Every element arrived with the value it must have."""
    return _first(
        f"{row.op} of {row.bytes} B, iteration {row.iteration}: {row.wrong} wrong elements" for row in rows if row.wrong
    )


def within_line_rate(rows: Iterable[Row], *, line_rate_bps: int, mtu: int, header_bytes: int) -> list[str]:
    """No bus bandwidth above the payload share of the slowest rank's NICs: busbw is made to be compared with them.

    `header_bytes` counts what a packet carries besides payload, Ethernet included, of which `mtu` excludes 14.
    """
    frame_bytes = mtu + ETHERNET_HEADER_BYTES
    payload_share = (frame_bytes - header_bytes) / frame_bytes
    limit = line_rate_bps / 8e9 * payload_share
    return _first(
        f"{row.op} of {row.bytes} B, iteration {row.iteration}: busbw {row.busbw_GBps:.3f} GB/s is above the payload "
        f"share of the line rate, {limit:.3f} GB/s"
        for row in rows
        if row.busbw_GBps > limit
    )


def conserved(links: Iterable[LinkUse]) -> list[str]:
    """What left a port arrived at the other end: cables lose nothing, and drops are counted before a packet leaves."""
    return _first(
        f"link {link.name}: {link.tx_packets} packets left and {link.rx_packets} arrived"
        for link in links
        if link.tx_packets != link.rx_packets
    )


def within_utilisation(links: Iterable[LinkUse], *, slack: float = 0.01) -> list[str]:
    """No link carried more than its rate allows.  `slack`: what lay in queues when the clock of operations stopped."""
    return _first(
        f"link {link.name}: {link.utilisation:.3f} of its rate" for link in links if link.utilisation > 1 + slack
    )


def audited(audit: Iterable[Mapping[str, Any]], *, mtu: int) -> list[str]:
    """Every rank sent and received the payload that its collective needs, no less, and no more than losses explain.

    A retransmitted segment adds at most one MSS at its sender and one, as a duplicate, at some receiver; SACK blocks
    are counted as payload here and add at most 28 B to a packet.
    """
    broken = []
    for entry in audit:
        what = f"{entry['op']} of {entry['bytes']} B, iteration {entry['iteration']}"
        segment_bytes = mtu + ETHERNET_HEADER_BYTES - entry["header_bytes_per_packet"]
        resent = entry["retransmitted_segments"]
        for way, again in (("tx", resent), ("rx", [sum(resent)] * len(resent))):
            extra = [
                segments * segment_bytes + SACK_BYTES * packets
                for segments, packets in zip(again, entry[f"{way}_packets"], strict=True)
            ]
            broken += moved(
                f"{what}, {way}",
                expected=entry[f"expected_{way}_bytes"],
                seen=entry[f"{way}_payload_bytes"],
                extra=extra,
            )
    return _first(broken)


def moved(what: str, *, expected: Sequence[int], seen: Sequence[int], extra: Sequence[int]) -> list[str]:
    """Each rank moved the payload that it must, within WIRE_TOLERANCE; `extra` bytes more are explained."""
    return [
        f"{what}, rank {rank}: {got} B of payload on the wire, the collective needs {want}"
        for rank, (want, got, more) in enumerate(zip(expected, seen, extra, strict=True))
        if not want * (1 - WIRE_TOLERANCE) <= got <= want * (1 + WIRE_TOLERANCE) + more
    ]


def line_rate_bps(topology: Topology) -> int:
    """What the best connected host can send at most: the sum of its NICs' rates."""
    rates: dict[str, int] = dict.fromkeys(topology.host_named, 0)
    for link in topology.links:
        for end in (link.a, link.b):
            if end.node in rates:
                rates[end.node] += link.rate_bps
    return max(rates.values())


def verdict(
    *, topology: Topology, rows: Sequence[Row], links: Sequence[LinkUse], sections: Mapping[str, Any]
) -> tuple[str, ...]:
    """All bounds of a run at once: the sentences of those that broke; none means that the run is valid."""
    audit = sections.get("audit", [])
    header_bytes = min((entry["header_bytes_per_packet"] for entry in audit), default=ETHERNET_HEADER_BYTES)
    rate_bps = line_rate_bps(topology)
    return (
        *correct(rows),
        *within_line_rate(rows, line_rate_bps=rate_bps, mtu=topology.mtu, header_bytes=header_bytes),
        *audited(audit, mtu=topology.mtu),
        *conserved(links),
        *within_utilisation(links),
    )


def _first(broken: Iterable[str]) -> list[str]:
    found = list(broken)
    left = len(found) - SHOWN
    return [*found[:SHOWN], f"and {left} more like it"] if left > 0 else found
