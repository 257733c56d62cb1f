"""Blocks into one port that overflows, with its queue sampled or not: nothing else may differ."""

import time
from contextlib import ExitStack
from typing import cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Delay, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.blocks import program
from experiments.workloads.samples import Sample, Step, iterations, row
from testbed.sampler import Sampler

SIZE_BYTES = 300_000
HOT = "s1-eth1"


class Settings(BaseSettings):
    """Whether to sample."""

    period: Delay = Field(default=written("10us"), description="between two samples; 0 ns samples nothing")


def run(lab: Lab, settings: Settings) -> None:
    """One job of three repetitions, then another one that nobody samples."""
    names = [name for name, place in lab.fabric.plan.placed.items() if place.host is None]
    with ExitStack() as stack:
        if settings.period:
            sampler = Sampler(lab.fabric, interfaces=[*names, "h1-eth0"], period_ns=settings.period)
            stack.callback(_left, lab)
            stack.enter_context(sampler)
        _blocks(lab)
        lab.add("within", {name: lab.sample()[name].port.queue_max_bytes for name in names})
        lab.add("left_ns", time.monotonic_ns())
    _blocks(lab)
    if settings.period:
        lab.add("series", {name: _series(sampler, name) for name in (HOT, "h1-eth0")})
        lab.add("counted_bytes", lab.sample()[HOT].port.sent_bytes)


def _left(lab: Lab) -> None:
    lab.add("left_ns", time.monotonic_ns() - lab.sections["left_ns"])


def _blocks(lab: Lab) -> None:
    found = cast("list[list[list[Sample]]]", lab.job(program, (SIZE_BYTES,), 3, 0, process_group=False))
    for iteration in iterations([Step(op="blocks", size_bytes=SIZE_BYTES)], found):
        lab.add_rows([row(iteration, factor=1.0)])
        lab.add_busy_ns(iteration.time_ns)


def _series(sampler: Sampler, name: str) -> dict[str, list[int]]:
    series = sampler.series()[name]
    return {
        "time_ns": series.time_ns.tolist(),
        "queue_bytes": series["queue_bytes"].tolist(),
        "classes_queue_bytes": series.total("queue_bytes").tolist(),
        "peak_bytes": series["peak_bytes"].tolist(),
        "delivered_bytes": series["delivered_bytes"].tolist(),
        "sent_bytes": series.total("sent_bytes").tolist(),
        "drops": series.total("dropped_packets_egress").tolist(),
    }


EXPERIMENT = Experiment(
    name="sampled",
    question="Does sampling change anything?",
    settings=Settings,
    run=run,
    topology="star:hosts=7,buffer=60k",
    policy="lossy",
    host={"rto_min": "5ms"},
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
