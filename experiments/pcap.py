"""What `--pcap` asks for: where the taps are, which packets they keep, and what is made of them.  Pure.

    hosts                                  every host's interfaces, every packet, its first 128 bytes
    leaf1,h3,spine2-eth1                   of these switches, hosts and interfaces
    hosts:class=3,window=2ms-8ms,snap=96   of traffic class 3 and its pauses, for 6 ms, the first 96 bytes
    all:dscp=8/46,window=2ms-,files=run    of DSCP 8 and 46, from 2 ms on, in one file for the run and no others

A window counts from where `--events-from` says.  `files`: `each` is one file per interface, `run` is run.pcapng, `both`
is both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from testbed.capture import SNAP_BYTES, Window
from testbed.packet_filter import EVERYTHING, Selection
from topologies.errors import UnknownName, UserError
from topologies.model import Topology
from topologies.parameters import count, naming
from topologies.registry import parse_parameters
from topologies.units import parse_delay

if TYPE_CHECKING:
    from experiments.port_plan import PortPlan

Files = Literal["both", "each", "run"]
KEYS = ("class", "dscp", "files", "snap", "window")
LEAST_SNAP_BYTES = 64
"""Ethernet, IPv4 and TCP without options, and what the tables of `./run pcap` read."""
MOST_SNAP_BYTES = 16_384
"""More than the longest frame of any MTU that a NIC of 100 Gb/s takes, and half of what a ring holds in a block."""
DSCPS, CLASSES = 64, 8


@dataclass(frozen=True, kw_only=True)
class Captures:
    """All of it, checked."""

    interfaces: tuple[str, ...]
    """In the topology's order."""
    selection: Selection = EVERYTHING
    window: Window | None = None
    """None: the whole run."""
    snap_bytes: int = SNAP_BYTES
    files: Files = "both"


def parse_captures(text: str, plan: "PortPlan") -> Captures:
    """`PLACE,...[:KEY=VALUE,...]`.  Raises UserError naming the word at fault and what would do."""
    places, colon, rest = text.partition(":")
    interfaces = capture_points(places, plan.topology)
    given = parse_parameters(rest, where=f"--pcap {text}")
    if unknown := next((key for key in given if key not in KEYS), None):
        raise UnknownName("key of --pcap", unknown, KEYS)
    if colon and not interfaces:
        raise UserError(f"--pcap {text}: nothing is captured, so there is nothing to choose; leave ':{rest}' out")
    with naming(f"--pcap {text}"):
        return Captures(
            interfaces=interfaces,
            selection=_selection(given, plan),
            window=_window(given["window"]) if "window" in given else None,
            snap_bytes=_snap(given.get("snap", str(SNAP_BYTES))),
            files=_files(given.get("files", "both")),
        )


def capture_points(words: str, topology: Topology) -> tuple[str, ...]:
    """`none`, `hosts`, `all`, or a comma list of hosts, switches and interfaces -> interface names in topology order.

    Raises UnknownName for a word that is none of these.
    """
    every = [end.name for end in topology.interfaces()]
    wanted: set[str] = set()
    for word in words.split(","):
        wanted |= _named(word.strip(), topology, every)
    return tuple(name for name in every if name in wanted)


def _named(word: str, topology: Topology, every: list[str]) -> set[str]:
    if word == "none":
        return set()
    if word == "all":
        return set(every)
    if word == "hosts":
        return {end.name for end in topology.host_interfaces()}
    if word in topology.interfaces_of:
        return {end.name for end in topology.interfaces_of[word]}
    if word in every:
        return {word}
    raise UnknownName("capture point", word, ["none", "hosts", "all", *topology.interfaces_of, *every])


def _selection(given: Mapping[str, str], plan: "PortPlan") -> Selection:
    if "class" in given and "dscp" in given:
        raise UserError("class and dscp choose the same thing; leave one of them out")
    if "dscp" in given:
        return Selection(dscps=_numbers("dscp", given["dscp"], most=DSCPS - 1))
    if "class" not in given:
        return EVERYTHING
    wanted = _numbers("class", given["class"], most=CLASSES - 1)
    dscp_classes = next(iter(plan.decisions.values())).dscp_classes
    if unused := wanted - set(dscp_classes):
        used = ", ".join(map(str, sorted(set(dscp_classes))))
        raise UserError(
            f"no packet is in class {min(unused)}: the policy uses {used}; another needs classes=DSCP:CLASS in --policy"
        )
    return Selection(dscps=frozenset(dscp for dscp, index in enumerate(dscp_classes) if index in wanted), paused=wanted)


def _numbers(name: str, text: str, *, most: int) -> frozenset[int]:
    return frozenset(count(name, word, least=0, most=most) for word in text.split("/"))


def _window(text: str) -> Window:
    begin, dash, end = (word.strip() for word in text.partition("-"))
    if not dash or not (begin or end):
        raise UserError(f"window: '{text}' is not BEGIN-END; write for instance 2ms-8ms, 2ms- or -8ms")
    with naming("window"):
        begin_ns = parse_delay(begin) if begin else 0
        end_ns = parse_delay(end) if end else None
    if end_ns is not None and end_ns <= begin_ns:
        raise UserError(f"window: '{text}' ends before it begins")
    return Window(begin_ns=begin_ns, end_ns=end_ns)


def _snap(text: str) -> int:
    return MOST_SNAP_BYTES if text == "full" else count("snap", text, least=LEAST_SNAP_BYTES, most=MOST_SNAP_BYTES)


def _files(text: str) -> Files:
    for known in get_args(Files):
        if text == known:
            return known  # type: ignore[no-any-return]  # get_args has no type
    raise UnknownName("files of --pcap", text, get_args(Files))
