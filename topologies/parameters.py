"""Turns what people write after `NAME:` into whole numbers, once, with errors that name the parameter."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from topologies.errors import UserError
from topologies.units import parse_delay, parse_rate, parse_size

BUFFER_BYTES_PER_GBPS = 5000
"""Packet memory of a shallow-buffer switch, shared out evenly, per Gb/s of port rate.

Broadcom's Tomahawk has 16 MB for 32 ports of 100 Gb/s, Tomahawk 3 has 64 MB for 32 ports of 400 Gb/s: 5 kB per Gb/s
in both.  The real memory is shared, and one hot port alone may hold several times its even share.  For now every port
has a buffer of its own, so this is the pessimistic end: what a port has when all ports are busy.
"""

LEAST_BUFFER_BYTES = 125_000
"""`auto` never goes below the share of a 25 Gb/s port, so that scaled-down links still hold a dozen jumbo frames."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """What a cable is like, in both directions."""

    rate_bps: int
    delay_ns: int
    buffer_bytes: int
    """Of the egress port in front of each direction."""


def count(name: str, value: str | int, *, least: int = 1, most: int = 250) -> int:
    """A whole number in least..most.  Raises UserError naming the parameter."""
    try:
        number = int(str(value))
    except ValueError:
        raise UserError(f"{name}: '{value}' is not a whole number; write one from {least} to {most}") from None
    if not least <= number <= most:
        raise UserError(f"{name}: {number} is not in {least}..{most}")
    return number


def rate_of(name: str, value: str | int) -> int:
    """A rate in bit/s, above zero.  Raises UserError naming the parameter."""
    with naming(name):
        rate_bps = parse_rate(value)
    if rate_bps == 0:
        raise UserError(f"{name}: '{value}' would carry nothing; write for instance 100G")
    return rate_bps


def delay_of(name: str, value: str | int) -> int:
    """A one-way propagation delay in nanoseconds.  Raises UserError naming the parameter."""
    with naming(name):
        return parse_delay(value)


def buffer_of(name: str, value: str | int, *, rate_bps: int) -> int:
    """A port's buffer in bytes; `auto` is BUFFER_BYTES_PER_GBPS.  Raises UserError naming the parameter."""
    if str(value).strip().lower() == "auto":
        return max(rate_bps * BUFFER_BYTES_PER_GBPS // 10**9, LEAST_BUFFER_BYTES)
    with naming(name):
        return parse_size(value)


def wire(
    *,
    rate: str | int,
    delay: str | int,
    buffer: str | int,
    names: tuple[str, str, str] = ("rate", "delay", "buffer"),
) -> Wire:
    """A cable; `names` are what the user calls the three parameters.  Raises UserError naming the one at fault."""
    rate_bps = rate_of(names[0], rate)
    return Wire(
        rate_bps=rate_bps,
        delay_ns=delay_of(names[1], delay),
        buffer_bytes=buffer_of(names[2], buffer, rate_bps=rate_bps),
    )


def wires(
    *, rate: str, uplink_rate: str, delay: str, uplink_delay: str, buffer: str, between: str = "uplink"
) -> tuple[Wire, Wire]:
    """The hosts' cables and the ones between switches, whose `rate` and `delay` stand for the hosts' values.

    `between` begins the names of the second kind's parameters.  Raises UserError naming the one at fault.
    """
    near = wire(rate=rate, delay=delay, buffer=buffer)
    far = wire(
        rate=rate if uplink_rate == "rate" else uplink_rate,
        delay=delay if uplink_delay == "delay" else uplink_delay,
        buffer=buffer,
        names=(f"{between}_rate", f"{between}_delay", "buffer"),
    )
    return near, far


def mtu(name: str, value: str | int) -> int:
    """Bytes of IP packet; the upper end is what a veth takes.  Raises UserError naming the parameter."""
    return count(name, value, least=576, most=65521)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts `name: ` in front of the message of a UserError raised inside."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def numbers(name: str, value: str | int, *, most: int = 250) -> range:
    """1..value.  Raises UserError naming the parameter."""
    return range(1, count(name, value, most=most) + 1)
