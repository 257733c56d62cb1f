"""How long a data-parallel step must take, from its parts measured apart.  Pure.

serial      compute + communication
overlapped  a bucket is sent once its gradients exist and the one before it is through:
            max(compute, communication) + the ends, that is the time before the first bucket exists, or the last
            bucket after the backward pass (facts.md 4.4, "overlap bound")
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from experiments.training.timeline import Interval, Kind, StepRecord


def serial_ns(compute_ns: float, communication_ns: float) -> float:
    """Nothing overlaps."""
    return compute_ns + communication_ns


def overlapped_ns(
    compute_ns: float, communication_ns: float, *, ready_ns: Sequence[float], sizes_bytes: Sequence[int]
) -> float:
    """Buckets in the order in which they are sent; each takes its share by size of the communication.

    `ready_ns` counts from the step's start.
    """
    if len(ready_ns) != len(sizes_bytes):
        raise ValueError(f"{len(ready_ns)} instants for {len(sizes_bytes)} buckets")
    end_ns, total_bytes = 0.0, sum(sizes_bytes)
    for ready, size_bytes in zip(ready_ns, sizes_bytes, strict=True):
        end_ns = max(end_ns, ready) + communication_ns * size_bytes / total_bytes
    return max(compute_ns, end_ns)


def compute_ns(records: Sequence[Sequence[StepRecord]]) -> float:
    """Device time of a step: mean over ranks and the steps that count."""
    steps = [record for of_rank in records for record in of_rank if record.number >= 0]
    return float(
        mean(sum(it.end_ns - it.start_ns for it in step.intervals if it.kind is Kind.COMPUTE) for step in steps)
    )


def step_ns(records: Sequence[Sequence[StepRecord]]) -> float:
    """From the first rank's start to the last rank's end: mean over the steps that count."""
    across = [steps for steps in zip(*records, strict=True) if steps[0].number >= 0]
    starts = [min(each.start_ns for each in steps) for steps in across]
    ends = [max(each.end_ns for each in steps) for steps in across]
    # Steps follow each other without a gap; from start to start a rank that began late is not counted twice.
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    return float(mean([*gaps, ends[-1] - starts[-1]]))


def span_ns(records: Sequence[Sequence[StepRecord]]) -> int:
    """From the first rank's first step, warm-up included, to the last rank's end."""
    return max(steps[-1].end_ns for steps in records) - min(steps[0].start_ns for steps in records)


def buckets(records: Sequence[Sequence[StepRecord]]) -> tuple[list[float], list[int]]:
    """When each bucket of a step was ready (mean) and its size, in the order in which they were sent.

    Raises ValueError when the steps' buckets differ, as those of DDP's first step do from all that follow.
    """
    steps = [record for of_rank in records for record in of_rank if record.number >= 0]
    sent = [
        sorted((each for each in step.intervals if each.kind is Kind.COMMUNICATION), key=_sent_at) for step in steps
    ]
    for step, of_step in zip(steps, sent, strict=True):
        if [each.size_bytes for each in of_step] != [each.size_bytes for each in sent[0]]:
            raise ValueError(f"step {step.number} has other buckets than step {steps[0].number}: count it as warm-up")
    ready = [
        mean(one.start_ns - step.start_ns for one, step in zip(across, steps, strict=True))
        for across in zip(*sent, strict=True)
    ]
    return ready, [each.size_bytes for each in sent[0]]


def _sent_at(bucket: Interval) -> tuple[int, int]:
    """Of several at one instant the first in DDP's own order, not the first to be through."""
    number = re.search(r"\d+$", bucket.name)
    return bucket.start_ns, int(number.group()) if number else 0
