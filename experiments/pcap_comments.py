"""What a run's packets are told about in run.pcapng: operations in flight, and what happened to the fabric.  Pure.

    spans (ranks.parquet)      --> per host, from when to when, what to say      "all_reduce step 3"
    events, failures (results) --> when, what to say                             "event at 2000.001 us: link ... down"

A packet carries what its sender was doing when it passed, or what its receiver was doing where the sender had done: a
sender's operation ends when the last byte is in its NIC's hands.  An event is told at the first packet after it.
`frame.comment contains "all_reduce step 3"` is a display filter, and `frame.comment contains "event"` finds the others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.model import Topology

EVENT = "event "
"""How comments begin that are of the fabric and not of the packet."""
TOLD = ("operation", "communication")
"""Kinds of spans: what sends."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to the fabric."""

    at_ns: int
    """On the captures' clock."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Until the next phase of the same host it does the same."""

    begin_ns: int
    """On the captures' clock."""
    text: str
    """Empty: nothing."""


def phases(spans: Iterable[Mapping[str, Any]], *, zero_ns: int) -> dict[str, list[Phase]]:
    """Host -> what it does, from rows of ranks.parquet, whose time 0 is `zero_ns`."""
    told = [span for span in spans if span["kind"] in TOLD]
    several = len({span["job"] for span in told}) > 1
    moments: dict[str, list[tuple[int, bool, str]]] = {}
    for span in told:
        job = f"job {span['job']} " if several else ""
        text = f"{job}{span['name']} step {span['step']}"
        of_host = moments.setdefault(span["host"], [])
        of_host += [(zero_ns + span["start_ns"], True, text), (zero_ns + span["end_ns"], False, text)]
    return {host: list(_phases(sorted(of_host))) for host, of_host in moments.items()}


def _phases(moments: Sequence[tuple[int, bool, str]]) -> Iterator[Phase]:
    """Ends come before beginnings of the same instant; an empty span is none."""
    under_way: Counter[str] = Counter()
    for number, (at_ns, begins, text) in enumerate(moments):
        under_way[text] += 1 if begins else -1
        last = number + 1 == len(moments) or moments[number + 1][0] != at_ns
        if last:
            yield Phase(begin_ns=at_ns, text="; ".join(sorted(word for word, times in under_way.items() if times > 0)))


def events(sections: Mapping[str, Any], *, zero_ns: int) -> list[Event]:
    """From the sections `events` and `failures` of results.json, whose time 0 is `zero_ns`; in order of time."""
    found = [(each["in_force_us"], _words(each)) for each in sections.get("events", ())]
    for each in sections.get("failures", ()):
        for key, what in (("detected_us", "noticed by the controller"), ("repaired_us", "routed around")):
            if each[key] is not None:
                found.append((each[key], f"{each['what']}: {what}"))
    return [
        Event(at_ns=zero_ns + round(at_us * 1000), text=f"{EVENT}at {at_us:.3f} us: {text}")
        for at_us, text in sorted(found, key=lambda pair: pair[0])
    ]


def _words(event: Mapping[str, Any]) -> str:
    if event["kind"] == "failure":
        return str(event["what"])
    settings = ", ".join(f"{key}={value}" for key, value in event["set"].items())
    return f"ports of {event['where']} set to {settings}"


class Narrator:
    """Says what to say of packets that come in order of time."""

    def __init__(self, topology: Topology, phases_of: Mapping[str, Sequence[Phase]], told: Sequence[Event]) -> None:
        """`phases_of` hosts by name."""
        self._followers = {
            nic.ip.packed: _Follower(phases_of.get(nic.node, ()))
            for nic in topology.host_interfaces()
            if nic.ip is not None
        }
        self._events = list(reversed(told))

    def of(self, at_ns: int, addresses: tuple[bytes, bytes] | None) -> list[str]:
        """Of a packet between these IPv4 addresses: events since the last packet, then what is in flight."""
        said = self._until(at_ns)
        for address in addresses or ():
            follower = self._followers.get(address)
            if follower is not None and (text := follower.at(at_ns)):
                return [*said, text]
        return said

    def rest(self) -> list[str]:
        """What happened after the last packet."""
        return [event.text for event in reversed(self._events)]

    def _until(self, at_ns: int) -> list[str]:
        said = []
        while self._events and self._events[-1].at_ns <= at_ns:
            said.append(self._events.pop().text)
        return said


class _Follower:
    """One host's phases, read forward only."""

    def __init__(self, of_host: Sequence[Phase]) -> None:
        self._phases, self._next, self._text = of_host, 0, ""

    def at(self, at_ns: int) -> str:
        while self._next < len(self._phases) and self._phases[self._next].begin_ns <= at_ns:
            self._text = self._phases[self._next].text
            self._next += 1
        return self._text
