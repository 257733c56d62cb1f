"""When each node of a played trace ran, and what follows: broken promises, device time, the critical path.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.traces.plan import Action, Collective, Compute, Plan, Transfer
from experiments.training.timeline import Interval, Kind, StepRecord


@dataclass(frozen=True, kw_only=True)
class Event:
    """One node of one rank."""

    node: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a rank brings back."""

    events: tuple[Event, ...]
    tx_bytes: int
    """TCP payload that its host sent, gloo's headers included, retransmissions too."""
    rx_bytes: int
    tx_packets: int = 0
    rx_packets: int = 0
    retransmissions: int = 0


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One node on the critical path."""

    rank: int
    node: int
    name: str
    kind: str
    start_ns: int
    end_ns: int
    own_ns: int
    """The share of the whole time for which nothing but this node can be blamed."""


class Timing:
    """A plan and the times of all its nodes."""

    def __init__(self, plan: Plan, played: Sequence[Played]) -> None:
        """`played` is in rank order."""
        self._plan = plan
        self._events = [{event.node: event for event in each.events} for each in played]
        self._actions = [{action.id: action for action in actions} for actions in plan.actions]

    @property
    def total_ns(self) -> int:
        """From the common start to the last end."""
        return max((event.end_ns for events in self._events for event in events.values()), default=0)

    def early(self) -> Iterator[tuple[int, Action, int]]:
        """Nodes that started before a parent had ended: rank, node, parent."""
        for rank, actions in enumerate(self._plan.actions):
            for action in actions:
                for parent in action.parents:
                    if self._events[rank][action.id].start_ns < self._events[rank][parent].end_ns:
                        yield rank, action, parent

    def compute_ns(self, rank: int) -> tuple[int, int]:
        """Device and host time: as the plan has it, and as it was."""
        work = [(action, self._events[rank][action.id]) for action in self._plan.actions[rank]]
        busy = [(action.work.duration_ns, it.end_ns - it.start_ns) for action, it in work if _computes(action)]  # type: ignore[union-attr]
        return sum(planned for planned, _ in busy), sum(seen for _, seen in busy)

    def record(self, rank: int) -> StepRecord:
        """The rank's notebook, as training loops keep it: `accounting` reads it."""
        intervals = [
            Interval(
                kind=Kind.COMPUTE if isinstance(action.work, Compute) else Kind.COMMUNICATION,
                name=action.meeting or action.name,
                start_ns=self._events[rank][action.id].start_ns,
                end_ns=self._events[rank][action.id].end_ns,
                size_bytes=0 if isinstance(action.work, Compute) else action.work.size_bytes,
            )
            for action in self._plan.actions[rank]
        ]
        in_order = tuple(sorted(intervals, key=lambda each: (each.start_ns, each.end_ns, each.name)))
        return StepRecord(number=0, start_ns=0, end_ns=self.total_ns, intervals=in_order)

    def critical_path(self) -> list[Hop]:
        """From the first node to the one that ended last: each waited for the one before it.

        Backwards from the last end: a communication is blamed from the moment when the last rank joined it, and that
        rank's node is followed; a node that waited for its parents, its unit or its channel leads to their latest.
        """
        ends = [
            (event.end_ns, -rank, -node) for rank, events in enumerate(self._events) for node, event in events.items()
        ]
        if not ends:
            return []
        _, rank, node = max(ends)
        at: tuple[int, int] | None = (-rank, -node)
        path: list[Hop] = []
        while at is not None:
            rank, node = self._last_to_join(*at)
            hop = self._hop(rank, node, until_ns=path[-1].start_ns if path else self.total_ns)
            path.append(hop)
            at = self._before(rank, node)
        return path[::-1]

    def _last_to_join(self, rank: int, node: int) -> tuple[int, int]:
        meeting = self._actions[rank][node].meeting
        if not meeting:
            return rank, node
        members = [(member, action.id) for member, action in self._meetings[meeting]]
        return max(members, key=lambda each: (self._events[each[0]][each[1]].start_ns, each == (rank, node), -each[0]))

    @property
    def _meetings(self) -> Mapping[str, list[tuple[int, Action]]]:
        if not hasattr(self, "_found"):
            self._found = self._plan.meetings
        return self._found

    def _hop(self, rank: int, node: int, until_ns: int) -> Hop:
        action, event = self._actions[rank][node], self._events[rank][node]
        return Hop(
            rank=rank,
            node=node,
            name=action.name,
            kind=kind(action),
            start_ns=event.start_ns,
            end_ns=event.end_ns,
            own_ns=until_ns - event.start_ns,
        )

    def _before(self, rank: int, node: int) -> tuple[int, int] | None:
        """The node whose end let this one start; None for one that nothing held up."""
        action, event = self._actions[rank][node], self._events[rank][node]
        rivals = [
            other.id
            for other in self._plan.actions[rank]
            if other.id in action.parents
            or (
                _unit(other) and _unit(other) == _unit(action) and self._events[rank][other.id].end_ns <= event.start_ns
            )
        ]
        rivals = [each for each in rivals if each != node]
        if not rivals:
            return None
        return rank, max(rivals, key=lambda each: (self._events[rank][each].end_ns, each in action.parents, -each))


def _computes(action: Action) -> bool:
    return isinstance(action.work, Compute) and bool(action.work.unit)


def _unit(action: Action) -> str:
    return action.work.unit if isinstance(action.work, Compute) else ""


def kind(action: Action) -> str:
    """For tables."""
    if isinstance(action.work, Collective):
        return action.work.kind.name.lower()
    if isinstance(action.work, Transfer):
        return "send" if action.work.sends else "receive"
    return "compute"
