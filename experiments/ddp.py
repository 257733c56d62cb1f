"""Data-parallel training of a real transformer: how much of a step do the GPUs wait for the network?

    rank 0: batch -> forward -> backward -----------> step     every rank holds the whole model;
    rank 1: batch -> forward -> backward -----------> step     gradients are averaged in buckets
      ...                          [bucket][bucket] <- ring all-reduce over the fabric, while backward goes on

Real: torch's DistributedDataParallel on gloo, a transformer of a few million parameters, English text, its loss.
Modelled: the GPU's time per layer, slept (experiments/training/device.py), so that communication overlaps as it would.

    ./run experiments/ddp.py --topology fat_tree:k=4 --set steps=20
    ./run experiments/ddp.py --set device=500G --set bucket=256KiB

Expected: the loss falls, all ranks hold equal parameters, and they are those of one process that saw every batch.
With overlap a step takes the longer of compute and communication plus what cannot overlap; without it, the sum.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Flops, Size, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.traces.file import write_folder
from experiments.traces.recording import recorded
from experiments.training import pipeline
from experiments.training.accounting import StepAccount, account, stragglers, summary
from experiments.training.device import Device, read_profile
from experiments.training.shape import Shape
from topologies.errors import UserError

if TYPE_CHECKING:
    from experiments.training.data_parallel import Plan, Trained

AT_ONCE = Device(flop_per_s=float("inf"))
"""Takes no time for anything: what is left of a step is communication."""
BAND = 0.10
"""Issue 5: a step is within 10% of what its parts say."""
TOLERANCE = 2e-3
"""Largest difference of a parameter against one process: float32 sums in another order, amplified by the steps."""


class Settings(BaseSettings):
    """The model, the device and the loop."""

    layers: int = Field(default=4, ge=1, description="blocks of the transformer")
    width: int = Field(default=256, ge=8, description="of its vectors; a block has 12 width^2 parameters")
    heads: int = Field(default=4, ge=1, description="of its attention; divides the width")
    context: int = Field(default=32, ge=2, description="bytes of text per sequence")
    sequences: int = Field(default=4, ge=1, description="per rank and micro-batch")
    steps: int = Field(default=5, ge=2, description="measured training steps")
    warmup: int = Field(default=1, ge=0, description="training steps before them; overlap=on needs one")
    accumulate: int = Field(default=1, ge=1, description="micro-batches per step; gradients are exchanged once")
    bucket: Size = Field(default=written("1MiB"), ge=4, description="DDP's bucket_cap_mb; torch's own default is 25MiB")
    overlap: Words = Field(
        default=written("on,off"), description="on: DDP's hooks; off: all-reduce after the backward pass"
    )
    device: Flops = Field(default=written("1T"), gt=0, description="FLOP/s of the modelled GPU")
    profile: str = Field(
        default="", description="YAML file with forward and backward times per layer, instead of device"
    )
    chakra: bool = Field(default=False, description="yes: write the steps as a Chakra trace too, into trace-overlap-*/")


def run(lab: Lab, settings: Settings) -> None:
    """One job per way of exchanging gradients."""
    from experiments.training.data_parallel import Plan, alone

    plan = Plan(
        shape=shape(settings),
        sequences=settings.sequences,
        steps=settings.steps,
        warmup=settings.warmup,
        accumulate=settings.accumulate,
        bucket_bytes=settings.bucket,
        seed=lab.seed,
    )
    profile = read_profile(Path(settings.profile)) if settings.profile else {}
    device = Device(flop_per_s=settings.device, profile=profile)
    found: dict[str, list[Trained]] = {}
    for way in ways(settings.overlap, settings.warmup):
        before = lab.sample()
        found[way] = train_on(lab, replace(plan, overlap=way == "on"), device)
        note(lab, way, found[way], sent=_sent_bytes(lab, before))
        if settings.chakra:
            write_folder(lab.folder.path / f"trace-overlap-{way}", recorded([each.steps for each in found[way]]))
        bare = train_on(lab, replace(plan, overlap=way == "on", steps=2), AT_ONCE)
        _claim_time(lab, way, found[way], bare)
    losses, weights = alone(plan, len(lab.topology.hosts))
    for way, trained in found.items():
        _claim_learning(lab, way, trained, losses, weights)


def train_on(lab: Lab, plan: "Plan", device: Device) -> "list[Trained]":
    """One job on every host, all with the same device."""
    from experiments.training.data_parallel import train

    return cast("list[Trained]", lab.job(train, plan, [device] * len(lab.topology.hosts)))


def shape(settings: Settings) -> Shape:
    """Of the transformer.  Raises UserError."""
    return Shape(layers=settings.layers, width=settings.width, heads=settings.heads, context=settings.context)


def ways(words: Sequence[str], warmup: int) -> Sequence[str]:
    """Checked.  Raises UserError."""
    for word in words:
        if word not in ("on", "off"):
            raise UserError(f"--set overlap={word}: write on, off or on,off")
    if "on" in words and not warmup:
        raise UserError(
            "--set warmup=0: with overlap=on DDP cuts its buckets anew after the first step, so that step is like no "
            "other; use warmup=1 or more, or overlap=off"
        )
    return words


def note(lab: Lab, way: str, trained: "Sequence[Trained]", *, sent: int) -> None:
    """The sections of results.json that tell where a job's steps went."""
    records = [each.steps for each in trained]
    accounts = account(records)
    hosts = [host.name for host in lab.topology.hosts]
    lab.add_busy_ns(pipeline.span_ns(records))
    lab.sections.setdefault("steps", []).extend(
        {"overlap": way, "host": hosts[row["rank"]], **row} for row in summary(accounts)
    )
    lab.sections.setdefault("training", []).append(
        {
            "overlap": way,
            "ranks": len(trained),
            "gradient_bytes": sum(trained[0].buckets_bytes),
            "buckets": len(trained[0].buckets_bytes),
            "step_us": round(mean_step_ns(accounts) / 1e3, 3),
            "halting": round(mean(each.halting for each in accounts if each.step >= 0), 4),
            "loss_first": round(mean(each.losses[0] for each in trained), 4),
            "loss_last": round(mean(each.losses[-1] for each in trained), 4),
            "sent_bytes": sent,
            "last_to_arrive": [hosts[rank] for rank in list(stragglers(records))[:3]],
        }
    )
    lab.sections.setdefault("step_accounts", []).extend({"overlap": way, **each.as_dict()} for each in accounts)


def mean_step_ns(accounts: Sequence[StepAccount]) -> float:
    """Over ranks and the steps that count."""
    return mean(each.step_ns for each in accounts if each.step >= 0)


def _sent_bytes(lab: Lab, before: Any) -> int:
    """Out of all hosts since then, headers included."""
    after = lab.sample()
    names = [end.name for end in lab.topology.host_interfaces()]
    return sum(after[name].tx_bytes - before[name].tx_bytes for name in names)


def _claim_learning(lab: Lab, way: str, trained: "Sequence[Trained]", losses: Sequence[float], weights: Any) -> None:
    import torch

    mine = [mean(each.losses[step] for each in trained) for step in range(len(losses))]
    lab.add_claim(
        f"overlap {way}: the model learns",
        expected="a lower loss at the end than at the start",
        measured=f"{mine[0]:.3f} -> {mine[-1]:.3f} nats per byte",
        holds=mine[-1] < mine[0],
    )
    lab.add_claim(
        f"overlap {way}: all ranks hold the same parameters",
        expected="bit for bit",
        measured=f"{len({each.weights for each in trained})} different sets",
        holds=len({each.weights for each in trained}) == 1,
    )
    held = [torch.frombuffer(bytearray(each), dtype=torch.float32) for each in trained[0].weights]
    apart = max(float((one - other.flatten()).abs().max()) for one, other in zip(held, weights, strict=True))
    lab.add_claim(
        f"overlap {way}: they are those of one process that saw every batch",
        expected=f"no parameter differs by more than {TOLERANCE}",
        measured=f"{apart:.2e}",
        holds=apart <= TOLERANCE,
    )


def _claim_time(lab: Lab, way: str, trained: "Sequence[Trained]", bare: "Sequence[Trained]") -> None:
    """`bare` is the same job on devices that take no time: what communication takes when nothing hides it."""
    records = [each.steps for each in trained]
    parts = (pipeline.compute_ns(records), pipeline.step_ns([each.steps for each in bare]))
    if way == "on":
        ready_ns, sizes_bytes = pipeline.buckets(records)
        wanted_ns = pipeline.overlapped_ns(*parts, ready_ns=ready_ns, sizes_bytes=sizes_bytes)
        words = "the longer of compute and communication, and the ends that cannot overlap"
    else:
        wanted_ns = pipeline.serial_ns(*parts)
        words = "compute and then communication"
    measured_ns = pipeline.step_ns(records)
    lab.add_claim(
        f"overlap {way}: a step takes {words}",
        expected=f"{wanted_ns / 1e3:.1f} us +- {BAND:.0%}, from {parts[0] / 1e3:.1f} and {parts[1] / 1e3:.1f} us",
        measured=f"{measured_ns / 1e3:.1f} us",
        holds=abs(measured_ns / wanted_ns - 1) <= BAND,
    )


EXPERIMENT = Experiment(
    name="ddp",
    question="How much of a data-parallel training step do the GPUs wait for the network, with and without overlap?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
