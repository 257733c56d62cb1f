"""What breaks when, as people write it: a line per failure, in a file or on the command line.  Pure.

    at 2ms link leaf1-spine2 down              at 2ms link leaf1-spine2 loss 0.1%
    at 9ms link leaf1-spine2 up                at 2ms link leaf1-spine2 flap 10x every 1ms
    at 2ms link leaf1-spine2 rate 25G          at 2ms switch spine1 down

Both directions of a cable fail alike, and either end may be named first.  A switch that is down has all its cables
down.  `flap` takes the cable down at the beginning of each period and up again in its middle.  `up` undoes `down`,
`loss 0%` undoes a loss, and `rate` with the link's own rate another rate.  Times count from where `--events-from` says.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from topologies.errors import UnknownName, UserError
from topologies.model import Topology
from topologies.parameters import rate_of
from topologies.units import parse_delay

GRAMMAR = "at TIME link A-B down|up|rate RATE|loss SHARE%|flap Nx every TIME, or at TIME switch NAME down|up"
_LINE = re.compile(r"at\s+(?P<at>\S+)\s+(?P<kind>\S+)\s+(?P<name>\S+)\s+(?P<deed>.+)")
_FLAP = re.compile(r"flap\s+(\d+)x\s+every\s+(\S+)")
_LOSS = re.compile(r"loss\s+(\d+(?:\.\d+)?)\s*%")
_RATE = re.compile(r"rate\s+(\S+)")
MOST_FLAPS = 10_000


@dataclass(frozen=True, kw_only=True)
class State:
    """The cable carries packets, or does not."""

    up: bool


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The cable's ports serialise at this rate; thresholds and buffers stay as they are."""

    rate_bps: int


@dataclass(frozen=True, kw_only=True)
class Loss:
    """This share of the packets vanishes, each by its own lot."""

    share: Fraction


Deed = State | Rate | Loss


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One thing that happens to some cables at one instant."""

    at_ns: int
    links: tuple[str, ...]
    """The topology's names."""
    deed: Deed
    words: str
    """`link leaf1-spine2 down`, for tables."""


def read_failures(file: Path | None, inline: Iterable[str]) -> str:
    """The file and what the command line says beside it, as one text for the guest.  Raises UserError."""
    try:
        text = "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--failures {file}: {error}") from None
    return "\n".join([*text.splitlines(), *inline])


def parse_failures(text: str, topology: Topology) -> tuple[Failure, ...]:
    """In order of time.  Raises UserError naming the line at fault and what would do."""
    found: list[Failure] = []
    for line in text.splitlines():
        words = line.partition("#")[0].strip()
        if words:
            found += _parse(words, topology)
    return tuple(sorted(found, key=lambda failure: failure.at_ns))


def _parse(line: str, topology: Topology) -> Iterator[Failure]:
    match = _LINE.fullmatch(line)
    if match is None or match["kind"] not in ("link", "switch"):
        raise UserError(f"failure '{line}': write {GRAMMAR}")
    at_ns = _time(line, match["at"])
    deed = " ".join(match["deed"].split())
    if match["kind"] == "switch":
        links, words = _links_of(line, match["name"], topology), f"switch {match['name']}"
        if deed not in ("down", "up"):
            raise UserError(f"failure '{line}': a switch goes down or up; write rates and losses for its links")
    else:
        links = (link_called(match["name"], topology),)
        words = f"link {links[0]}"
    if flap := _FLAP.fullmatch(deed):
        yield from _flaps(line, links, words, at_ns, times=int(flap[1]), period_ns=_time(line, flap[2]))
    else:
        yield Failure(at_ns=at_ns, links=links, deed=_deed(line, deed), words=f"{words} {deed}")


def link_called(name: str, topology: Topology) -> str:
    """The topology's name of a cable, whichever end is written first.  Raises UserError naming its neighbours."""
    if name in topology.link_named:
        return name
    pair, dot, number = name.rpartition(".") if name.rpartition(".")[2].isdigit() else (name, "", "")
    one, dash, other = pair.partition("-")
    turned = f"{other}-{one}{dot}{number}"
    if dash and turned in topology.link_named:
        return turned
    nodes = {node.name for node in topology.nodes}
    near = [link.name for link in topology.links if {link.a.node, link.b.node} & ({one, other} & nodes)]
    raise UnknownName("link", name, near or topology.link_named)


def _links_of(line: str, switch: str, topology: Topology) -> tuple[str, ...]:
    if switch not in topology.switch_named:
        raise UnknownName(f"switch (failure '{line}')", switch, topology.switch_named)
    return tuple(link.name for link in topology.links if switch in (link.a.node, link.b.node))


def _deed(line: str, deed: str) -> Deed:
    if deed in ("down", "up"):
        return State(up=deed == "up")
    if rate := _RATE.fullmatch(deed):
        return Rate(rate_bps=rate_of(f"failure '{line}'", rate[1]))
    if loss := _LOSS.fullmatch(deed):
        share = Fraction(loss[1]) / 100
        if share > 1:
            raise UserError(f"failure '{line}': more than 100% cannot be lost")
        return Loss(share=share)
    raise UserError(f"failure '{line}': '{deed}' is nothing that can happen to it; write {GRAMMAR}")


def _flaps(
    line: str, links: tuple[str, ...], words: str, at_ns: int, *, times: int, period_ns: int
) -> Iterator[Failure]:
    if not 1 <= times <= MOST_FLAPS or period_ns < 2:
        raise UserError(f"failure '{line}': a flap happens 1 to {MOST_FLAPS} times, every 2ns or slower")
    for flap in range(times):
        start_ns = at_ns + flap * period_ns
        yield Failure(at_ns=start_ns, links=links, deed=State(up=False), words=f"{words} down")
        yield Failure(at_ns=start_ns + period_ns // 2, links=links, deed=State(up=True), words=f"{words} up")


def _time(line: str, text: str) -> int:
    try:
        return parse_delay(text)
    except UserError as error:
        raise UserError(f"failure '{line}': {error}") from None
