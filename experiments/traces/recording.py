"""From a run to a trace: what training loops wrote down, or a trace as it was just played.  Pure.

A record has no dependencies, only times.  Under the virtual clock software takes none, so what an interval waited for
is seen in what ended when it began:

    compute   [a    ][b    ]        [d ]        b follows a at once: it waited for the device, not for x
    comm             [x        ][y ]            d began later than b ended: it waited for x and y
                     ^ x was sent when a ended: it depends on a

A dependency that was met before it was needed leaves no mark; those across the end of a step are kept all, because a
step ends when all of it has ended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from experiments.traces.builder import DURATION_NS, Builder
from experiments.traces.node import Attribute, CommType, Node, NodeType, Trace
from experiments.traces.timing import Event
from experiments.training.timeline import Interval, Kind, StepRecord

COMPUTES = {NodeType.COMP_NODE, NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE}


LATER = "begins later than the first rank"
"""The host's node in front of a rank that what came before the first step had held up."""


def all_reduces(name: str) -> CommType:
    """Of every communication in data-parallel training."""
    return CommType.ALL_REDUCE


def recorded(
    records: Sequence[Sequence[StepRecord]], kind_of: Callable[[str], CommType] = all_reduces
) -> tuple[Trace, ...]:
    """records[rank][step] -> one trace per rank, warm-up left out; `kind_of` tells the collective by its name."""
    counted = [[step for step in steps if step.number >= 0] for steps in records]
    first_ns = min(steps[0].start_ns for steps in counted)
    return tuple(_trace(steps, kind_of, first_ns) for steps in counted)


def _trace(steps: Sequence[StepRecord], kind_of: Callable[[str], CommType], first_ns: int) -> Trace:
    builder = Builder()
    before: list[int] = []  # what a step's first nodes wait for: all of the step before that nothing else waits for
    if steps[0].start_ns > first_ns:
        before.append(builder.compute(LATER, steps[0].start_ns - first_ns, on_host=True))
    for step in steps:
        ids: dict[int, Interval] = {}
        waited: set[int] = set()
        for interval in step.intervals:
            parents = _parents(interval, ids) or before
            waited.update(parents)
            ids[_add(builder, step.number, interval, parents, kind_of, first_ns)] = interval
        before = [node for node in ids if node not in waited]
    return builder.trace()


def _parents(interval: Interval, ids: Mapping[int, Interval]) -> list[int]:
    """The compute before it, and the communication that ended between that and its start."""
    ended = {node: it for node, it in ids.items() if it.end_ns <= interval.start_ns}
    computes = {node: it for node, it in ended.items() if it.kind is Kind.COMPUTE}
    last = max(computes, key=lambda node: (computes[node].end_ns, node), default=None)
    free_ns = computes[last].end_ns if last is not None else -1
    waited = [node for node, it in ended.items() if it.kind is Kind.COMMUNICATION and it.end_ns > free_ns]
    return [*([] if last is None else [last]), *waited]


def _add(
    builder: Builder,
    step: int,
    interval: Interval,
    parents: Sequence[int],
    kind_of: Callable[[str], CommType],
    first_ns: int,
) -> int:
    name, start_ns = f"step {step} {interval.name}", interval.start_ns - first_ns
    duration_ns = interval.end_ns - interval.start_ns
    if interval.kind is Kind.COMPUTE:
        return builder.compute(name, duration_ns, after=parents, start_ns=start_ns)
    kind = kind_of(interval.name)
    return builder.collective(
        name, kind, interval.size_bytes, after=parents, duration_ns=duration_ns, start_ns=start_ns
    )


def replayed(trace: Trace, events: Sequence[Event]) -> Trace:
    """The same trace with the times of a run: what computes keeps its duration, what communicates gets the fabric's."""
    times = {event.node: event for event in events}
    return replace(trace, nodes=tuple(_timed(node, times[node.id]) for node in trace))


def _timed(node: Node, event: Event) -> Node:
    if node.type in COMPUTES:
        return replace(node, start_us=event.start_ns // 1000)
    kept = tuple(each for each in node.attributes if each.name != DURATION_NS)
    duration_ns = event.end_ns - event.start_ns
    exact = Attribute(name=DURATION_NS, field="uint64_val", value=duration_ns)
    return replace(
        node,
        start_us=event.start_ns // 1000,
        duration_us=duration_ns // 1000,
        attributes=(*kept, exact) if duration_ns % 1000 else kept,
    )
