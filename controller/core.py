"""The controller's state machine, pure: events of switches in, requests to switches out, no socket and no clock.

    connected --ReadTables--> READING --differs--> WRITING (changes, Barrier) --acknowledged--> READING --equal--> READY

A switch is ready when the tables that it reports *are* the plan.  So a new switch, one that comes back, a restart of
the controller and a changed plan are one case: read, write the difference, read again.  Traffic goes on meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from controller.forwarding import Plan
from controller.pipeline import AddRule, Barrier, DeleteRule, ReadTables, Request, Rule, Wipe
from topologies.model import Switch, Topology

MOST_ROUNDS = 3
"""Rounds of writing that may differ from the plan afterwards; a switch that still does refuses something."""


class Phase(Enum):
    """How far a switch is."""

    ABSENT = "not connected"
    READING = "its tables are being read"
    WRITING = "its rules are being written"
    READY = "ready"
    FAILED = "failed"


@dataclass(kw_only=True)
class _State:
    switch: Switch
    phase: Phase = Phase.ABSENT
    rounds: int = 0
    connections: int = 0
    found: set[Rule] = field(default_factory=set)
    foreign: int = 0
    failure: str = ""
    port_fault: str = ""


class Core:
    """What is known of every expected switch, and what to ask of it next."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        """The switches that connect must be exactly those of the topology."""
        self.topology = topology
        self.plan = plan
        self._states = {switch.dpid: _State(switch=switch) for switch in topology.switches}
        self._strangers: set[int] = set()

    def connected(self, dpid: int) -> list[Request]:
        """A switch finished its handshake, for the first time or again."""
        state = self._states.get(dpid)
        if state is None:
            self._strangers.add(dpid)
            return []
        state.connections += 1
        state.rounds, state.failure = 0, ""
        return self._read(state)

    def disconnected(self, dpid: int) -> None:
        """A switch's connection ended."""
        self._strangers.discard(dpid)
        if dpid in self._states:
            self._states[dpid].phase = Phase.ABSENT

    def ports(self, dpid: int, found: Mapping[int, str]) -> None:
        """A switch's ports by number, as it reports them: they must be cabled as the topology says."""
        state = self._states.get(dpid)
        if state is None:
            return
        faults = []
        for end in self.topology.interfaces_of[state.switch.name]:
            actual = found.get(end.port)
            if actual != end.name:
                faults.append(f"port {end.port} is {actual or 'absent'} and should be {end.name}")
        state.port_fault = "; ".join(faults)

    def tables(self, dpid: int, rules: Iterable[Rule | None], *, more: bool) -> list[Request]:
        """A part of the rules that a switch holds (None: one that is not ours); `more` parts follow."""
        state = self._states.get(dpid)
        if state is None or state.phase is not Phase.READING:
            return []
        for rule in rules:
            if rule is None:
                state.foreign += 1
            else:
                state.found.add(rule)
        return [] if more else self._compare(state)

    def acknowledged(self, dpid: int) -> list[Request]:
        """A switch says that everything up to the last barrier has taken effect."""
        state = self._states.get(dpid)
        return self._read(state) if state is not None and state.phase is Phase.WRITING else []

    def refused(self, dpid: int, reason: str) -> None:
        """A switch answered a request with an error."""
        if dpid in self._states:
            self._states[dpid].phase = Phase.FAILED
            self._states[dpid].failure = reason

    def replan(self, plan: Plan) -> Mapping[int, list[Request]]:
        """Another plan for the same switches: what to ask of those whose rules change."""
        changed = [dpid for dpid in self._states if plan[dpid] != self.plan[dpid]]
        self.plan = plan
        asked = {}
        for dpid in changed:
            state = self._states[dpid]
            if state.phase not in (Phase.ABSENT, Phase.FAILED):
                state.rounds = 0
                asked[dpid] = self._read(state)
        return asked

    def problems(self) -> tuple[str, ...]:
        """Why the fabric is not ready, a sentence per cause; empty when it is."""
        found = [f"a switch with dpid {dpid} connected; the topology has none" for dpid in sorted(self._strangers)]
        for state in self._states.values():
            name = f"switch {state.switch.name} (dpid {state.switch.dpid})"
            if state.phase is not Phase.READY:
                again = f", connected {state.connections} times" if state.connections > 1 else ""
                found.append(f"{name}: {state.failure or state.phase.value}{again}")
            elif state.port_fault:
                found.append(f"{name}: {state.port_fault}")
        return tuple(found)

    @property
    def rule_count(self) -> int:
        """Rules of the whole plan."""
        return sum(len(rules) for rules in self.plan.values())

    @staticmethod
    def _read(state: _State) -> list[Request]:
        state.phase = Phase.READING
        state.found, state.foreign = set(), 0
        return [ReadTables()]

    def _compare(self, state: _State) -> list[Request]:
        wanted = self.plan[state.switch.dpid]
        if state.found == wanted and not state.foreign:
            state.phase = Phase.READY
            return []
        if state.rounds == MOST_ROUNDS:
            missing, extra = len(wanted - state.found), len(state.found - wanted) + state.foreign
            self.refused(
                state.switch.dpid,
                f"after {MOST_ROUNDS} rounds of writing {missing} rules are missing and {extra} are not ours",
            )
            return []
        state.rounds += 1
        state.phase = Phase.WRITING
        return [*_changes(state.found, wanted, wipe=state.foreign > 0), Barrier()]


def _changes(found: set[Rule], wanted: frozenset[Rule], *, wipe: bool) -> list[Request]:
    """Adds before it deletes, so that no packet in between finds less than before; a wipe is for foreign rules only."""
    if wipe:
        return [Wipe(), *(AddRule(rule) for rule in _in_order(wanted))]
    places = {(rule.table, rule.priority, rule.match) for rule in wanted}
    stale = [rule for rule in found - wanted if (rule.table, rule.priority, rule.match) not in places]
    return [*(AddRule(rule) for rule in _in_order(wanted - found)), *(DeleteRule(rule) for rule in _in_order(stale))]


def _in_order(rules: Iterable[Rule]) -> list[Rule]:
    """Choices before the routes that lead to them; the same order in every run."""
    return sorted(rules, key=lambda rule: (-rule.table, -rule.priority, repr(rule.match)))
