"""Every collective over a sweep of sizes, as nccl-tests would print it: which of them does this fabric serve well?

    all_reduce      r0 -> rN-1 -> ... -> r0   ring        broadcast   r0 --> r1, r2, r4, ...   binomial tree
    all_gather      ring, the other way round             gather      r1, r2, ... ==> r0       incast
    reduce_scatter  on gloo an all_reduce                 scatter     r0 ==> r1, r2, ...       outcast
    reduce          ring, then incast                     all_to_all  everybody to everybody   P(P-1) flows at once
    barrier         log2 P rounds of empty messages       send_recv   r -> r + 1               P flows

    ./run experiments/collectives.py --set ops=all_reduce,all_to_all --set begin=64k --set end=64M --set factor=4

`begin`, `end`, `factor` and `step` are -b, -e, -f and -i of nccl-tests; the run's `nccl.txt` looks like its output.
The table `model` holds the best iteration of the largest size against the time that the hosts' links alone would need
for what gloo sends: 1 is perfect, 2 is half the speed.

Expected: rings near their model wherever each flow has a link to itself; reduce_scatter as slow as all_reduce, because
gloo runs one; broadcast L(L+1)/2 link times for 2^L ranks, because a child forwards only what it has in full.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field, field_validator, model_validator

from experiments.bounds import line_rate_bps
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.results import Row
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, Words, written
from experiments.workloads import nccl_tests
from experiments.workloads.collectives import Measured, measure, steps_of
from experiments.workloads.cost_models import LINK_TIMES, ideal_ns
from experiments.workloads.nccl_tests import Sweep
from experiments.workloads.operations import OPERATIONS, operation_named
from topologies.errors import UserError

TOLERANCE = 0.3
"""Of claims about ratios of times: gloo's lock-step costs rings about a sixth of the line rate, trees less."""


class Settings(BaseSettings):
    """Which collectives, which sizes, how often."""

    ops: Words = Field(default=written("all"), description=f"all, or some of {','.join(OPERATIONS)}")
    begin: Size = Field(default=written("64Ki"), ge=4, description="smallest size in bytes (nccl-tests -b)")
    end: Size = Field(default=written("16Mi"), description="largest size (nccl-tests -e)")
    factor: int = Field(default=16, ge=2, description="from one size to the next (nccl-tests -f)")
    step: Size = Field(default=0, description="bytes from one size to the next, instead of factor (nccl-tests -i)")
    iterations: int = Field(default=2, ge=1, description="measured iterations of each (nccl-tests -n)")
    warmup: int = Field(default=1, ge=0, description="iterations before them (nccl-tests -w)")
    connections: int = Field(default=1, ge=1, le=64, description="TCP connections per pair of ranks")

    @field_validator("ops")
    @classmethod
    def _known(cls, ops: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(OPERATIONS) if ops == ("all",) else tuple(operation_named(op).name for op in ops)
        except UserError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _ordered(self) -> "Settings":
        if self.end < self.begin:
            raise ValueError(f"end={self.end} is below begin={self.begin}")
        if self.step and "factor" in self.model_fields_set:
            raise ValueError(f"step={self.step} and factor={self.factor}: sizes grow in one way, give one of them")
        return self

    def sizes(self) -> Iterator[int]:
        """begin, begin x factor (or + step), ... up to end."""
        size = self.begin
        while size <= self.end:
            yield size
            size = size + self.step if self.step else size * self.factor

    @property
    def sweep(self) -> Sweep:
        """As nccl-tests would say it."""
        return Sweep(
            begin_bytes=self.begin,
            end_bytes=self.end,
            step=f"{self.step}(bytes)" if self.step else f"{self.factor}(factor)",
            iterations=self.iterations,
            warmup=self.warmup,
        )


def run(lab: Lab, settings: Settings) -> None:
    """One job for the whole sweep."""
    steps = steps_of(settings.ops, list(settings.sizes()), len(lab.topology.hosts))
    measured = measure(
        lab, steps, iterations_each=settings.iterations, warmup=settings.warmup, connections=settings.connections
    )
    lab.add_rows(measured.rows)
    lab.add_busy_ns(measured.busy_ns)
    lab.add("audit", measured.audit)
    lab.add("model", list(against_model(measured, line_rate_bps(lab.topology), lab.topology.mtu)))
    (lab.folder.path / "nccl.txt").write_text(nccl_tests.text(measured.rows, settings.sweep))
    _claim(lab, measured.rows)


def against_model(measured: Measured, rate_bps: int, mtu: int) -> Iterator[dict[str, Any]]:
    """Per operation at its largest size: best time, the model's time at the payload share of the line rate, ratio."""
    header_bytes = measured.iterations[0].samples[0].header_bytes
    payload_bps = rate_bps * (mtu + 14 - header_bytes) / (mtu + 14)
    for op, (size_bytes, time_us) in largest(measured.rows).items():
        if op in LINK_TIMES:
            ranks = measured.rows[0].ranks
            ideal_us = ideal_ns(op, ranks=ranks, size_bytes=size_bytes, payload_bps=payload_bps) / 1e3
            yield {
                "op": op,
                "bytes": size_bytes,
                "ideal_us": round(ideal_us, 3),
                "best_us": round(time_us, 3),
                "ratio": round(time_us / ideal_us, 4),
            }


def largest(rows: Sequence[Row]) -> dict[str, tuple[int, float]]:
    """Operation -> its largest size and the best time there in microseconds.

    The best, because an iteration that met a timeout shows TCP's patience and not the operation's cost.
    """
    found = {}
    for op in dict.fromkeys(row.op for row in rows):
        size_bytes = max(row.bytes for row in rows if row.op == op)
        found[op] = (size_bytes, min(row.time_us for row in rows if row.op == op and row.bytes == size_bytes))
    return found


def _claim(lab: Lab, rows: Sequence[Row]) -> None:
    times = {op: time_us for op, (_, time_us) in largest(rows).items()}
    pairs = (
        ("reduce_scatter", "all_reduce", 1.0, "reduce_scatter takes as long as all_reduce: gloo runs one"),
        ("scatter", "gather", 1.0, "scatter takes as long as gather: both are limited by the root's link"),
    )
    for one, other, ratio, claim in pairs:
        if one in times and other in times:
            seen = times[one] / times[other]
            lab.add_claim(
                claim,
                expected=f"ratio of times {ratio:g} +- {TOLERANCE}",
                measured=f"{seen:.2f}",
                holds=abs(seen - ratio) <= TOLERANCE,
            )


EXPERIMENT = Experiment(
    name="collectives",
    question="Which collectives does this fabric serve well, and how far is each from what the links allow?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
