"""Central traffic engineering: the controller knows who sends how much, and gives every flow its path.

    every period: bytes per flow --> paths that keep the busiest link as idle as can be --> exact entries

The largest demand chooses first, each the path whose busiest link it makes least busy; then demands on the busiest link
move elsewhere as long as that helps.  A plan that is still within KEEP of the best is kept: a change of path reorders
packets.  What has no demand yet is hashed per connection.  After a failure the last demand is planned again at once,
without waiting for the period.

Meta's controller does this every 30 s from flow counters and job placement (facts.md 1.4); minimising the largest
utilisation by moving one flow at a time is local search for makespan scheduling (Graham's LPT rule first).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from controller.path_marks import mark_of, path
from controller.policies.base import Policy, Situation, parameter
from controller.selector.flow_hash import Flow, derive_seeds
from controller.selector.selection import Selection
from topologies.graph import leaf_of, next_hops
from topologies.model import Interface
from topologies.parameters import delay_of

Path = tuple[str, ...]
"""Egress interfaces between two leaves."""
KEEP = 1.05
"""A plan is kept while its busiest link is at most this many times as busy as the best plan's."""
SMALL = 0.01
"""Of the largest demand: what is smaller is left to the hash."""
MOST_PATHS, MOST_MOVES = 64, 1000
"""Paths looked at per flow of leaves, and moves tried: bounds on the work, far above what small fabrics need."""


@dataclass(frozen=True, kw_only=True)
class Te(Policy):
    """Min-max utilisation for the demand that was measured."""

    name: ClassVar[str] = "te"
    summary: ClassVar[str] = "the controller plans paths for the demand it measures, every period"

    period_ns: int = parameter(5_000_000, delay_of, "between two looks at the demand, in ns or written 5ms")

    @property
    def measures_every_ns(self) -> int | None:
        """The period."""
        return self.period_ns

    def selection(self, situation: Situation) -> Selection:
        """Exact entries for what sends, hashes for the rest."""
        seeds = derive_seeds(self.name, situation.seed)
        return Selection(seeds=seeds, widths=situation.widths, exact=_entries(situation))


def plan(situation: Situation) -> dict[Flow, Path]:
    """Flow of hosts -> its path, for every demand that matters and can be met; flows on one leaf need none."""
    ends = {end.ip: end for end in situation.topology.host_interfaces() if end.ip is not None}
    least = SMALL * max(situation.demand.values(), default=0)
    wanted = {
        flow: demand
        for flow, demand in situation.demand.items()
        if demand >= least and demand > 0 and flow.src in ends and flow.dst in ends
    }
    choices = {flow: _choices(situation, ends[flow.src], ends[flow.dst]) for flow in wanted}
    wanted = {flow: demand for flow, demand in wanted.items() if choices[flow]}
    best = _Planner(situation, wanted, choices)
    best.solve()
    kept = _Planner(situation, wanted, choices)
    before = {
        flow: path(situation.topology, ends[flow.src], ends[flow.dst], mark, situation.down)[1:-1]
        for flow, mark in situation.before.items()
        if flow in wanted
    }
    if before.keys() == wanted.keys() and kept.take_over(before) <= KEEP * best.busiest():
        return before
    return best.chosen


class _Planner:
    """Loads of links while paths are chosen."""

    def __init__(
        self, situation: Situation, demand: Mapping[Flow, int], choices: Mapping[Flow, Sequence[Path]]
    ) -> None:
        self._rates = situation.rate_bps
        self._demand, self._choices = demand, choices
        self._load: dict[str, int] = defaultdict(int)
        self.chosen: dict[Flow, Path] = {}

    def take_over(self, paths: Mapping[Flow, Path]) -> float:
        """Another plan's paths; how busy its busiest link is."""
        for flow, chosen in paths.items():
            self._put(flow, chosen)
        return self.busiest()

    def solve(self) -> None:
        """Chooses a path for every demand."""
        for flow in sorted(self._demand, key=lambda flow: (-self._demand[flow], _order(flow))):
            self._put(flow, min(self._choices[flow], key=lambda path: self._cost(path, self._demand[flow])))
        for _ in range(MOST_MOVES):
            if not self._move():
                break

    def busiest(self) -> float:
        """Bytes per bit/s of the link that has most to do."""
        return max((self._busy(name) for name in self._load), default=0.0)

    def _busy(self, name: str, more: int = 0) -> float:
        return (self._load[name] + more) / self._rates[name]

    def _cost(self, path: Path, demand: int) -> tuple[float, float]:
        shares = [self._busy(name, demand) for name in path]
        return max(shares), sum(shares)

    def _put(self, flow: Flow, path: Path) -> None:
        self.chosen[flow] = path
        for name in path:
            self._load[name] += self._demand[flow]

    def _take(self, flow: Flow) -> Path:
        path = self.chosen.pop(flow)
        for name in path:
            self._load[name] -= self._demand[flow]
        return path

    def _move(self) -> bool:
        """Moves one demand off a busiest link, if some other path leaves all its links less busy than that one was."""
        worst = max(self._load, key=lambda name: (self._busy(name), name), default=None)
        if worst is None:
            return False
        limit = self._busy(worst)
        for flow in sorted((flow for flow, links in self.chosen.items() if worst in links), key=_order):
            old = self._take(flow)
            best = min(self._choices[flow], key=lambda path: self._cost(path, self._demand[flow]))
            if self._cost(best, self._demand[flow])[0] < limit:
                self._put(flow, best)
                return True
            self._put(flow, old)
        return False


def _order(flow: Flow) -> tuple[object, ...]:
    """The same in every run."""
    return flow.src, flow.dst, flow.proto, flow.sport, flow.dport


def _entries(situation: Situation) -> dict[Flow, int]:
    ends = {end.ip: end for end in situation.topology.host_interfaces()}
    return {
        flow: mark_of(situation.topology, ends[flow.dst], ("", *path, ""), situation.down)
        for flow, path in plan(situation).items()
    }


def _choices(situation: Situation, source: Interface, destination: Interface) -> list[Path]:
    """Shortest paths between the two hosts' leaves; none where they share one or are cut off."""
    here, there = (leaf_of(situation.topology, end.name).name for end in (source, destination))
    return [] if here == there else list(islice(_paths(situation, here, there), MOST_PATHS))


def _paths(situation: Situation, here: str, leaf: str) -> Iterator[Path]:
    if here == leaf:
        yield ()
        return
    for own in next_hops(situation.topology, here, leaf, situation.down):
        for rest in _paths(situation, situation.topology.peer_of[own.name].node, leaf):
            yield (own.name, *rest)
