"""ZeRO-3: parameters in pieces.  What does it send beside data parallelism, and how much of that can be hidden?

    rank r keeps 1/P of every stage
    forward    gather stage 0, 1, 2 ... just in time          (P-1)/P n
    backward   gather them again, last first                  (P-1)/P n
               reduce-scatter each stage's gradients          (P-1)/P n, or 2 (P-1)/P n as gloo does it
    data parallelism: one all-reduce                          2 (P-1)/P n

Real: torch code, values checked against DDP's and one process's.  Modelled: the GPU's time per stage, slept.
`fsdp` is torch's own fully_shard, `gloo` and `direct` are loops of ours (experiments/training/sharded.py) with gloo's
reduce_scatter and with a true one.

    ./run experiments/zero3.py --topology star:hosts=8
    ./run experiments/zero3.py --set prefetch=0,1,2 --set ways=ddp,direct

Expected: 2.0 x DDP's bytes with gloo's reduce-scatter (and in fsdp), 1.5 x with a true one; prefetching one stage hides
all gathers but the first where a stage computes longer than the next one's gather takes.
"""

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Flops, Integers, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training import pipeline
from experiments.training.accounting import account, length, summary, union, without
from experiments.training.device import Device
from experiments.training.shape import Shape
from experiments.training.timeline import Kind
from topologies.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.training.data_parallel import Plan, Trained

WAYS = ("ddp", "gloo", "direct", "fsdp")
RATIO = {"gloo": 2.0, "fsdp": 2.0, "direct": 1.5}
"""Bytes against DDP's (module docstring)."""
RATIO_BAND = 0.01
"""Padding of stages to a multiple of P, gloo's notifications, retransmissions."""

HIDDEN = 0.25
"""Of the gathers' time stays: the first of the forward and of the backward pass have nothing before them."""


class Settings(BaseSettings):
    """The model, the device and what is compared."""

    ways: Words = Field(default=written("ddp,gloo,direct,fsdp"), description=f"of {', '.join(WAYS)}")
    prefetch: Integers = Field(default=written("0,1"), description="stages gathered ahead; for gloo and direct")
    layers: int = Field(default=4, ge=1, description="blocks of the transformer")
    width: int = Field(default=256, ge=8, description="of its vectors; a block has 12 width^2 parameters")
    heads: int = Field(default=4, ge=1, description="of its attention; divides the width")
    context: int = Field(default=32, ge=2, description="bytes of text per sequence")
    sequences: int = Field(default=4, ge=1, description="per rank")
    steps: int = Field(default=3, ge=1, description="measured training steps")
    warmup: int = Field(default=1, ge=1, description="training steps before them")
    device: Flops = Field(default=written("300G"), gt=0, description="FLOP/s of the modelled GPU")


def run(lab: Lab, settings: Settings) -> None:
    """One job per way and prefetch depth."""
    from experiments.training.data_parallel import Plan

    for way in settings.ways:
        if way not in WAYS:
            raise UnknownName("way", way, dict.fromkeys(WAYS))
    plan = Plan(
        shape=Shape(layers=settings.layers, width=settings.width, heads=settings.heads, context=settings.context),
        sequences=settings.sequences,
        steps=settings.steps,
        warmup=settings.warmup,
        bucket_bytes=1 << 20,
        seed=lab.seed,
    )
    device = Device(flop_per_s=settings.device)
    table = []
    for way in settings.ways:
        for prefetch in settings.prefetch if way in ("gloo", "direct") else (0,):
            table.append(_measure(lab, plan, device, way, prefetch))
    lab.add("sharding", [line for line, _ in table])
    _claim(lab, table)


def _measure(
    lab: Lab, plan: "Plan", device: Device, way: str, prefetch: int
) -> "tuple[dict[str, object], Sequence[Trained]]":
    trained = _train(lab, plan, device, way, prefetch)
    sent = sum(each.payload_bytes for each in trained)
    records = [each.steps for each in trained]
    lab.add_busy_ns(pipeline.span_ns(records))
    accounts = account(records)
    if way != "fsdp":
        lab.sections.setdefault("steps", []).extend(
            {"way": way, "prefetch": prefetch, **row} for row in summary(accounts)
        )
    line = {
        "way": way,
        "prefetch": prefetch,
        "step_us": round(pipeline.step_ns(records) / 1e3, 3),
        "compute_us": round(pipeline.compute_ns(records) / 1e3, 3),
        "exposed_gathers_us": round(_exposed_gathers_ns(trained) / 1e3, 3),
        "sent_MB": round(sent / 1e6, 6),
        "loss_first": round(mean(each.losses[0] for each in trained), 4),
        "loss_last": round(mean(each.losses[-1] for each in trained), 4),
    }
    return line, trained


def _train(lab: Lab, plan: "Plan", device: Device, way: str, prefetch: int) -> "list[Trained]":
    from experiments.training.data_parallel import train
    from experiments.training.sharded import train_fsdp, train_sharded

    devices = [device] * len(lab.topology.hosts)
    if way == "ddp":
        return cast("list[Trained]", lab.job(train, plan, devices))
    if way == "fsdp":
        return cast("list[Trained]", lab.job(train_fsdp, plan, devices))
    return cast("list[Trained]", lab.job(train_sharded, plan, devices, prefetch, way))


def _exposed_gathers_ns(trained: "Sequence[Trained]") -> float:
    """Per step and rank: time in gathers that no computing hides."""
    found = []
    for each in trained:
        for step in (record for record in each.steps if record.number >= 0):
            compute = union((it.start_ns, it.end_ns) for it in step.intervals if it.kind is Kind.COMPUTE)
            gathers = union((it.start_ns, it.end_ns) for it in step.intervals if ".gather." in it.name)
            found.append(length(without(gathers, compute)))
    return mean(found)


def _claim(lab: Lab, table: "Sequence[tuple[dict[str, object], Sequence[Trained]]]") -> None:
    steps = {(str(line["way"]), line["prefetch"]): (line, trained) for line, trained in table}
    _claim_prefetch(lab, {key: line for key, (line, _) in steps.items()})
    reference = steps.get(("ddp", 0))
    if reference is None:
        return
    for (way, prefetch), (line, trained) in steps.items():
        if way == "ddp":
            continue
        ratio = cast("float", line["sent_MB"]) / cast("float", reference[0]["sent_MB"])
        lab.add_claim(
            f"{way}, prefetch {prefetch}: bytes sent against data parallelism",
            expected=f"{RATIO[way]} +- {RATIO_BAND:.0%}",
            measured=f"{ratio:.4f}",
            holds=abs(ratio / RATIO[way] - 1) <= RATIO_BAND,
        )
        apart = _apart(trained, reference[1])
        lab.add_claim(
            f"{way}, prefetch {prefetch}: the parameters are data parallelism's",
            expected="no parameter differs by more than 1e-4",
            measured=f"{apart:.2e}",
            holds=apart <= 1e-4,
        )


def _claim_prefetch(lab: Lab, steps: "Mapping[tuple[str, object], dict[str, object]]") -> None:
    for way in ("gloo", "direct"):
        if (way, 0) not in steps or (way, 1) not in steps:
            continue
        late, ahead = (cast("float", steps[way, depth]["exposed_gathers_us"]) for depth in (0, 1))
        lab.add_claim(
            f"{way}: gathering one stage ahead hides all gathers but the first of each pass",
            expected=f"exposed gathers at most {HIDDEN} of what they are without prefetch",
            measured=f"{ahead:.1f} of {late:.1f} us = {ahead / late:.2f}",
            holds=ahead <= HIDDEN * late,
        )


def _apart(one: "Sequence[Trained]", other: "Sequence[Trained]") -> float:
    import torch

    sides = [
        torch.cat([torch.frombuffer(bytearray(part), dtype=torch.float32) for part in each[0].weights])
        for each in (one, other)
    ]
    return float((sides[0] - sides[1]).abs().max())


EXPERIMENT = Experiment(
    name="zero3",
    question="How many bytes does ZeRO-3 send beside data parallelism, and how much of it does prefetching hide?",
    settings=Settings,
    run=run,
    topology="star:hosts=8",
)

if __name__ == "__main__":
    main(EXPERIMENT)
