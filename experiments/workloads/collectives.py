"""Measures collectives on a fabric: a program for the ranks, and the job around it.

    line-up, read counters, line-up -> start at one instant -> the collective -> line-up, read counters -> check values

Nothing but the collective crosses the fabric between the two readings, so bytes can be held against the formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from experiments.results import Row
from experiments.workloads.messages import WireBytes, wire_bytes
from experiments.workloads.operations import operation_named
from experiments.workloads.samples import Iteration, Sample, Step, audit, iterations, row
from testbed.workers.counters import read_header_bytes
from testbed.workers.rank import Rank

if TYPE_CHECKING:
    from experiments.lab import Lab
    from experiments.workloads.exchanges import Exchange


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished job of collectives."""

    iterations: tuple[Iteration, ...]
    """Warm-up included, in the order in which they ran."""

    @property
    def rows(self) -> list[Row]:
        """For results.json."""
        return [
            row(iteration, factor=operation_named(iteration.step.op).factor(len(iteration.samples)))
            for iteration in self.iterations
            if iteration.number >= 0
        ]

    @property
    def audit(self) -> list[dict[str, Any]]:
        """The section `audit` of results.json: one entry per row."""
        return [audit(iteration, _wire(iteration)) for iteration in self.iterations if iteration.number >= 0]

    @property
    def busy_ns(self) -> int:
        """The time in which operations ran, warm-up included."""
        return sum(iteration.time_ns for iteration in self.iterations)


def _wire(iteration: Iteration) -> tuple[WireBytes, ...]:
    ranks = len(iteration.samples)
    messages = operation_named(iteration.step.op).messages(ranks, iteration.step.size_bytes)
    return wire_bytes(messages, ranks=ranks)


def steps_of(ops: Sequence[str], sizes_bytes: Sequence[int], ranks: int) -> tuple[Step, ...]:
    """Every operation at every size it can have, each once.  Raises UnknownName or UserError."""
    steps: dict[Step, None] = {}
    for op in ops:
        for wanted_bytes in sizes_bytes:
            steps[Step(op=op, size_bytes=operation_named(op).size_bytes(wanted_bytes, ranks))] = None
    return tuple(steps)


def measure(
    lab: "Lab",
    steps: Sequence[Step],
    *,
    iterations_each: int,
    warmup: int,
    hosts: Sequence[str] | None = None,
    connections: int = 1,
) -> Measured:
    """Runs every step on the lab's hosts (all of them, or `hosts` in rank order).  Raises RunFailed."""
    found = lab.job(program, tuple(steps), iterations_each, warmup, hosts=hosts, connections=connections)
    return Measured(iterations=tuple(iterations(steps, cast("list[list[list[Sample]]]", found))))


def program(rank: Rank, steps: Sequence[Step], iterations_each: int, warmup: int) -> list[list[Sample]]:
    """What every rank runs: [step][iteration]."""
    from experiments.workloads.exchanges import EXCHANGES  # imports torch, which only ranks need

    found = []
    for step in steps:
        exchange = EXCHANGES[step.op](step.size_bytes)
        found.append([sample(rank, step, exchange, number) for number in range(-warmup, iterations_each)])
    return found


def sample(rank: Rank, step: Step, exchange: "Exchange", number: int) -> Sample:
    """One iteration, between two readings of the host's counters.  Values of warm-up iterations are not checked."""
    exchange.fill(number)
    rank.line_up(f"before {step.op}")
    before = rank.counters()
    rank.line_up(f"start of {step.op}")
    with rank.operation(step.op, step.size_bytes) as span:
        exchange.run()
    rank.line_up(f"end of {step.op}")
    return Sample(
        iteration=number,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        counters=rank.counters() - before,
        wrong=exchange.wrong(number) if number >= 0 else 0,
        header_bytes=read_header_bytes(),
    )


def collective(rank: Rank, op: str, size_bytes: int, iterations_each: int) -> list[Sample]:
    """One operation at one size without warm-up: the smallest program there is, for benchmarks."""
    step = Step(op=op, size_bytes=operation_named(op).size_bytes(size_bytes, rank.size))
    return program(rank, (step,), iterations_each, 0)[0]
