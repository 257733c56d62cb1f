"""How far a run is: a line that the guest's side prints at each line-up, and the machine's side reads.  Pure.

    <MARK>progress {"virtual_ns": 5300000, "line_ups": 3, "label": "...", "events": 0, "link": "leaf1 > spine2", ...}

Everything in it is there at a line-up anyhow, and all of it is virtual: equal runs print equal lines.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the console reads lines, and `--help` waits for what it imports
    from experiments.balance import Reading
    from topologies.model import Topology

PREFIX = "progress "
"""After the mark that begins a line for the machine."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """At a line-up."""

    virtual_ns: int
    """Since the experiment began."""
    line_ups: int
    """So far; an operation lies between two."""
    label: str
    """Of this one."""
    events: int
    """Failures and changes of ports that have struck."""
    link: str
    """The busiest direction out of a switch port since the line-up before; empty where nothing was sent."""
    share: float
    """Of its rate."""
    queue: str = ""
    """The switch port with the longest queue that samples saw since the line-up before; empty where none was."""
    queue_bytes: int = 0

    def line(self) -> str:
        """For the machine's side."""
        return PREFIX + json.dumps(asdict(self), separators=(",", ":"))


def progress(
    topology: "Topology",
    readings: "Sequence[Reading]",
    *,
    start_ns: int,
    events: int,
    longest_queue: tuple[str, int] = ("", 0),
) -> Progress:
    """From the readings at all line-ups so far; `longest_queue` is an egress interface and its bytes."""
    now = readings[-1]
    link, share = _busiest(topology, readings[-2], now) if len(readings) > 1 else ("", 0.0)
    return Progress(
        virtual_ns=now.at_ns - start_ns,
        line_ups=len(readings),
        label=now.label,
        events=events,
        link=link,
        share=round(share, 4),
        queue=_direction(topology, longest_queue[0]) if longest_queue[0] else "",
        queue_bytes=longest_queue[1],
    )


def parse(text: str) -> Progress | None:
    """What `line` said; None for any other mark."""
    return Progress(**json.loads(text.removeprefix(PREFIX))) if text.startswith(PREFIX) else None


def _busiest(topology: "Topology", before: "Reading", now: "Reading") -> tuple[str, float]:
    took_ns = now.at_ns - before.at_ns
    shares = {
        name: (sent - before.sent_bytes[name]) * 8e9 / (took_ns * topology.link_of[name].rate_bps)
        for name, sent in now.sent_bytes.items()
        if took_ns > 0 and sent > before.sent_bytes[name]
    }
    if not shares:
        return "", 0.0
    name = max(shares, key=lambda each: shares[each])
    return _direction(topology, name), shares[name]


def _direction(topology: "Topology", egress: str) -> str:
    far = topology.peer_of[egress]
    return f"{topology.peer_of[far.name].node} > {far.node}"
