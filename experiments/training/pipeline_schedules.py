"""In which order the stages of a pipeline work on micro-batches, and what that leaves idle.  Pure.

    GPipe    stage 0  F0 F1 F2 F3 .. .. .. .. .. .. B0 B1 B2 B3      holds all m micro-batches' activations
             stage 1  .. F0 F1 F2 F3 .. .. B0 B1 B2 B3 ..
    1F1B     stage 0  F0 F1 .. B0 F2 B1 F3 B2 .. B3                  holds at most p - s of them
             stage 1  .. F0 B0 F1 B1 F2 B2 F3 B3

Both leave (p-1)/(m+p-1) of a step idle where stages are equally long and transfers take no time (Huang et al. 2019,
GPipe, section 2.3; Narayanan et al. 2021, Megatron-LM, section 2.2.1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from experiments.training.timeline import Interval, Kind, StepRecord
from topologies.errors import UnknownName


@dataclass(frozen=True, kw_only=True)
class Action:
    """One micro-batch's pass through a stage."""

    backward: bool
    microbatch: int

    @property
    def name(self) -> str:
        """`forward3`."""
        return f"{'backward' if self.backward else 'forward'}{self.microbatch}"


Schedule = Callable[[int, int, int], list[Action]]
"""(stage, stages, micro-batches) -> its actions in order."""


def gpipe(stage: int, stages: int, microbatches: int) -> list[Action]:
    """All forward passes, then all backward passes."""
    del stage, stages
    return [
        Action(backward=backward, microbatch=number) for backward in (False, True) for number in range(microbatches)
    ]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Action]:
    """As many forward passes as there are stages behind, then one backward pass for each forward pass."""
    ahead = min(stages - stage - 1, microbatches)
    found = [Action(backward=False, microbatch=number) for number in range(ahead)]
    for number in range(microbatches):
        if number + ahead < microbatches:
            found.append(Action(backward=False, microbatch=number + ahead))
        found.append(Action(backward=True, microbatch=number))
    return found


SCHEDULES: Mapping[str, Schedule] = {"gpipe": gpipe, "1f1b": one_forward_one_backward}


def schedule_named(name: str) -> Schedule:
    """Raises UnknownName."""
    if name not in SCHEDULES:
        raise UnknownName("pipeline schedule", name, SCHEDULES)
    return SCHEDULES[name]


def most_in_flight(actions: Sequence[Action]) -> int:
    """Most micro-batches whose activations a stage holds at once."""
    held = most = 0
    for action in actions:
        held += -1 if action.backward else 1
        most = max(most, held)
    return most


def bubble_share(stages: int, microbatches: int) -> Fraction:
    """Of the step: idle."""
    return Fraction(stages - 1, microbatches + stages - 1)


def makespan_ns(
    name: str, stages: int, microbatches: int, *, spent_ns: Callable[[int, Action], float], hop_ns: float = 0
) -> float:
    """How long a step takes in which a stage works for so long on an action; a transfer takes `hop_ns`.

    A stage begins an action once it has finished the one before and its input has come.  Raises UnknownName.
    """
    left = [schedule_named(name)(stage, stages, microbatches) for stage in range(stages)]
    done: dict[tuple[int, Action], float] = {}
    free_ns = [0.0] * stages
    while any(left):
        for stage, actions in enumerate(left):
            while actions and (ready_ns := _ready_ns(done, stage, stages, actions[0], hop_ns)) is not None:
                free_ns[stage] = max(free_ns[stage], ready_ns) + spent_ns(stage, actions[0])
                done[stage, actions.pop(0)] = free_ns[stage]
    return max(free_ns)


def alike(forward_ns: float, backward_ns: float) -> Callable[[int, Action], float]:
    """Every stage and micro-batch takes the same time."""
    return lambda _stage, action: backward_ns if action.backward else forward_ns


def _ready_ns(
    done: Mapping[tuple[int, Action], float], stage: int, stages: int, action: Action, hop_ns: float
) -> float | None:
    """When the input has come; None while nobody has begun to make it."""
    source = stage + 1 if action.backward else stage - 1
    if 0 <= source < stages:
        made_ns = done.get((source, action))
        return None if made_ns is None else made_ns + hop_ns
    return 0.0


def hop_ns(records: Sequence[Sequence[StepRecord]]) -> float:
    """Median time from sending to having received, of transfers that were awaited when they began.

    Each has an interval at both ends under one name, and the receiver's ends last (`pipeline_parallel.py`).
    """
    found = []
    for across in zip(*records, strict=True):
        ends: dict[str, list[Interval]] = {}
        for record in across:
            for each in record.intervals:
                if each.kind is Kind.COMMUNICATION:
                    ends.setdefault(each.name, []).append(each)
        for pair in ends.values():
            sender, receiver = sorted(pair, key=lambda each: each.end_ns)
            if receiver.start_ns <= sender.start_ns:
                found.append(receiver.end_ns - sender.start_ns)
    return median(found)
