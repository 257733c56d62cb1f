"""A place in a queue as people write it: bytes, packets, time of the link, or a share of the bandwidth-delay product.

    100kB    bytes                                65p      full frames
    24us     what the link sends in that time     0.14bdp  of rate x base RTT

Switch data sheets speak of bytes, DCTCP's paper of packets, queueing delay is time, and a rule that shall hold at every
rate is a share of the BDP.  All are bytes once rate, base RTT and frame of a port are known.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from topologies.errors import UserError
from topologies.units import parse_delay, parse_size

Unit = Literal["bytes", "packets", "time", "bdp"]
_OTHER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(p|pkt|pkts|packets|bdp)\s*", re.IGNORECASE)
_TIME = re.compile(r".*\d\s*[num]?s\s*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Link:
    """What turns a threshold into bytes."""

    rate_bps: int
    delay_ns: int
    """One way, of this link alone."""
    frame_bytes: int
    """The longest frame, Ethernet header included."""
    base_rtt_ns: int
    """Of the fabric's longest path."""

    @property
    def bdp_bytes(self) -> Fraction:
        """Rate x base RTT."""
        return Fraction(self.rate_bps * self.base_rtt_ns, 8 * 10**9)


@dataclass(frozen=True)
class Threshold:
    """An amount in one of the units; `str` gives it back as it may be written."""

    amount: Fraction
    unit: Unit

    def bytes_on(self, link: Link) -> int:
        """Whole bytes, to the nearest."""
        factor = {
            "bytes": Fraction(1),
            "packets": Fraction(link.frame_bytes),
            "time": Fraction(link.rate_bps, 8 * 10**9),
            "bdp": link.bdp_bytes,
        }[self.unit]
        return round(self.amount * factor)

    def __str__(self) -> str:
        suffix = {"bytes": "B", "packets": "p", "time": "ns", "bdp": "bdp"}[self.unit]
        return f"{float(self.amount):.12g}{suffix}"


def parse_threshold(name: str, text: str) -> Threshold:
    """`100kB`, `65p`, `24us` or `0.14bdp`; a bare number is bytes.  Raises UserError that begins with `name`."""
    if other := _OTHER.fullmatch(text):
        return Threshold(Fraction(other[1]), "bdp" if other[2].lower() == "bdp" else "packets")
    try:
        if _TIME.fullmatch(text):
            return Threshold(Fraction(parse_delay(text)), "time")
        return Threshold(Fraction(parse_size(text)), "bytes")
    except UserError:
        raise UserError(
            f"{name}: '{text}' is no threshold; write bytes (100kB), packets (65p), time (24us) or BDP (0.14bdp)"
        ) from None


def per_gbps(kilobytes: int) -> Threshold:
    """`kilobytes` kB for every Gb/s of rate: a time, 8 us for each."""
    return Threshold(Fraction(8000 * kilobytes), "time")
