"""What gloo must put on the wire to play a plan, to the byte: the messages of every collective and transfer.  Pure."""

from collections.abc import Iterator, Mapping

from experiments.traces.node import CommType
from experiments.traces.plan import Collective, Compute, Plan, Transfer
from experiments.workloads.messages import Message, WireBytes, wire_bytes
from experiments.workloads.operations import OPERATIONS

OPERATION: Mapping[CommType, str] = {
    **{kind: kind.name.lower() for kind in CommType},
    CommType.REDUCE_SCATTER_BLOCK: "reduce_scatter",
}
"""The schema's names in nccl-tests' words."""
GATHERS = {CommType.ALL_GATHER, CommType.GATHER}
"""comm_size is one rank's part of the array."""


def needs(plan: Plan) -> tuple[WireBytes, ...]:
    """Per rank."""
    return wire_bytes(messages(plan), ranks=len(plan.actions))


def messages(plan: Plan) -> Iterator[Message]:
    """All of them, in no order that matters."""
    for members in plan.meetings.values():
        rank, action = members[0]
        work = action.work
        if isinstance(work, Collective):
            yield from _of_collective(work, plan.groups[work.group])
        elif isinstance(work, Transfer):
            source, target = (rank, work.peer) if work.sends else (work.peer, rank)
            yield Message(source, target, work.size_bytes)
        else:
            assert isinstance(work, Compute)  # which nobody else takes part in


def _of_collective(work: Collective, ranks: tuple[int, ...]) -> Iterator[Message]:
    whole_bytes = work.size_bytes * (len(ranks) if work.kind in GATHERS else 1)
    for message in OPERATIONS[OPERATION[work.kind]].messages(len(ranks), whole_bytes):
        # gloo counts from the root
        source, target = (ranks[(end + work.root) % len(ranks)] for end in (message.src, message.dst))
        yield Message(source, target, message.size_bytes)
