"""Cables that fail under traffic: noticed by what switches say of their ports, believed after a delay, repaired.

    PortStatus --seen--> waits for the detection delay --detected--> reroute: rules and selection without the link
                         (a flap that is shorter goes unnoticed)     --every table reads back as planned--> repaired

The delay stands for what a real switch needs to be sure: debouncing of the light, BFD's missed hellos.  A link is down
when either of its ports is.  A link that comes back is the same case: believed after the delay, then used again.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Protocol

from controller.alarm import Alarm
from topologies.model import Topology

LOG = logging.getLogger(__name__)
DEFAULT_DELAY_NS = 1_000_000
"""1 ms: a port's loss of light, debounced.  BFD in hardware takes about 10 ms (three hellos of 3.3 ms), in software
ten times that."""
REPAIR_TIMEOUT_S = 5.0


@dataclass(kw_only=True)
class Detection:
    """One change of one link; times are of the monotonic clock."""

    link: str
    up: bool
    seen_ns: int
    """A switch said so."""
    detected_ns: int
    """It had lasted for the detection delay."""
    repaired_ns: int | None = None
    """Every switch's tables were read back and equal the plan that goes without (or again with) the link."""


class LinkStates:
    """Which links are believed to be down; pure: ports and times in, decisions out."""

    def __init__(self, topology: Topology, delay_ns: int) -> None:
        """All links are up."""
        self._topology, self._delay_ns = topology, delay_ns
        self._dead_ports: set[str] = set()
        self._changed_ns: dict[str, int] = {}
        """Link -> since when it has not been what is believed."""
        self._down: set[str] = set()
        self.detections: list[Detection] = []

    @property
    def down(self) -> frozenset[str]:
        """Links between switches that are believed to be down."""
        hosts = self._topology.host_named
        links = self._topology.link_named
        return frozenset(name for name in self._down if not {links[name].a.node, links[name].b.node} & set(hosts))

    @property
    def due_ns(self) -> int | None:
        """When something will be believed, if nothing changes before."""
        return min((at + self._delay_ns for at in self._changed_ns.values()), default=None)

    def port(self, name: str, *, live: bool, now_ns: int) -> None:
        """What a switch says of one of its ports."""
        link = self._topology.link_of[name]
        (self._dead_ports.discard if live else self._dead_ports.add)(name)
        dead = not self._dead_ports.isdisjoint((link.a.name, link.b.name))
        if dead == (link.name in self._down):
            self._changed_ns.pop(link.name, None)
        else:
            self._changed_ns.setdefault(link.name, now_ns)

    def settle(self, now_ns: int) -> bool:
        """Believes what has lasted; whether that changes how packets should travel."""
        before = self.down
        for link, seen_ns in sorted(self._changed_ns.items()):
            if now_ns - seen_ns >= self._delay_ns:
                del self._changed_ns[link]
                self._down ^= {link}
                up = link not in self._down
                self.detections.append(Detection(link=link, up=up, seen_ns=seen_ns, detected_ns=now_ns))
        return self.down != before

    def repaired(self, detections: Iterable[Detection], now_ns: int) -> None:
        """The fabric does without these links, or uses them again."""
        for detection in detections:
            detection.repaired_ns = now_ns


class Reroutable(Protocol):
    """What this needs of the application."""

    def reroute(self, down: frozenset[str]) -> object:
        """Plans rules and selection without these links and begins to write them."""

    def wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Lets the others run until it is done, at most so long; whether it is."""

    def problems(self) -> tuple[str, ...]:
        """Why the fabric is not as planned."""


class Failures:
    """Detections and repairs of a run."""

    def __init__(
        self, topology: Topology, alarm: Alarm, *, delay_ns: int, written: Callable[[], None] = lambda: None
    ) -> None:
        """`alarm` is this object's own; `written` is called when a repair is in every table (see flow_cache.py)."""
        self.links, self._alarm, self._written = LinkStates(topology, delay_ns), alarm, written

    def port_seen(self, name: str, live: bool) -> None:
        """Called for every port that a switch tells about."""
        self.links.port(name, live=live, now_ns=time.monotonic_ns())
        self._alarm.ring_at(self.links.due_ns)

    def guard(self, app: Reroutable, wait_readable: Callable[[int], None]) -> None:
        """Works for ever, in a greenlet of its own; one repair after the other."""
        while True:
            wait_readable(self._alarm.fileno())
            self._alarm.take()
            known = len(self.links.detections)
            changes = self.links.settle(time.monotonic_ns())
            new = self.links.detections[known:]
            for each in new:
                LOG.info("link %s is %s", each.link, "up again" if each.up else "down")
            if changes:
                app.reroute(self.links.down)
                self._await_repair(app, new)
            self._alarm.ring_at(self.links.due_ns)

    def report(self) -> dict[str, object]:
        """The answer to `failures`."""
        return {"down": sorted(self.links.down), "detections": [asdict(each) for each in self.links.detections]}

    def _await_repair(self, app: Reroutable, detections: Iterable[Detection]) -> None:
        if app.wait(lambda: not app.problems(), REPAIR_TIMEOUT_S):
            self._written()
            self.links.repaired(detections, time.monotonic_ns())
            LOG.info("repaired: %s", ", ".join(each.link for each in detections))
        else:
            LOG.warning("not repaired after %s s: %s", REPAIR_TIMEOUT_S, "; ".join(app.problems()))
