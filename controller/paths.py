"""Which policy chooses paths now, for what is down and what was measured; puts its selection in force.

change of policy --+
links down, up, ---+--> Situation --policy--> Selection --> the selector's tables
or at another rate +
every period ------+
     `-- bytes per flow since the last look, from the selector's own counters
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from controller.alarm import Alarm
from controller.policies import parse_policy
from controller.policies.base import Policy, Situation
from controller.selector.flow_hash import Flow
from controller.selector.maps import FlowRecord
from controller.selector.selection import Selection
from topologies.errors import UnknownName
from topologies.model import Topology

FADING = 2
"""A demand that is not seen again counts this many times less with every period: rings pause between steps."""


class Selecting(Protocol):
    """What this needs of a selector."""

    def select(self, selection: Selection, down: int) -> None:
        """Puts it in force; `down` numbers what is down meanwhile."""

    def flows(self) -> Iterable[FlowRecord]:
        """What was seen."""


class Demand:
    """Bytes per flow in a period; pure."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._total: Counter[Flow] = Counter()
        self.now: dict[Flow, int] = {}

    def look(self, flows: Iterable[FlowRecord]) -> None:
        """A period has passed; `flows` have counted since they began.  A period without traffic changes nothing."""
        total: Counter[Flow] = Counter()
        for record in flows:
            total[record.flow] += record.bytes
        sent = total - self._total
        self._total = total
        if sent:
            faded = {flow: octets // FADING for flow, octets in self.now.items()}
            flows_seen = faded.keys() | sent.keys()
            self.now = {flow: most for flow in flows_seen if (most := max(sent[flow], faded.get(flow, 0))) > 0}


class Paths:
    """The policy in force and what it is told."""

    def __init__(self, topology: Topology, selector: Selecting, policy: Policy, *, seed: int, alarm: Alarm) -> None:
        """Nothing is selected before `use`; `alarm` is this object's own."""
        self._topology, self._selector, self._seed, self._alarm = topology, selector, seed, alarm
        self.policy, self.demand = policy, Demand()
        self._down: frozenset[str] = frozenset()
        self._slowed: dict[str, int] = {}
        self._downs: list[frozenset[str]] = []
        self._selection: tuple[Selection, frozenset[str]] | None = None

    def use(self, policy: Policy) -> None:
        """From now on."""
        self.policy, self.demand, self._selection = policy, Demand(), None
        self.demand.look(self._selector.flows())
        self.demand.now = {}
        self._select({})
        self._arm()

    def use_spec(self, spec: str) -> None:
        """The same by its name and parameters.  Raises UserError."""
        self.use(parse_policy(spec))

    def select(self, down: frozenset[str]) -> None:
        """Without these links from now on, for the demand as it was last measured."""
        before = {} if down != self._down else self._entries()
        self._down = down
        self._select(before)

    def run_at(self, rates_bps: Mapping[str, int]) -> None:
        """These links run at another rate from now on.  Raises UnknownName."""
        for name in rates_bps:
            if name not in self._topology.link_named:
                raise UnknownName("link", name, self._topology.link_named)
        self._slowed |= rates_bps
        self._select(self._entries())

    def down_of(self, number: int) -> frozenset[str]:
        """The set of links of this number: marks given while they were down mean paths without them."""
        return self._downs[number]

    def guard(self, wait_readable: Callable[[int], None]) -> None:
        """Looks at the demand every period, for ever, in a greenlet of its own."""
        while True:
            wait_readable(self._alarm.fileno())
            if self._alarm.take():
                self.demand.look(self._selector.flows())
                self._select(self._entries())
                self._arm()

    def _entries(self) -> Mapping[Flow, int]:
        return {} if self._selection is None else self._selection[0].exact

    def _select(self, before: Mapping[Flow, int]) -> None:
        """Flows choose again only where something changed."""
        found = self.policy.selection(
            Situation(
                topology=self._topology,
                seed=self._seed,
                down=self._down,
                slowed=self._slowed,
                demand=self.demand.now,
                before=before,
            )
        )
        # An equal selection on other links is another one: its marks mean other paths.
        if (found, self._down) != self._selection:
            if self._down not in self._downs:
                self._downs.append(self._down)
            self._selector.select(found, self._downs.index(self._down))
            self._selection = found, self._down

    def _arm(self) -> None:
        period_ns = self.policy.measures_every_ns
        self._alarm.ring_at(None if period_ns is None else time.monotonic_ns() + period_ns)
