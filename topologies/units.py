"""Rates, delays and sizes as people write them, parsed once at the border and whole numbers ever after.

Inside the project a rate is `rate_bps` (int, bit/s), a delay `delay_ns` (int), a size `*_bytes` (int).
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from topologies.errors import UserError

_RATE = {
    f"{prefix}{suffix}": 1000**power
    for power, prefix in enumerate(("", "k", "m", "g", "t"))
    for suffix in ("", "bit", "bits", "bps", "b/s", "bit/s")
}
_DELAY = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_SIZE = {
    "": 1,
    "b": 1,
    **{f"{p}{s}": 1000 ** (i + 1) for i, p in enumerate("kmgt") for s in ("", "b")},
    **{f"{p}i{s}": 1024 ** (i + 1) for i, p in enumerate("kmgt") for s in ("", "b")},
}
_FLOPS = {prefix: 1000**power for power, prefix in enumerate(("", "k", "m", "g", "t", "p"))}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z/]*)\s*", re.IGNORECASE)


def _parse(text: str | int, *, kind: str, units: Mapping[str, int], example: str) -> int:
    match = _NUMBER.fullmatch(str(text))
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in units:
        raise UserError(f"'{text}' is not a {kind}; write a number and a unit, for instance {example}")
    value = Fraction(match.group(1)) * units[unit]
    if value.denominator != 1:
        raise UserError(f"'{text}' is not a whole number of the smallest unit of a {kind}")
    return int(value)


def parse_rate(text: str | int) -> int:
    """`100G`, `100gbit`, `25Gbps`, `400Gb/s`, `1000000` -> bit/s (SI prefixes).  Raises UserError."""
    return _parse(text, kind="rate", units=_RATE, example="100G, 25Gbit or 400Gb/s")


def parse_delay(text: str | int) -> int:
    """`1us`, `0.5ms`, `20 ns` -> nanoseconds; a bare number is refused, except 0.  Raises UserError."""
    units = {**_DELAY, "": 1} if str(text).strip() == "0" else _DELAY
    return _parse(text, kind="delay", units=units, example="1us, 500ns or 0.1ms")


def parse_size(text: str | int) -> int:
    """`64M` and `64MB` are 64e6 bytes, `64MiB` and `64Mi` are 64 x 2**20, a bare number is bytes.  Raises UserError."""
    return _parse(text, kind="size", units=_SIZE, example="64M, 25MiB or 1500")


def parse_flops(text: str | int) -> int:
    """`312T`, `2.5T`, `500G` -> floating-point operations per second (SI prefixes).  Raises UserError."""
    return _parse(text, kind="speed in FLOP/s", units=_FLOPS, example="312T or 500G")


def _format(value: int, steps: Mapping[str, int]) -> str:
    for suffix, step in sorted(steps.items(), key=lambda item: -item[1]):
        if value >= step:
            return f"{_six_digits(Decimal(value) / step)}{suffix}"
    return f"{value}{min(steps, key=lambda suffix: steps[suffix])}"


def _six_digits(value: Decimal) -> str:
    """Six significant digits, never an exponent: what it prints can be read back."""
    return f"{value.quantize(Decimal(1).scaleb(value.adjusted() - 5)).normalize():f}"


def format_rate(rate_bps: int) -> str:
    """100_000_000_000 -> '100 Gb/s'."""
    return _format(rate_bps, {" b/s": 1, " kb/s": 10**3, " Mb/s": 10**6, " Gb/s": 10**9, " Tb/s": 10**12})


def format_delay(delay_ns: int) -> str:
    """1_500 -> '1.5 us'."""
    return _format(delay_ns, {" ns": 1, " us": 10**3, " ms": 10**6, " s": 10**9})


def format_size(size_bytes: int) -> str:
    """16_000_000 -> '16 MB' (SI, as in nccl-tests)."""
    return _format(size_bytes, {" B": 1, " kB": 10**3, " MB": 10**6, " GB": 10**9})
