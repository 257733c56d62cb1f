"""One model cut across hosts: what do tensor and pipeline parallelism send, and what do they wait for?

    tensor    every layer on all hosts     h1 [1/4 of block 0]  h2 [1/4 of block 0]  ...   all-reduce after each half
    gpipe     consecutive layers           h1 [block 0] --> h2 [block 1] --> ...           all forward, all backward
    1f1b      the same                     h1 [block 0] --> h2 [block 1] --> ...           one forward, one backward

Real: a transformer in torch on gloo, cut up as Megatron-LM and GPipe do it, English text, the same micro-batches in
every way.  Modelled: the GPU's time, `forward` per block and micro-batch on one whole device and twice that backward;
in `tensor` every host has its share of it.  Embedding and head take no time, so that stages are equally long.

    ./run experiments/model_parallel.py
    ./run experiments/model_parallel.py --set ways=gpipe,1f1b --set microbatches=4,16 --set forward=100us

Expected: parameters of one process that holds everything.  Tensor: 4 all-reduces of batch x context x width values
per block and micro-batch.  Pipeline: that many values once per boundary each way, (p-1)/(m+p-1) of the step idle, and
as many micro-batches held as the schedule says.  With blocks as short as a transfer, 1F1B waits for a round trip over
and over, GPipe for one at each end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.pair_bytes import PairBytes, Pairs, expected
from experiments.settings import Delay, Integers, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training import pipeline
from experiments.training.accounting import StepAccount, account, summary
from experiments.training.device import Cost, Device
from experiments.training.pipeline_schedules import (
    SCHEDULES,
    alike,
    bubble_share,
    hop_ns,
    makespan_ns,
    most_in_flight,
    schedule_named,
)
from experiments.training.shape import Shape
from experiments.workloads import messages
from experiments.workloads.messages import PREAMBLE_BYTES, Message
from topologies.errors import UnknownName, UserError

if TYPE_CHECKING:
    from experiments.training.data_parallel import Plan
    from experiments.training.tensor_parallel import PartTrained

TENSOR = "tensor"
WAYS = (TENSOR, *SCHEDULES)
TOLERANCE = 1e-4
"""Largest difference of a parameter against one process: float32 sums in another order, over the steps."""
BAND = 0.05
"""Of the idle share that follows from the schedule: transfers are not all equally long, NICs moderate interrupts."""
VALUE_BYTES = 4
HEADERS_BYTES = 3 * PREAMBLE_BYTES
"""Of a message, both ways."""


class Settings(BaseSettings):
    """The model and how it is cut."""

    ways: Words = Field(default=written(",".join(WAYS)), description=f"of {', '.join(WAYS)}")
    microbatches: Integers = Field(default=written("8"), description="per step; each is a job of its own")
    layers: int = Field(default=4, ge=1, description="blocks of the transformer; a multiple of the hosts in a pipeline")
    width: int = Field(default=128, ge=8, description="of its vectors")
    heads: int = Field(default=4, ge=1, description="of its attention; a multiple of the hosts in way tensor")
    context: int = Field(default=32, ge=2, description="bytes of text per sequence")
    sequences: int = Field(default=4, ge=1, description="per micro-batch")
    steps: int = Field(default=2, ge=1, description="measured training steps")
    forward: Delay = Field(
        default=written("1ms"),
        gt=0,
        description="of one block and micro-batch on one device; backward takes twice that",
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    """One way, trained."""

    way: str
    microbatches: int
    trained: "Sequence[PartTrained]"
    pairs: Pairs
    accounts: Sequence[StepAccount]

    @property
    def name(self) -> str:
        """In claims."""
        return f"{self.way}, {self.microbatches} micro-batches"

    @property
    def step_ns(self) -> float:
        """Mean of the steps that count; all ranks begin each at one instant."""
        longest: dict[int, int] = {}
        for each in self.accounts:
            longest[each.step] = max(longest.get(each.step, 0), each.step_ns)
        return mean(took_ns for step, took_ns in longest.items() if step >= 0)

    @property
    def idle_share(self) -> float:
        """Of the hosts' time: not computing."""
        computed = mean(each.compute_ns for each in self.accounts if each.step >= 0)
        return 1 - computed / self.step_ns


def run(lab: Lab, settings: Settings) -> None:
    """One job per way and number of micro-batches."""
    from experiments.training.data_parallel import Plan

    for way in settings.ways:
        if way not in WAYS:
            raise UnknownName("way", way, dict.fromkeys(WAYS))
    hosts = [host.name for host in lab.topology.hosts]
    shape = Shape(layers=settings.layers, width=settings.width, heads=settings.heads, context=settings.context)
    _check(settings, len(hosts))
    for number in settings.microbatches:
        plan = Plan(
            shape=shape, sequences=settings.sequences, steps=settings.steps, warmup=1, accumulate=number, seed=lab.seed
        )
        for way in settings.ways:
            found = _measure(lab, plan, way, hosts, settings.forward)
            _note(lab, found, hosts)
            _claim_values(lab, found, plan)
            _claim_bytes(lab, found, plan)
            if way != TENSOR:
                _claim_pipeline(lab, found, settings.layers, settings.forward)


def _check(settings: Settings, hosts: int) -> None:
    """What would fail in every rank at once.  Raises UserError."""
    if hosts < 2:
        raise UserError(f"--topology: {hosts} host; a model is cut across two or more")
    if TENSOR in settings.ways and settings.heads % hosts:
        raise UserError(f"--set heads={settings.heads}: not a multiple of the {hosts} hosts, as way tensor needs")
    if set(settings.ways) & SCHEDULES.keys() and settings.layers % hosts:
        raise UserError(f"--set layers={settings.layers}: not a multiple of the {hosts} hosts, as a pipeline needs")
    for number in settings.microbatches:
        if number < 1:
            raise UserError(f"--set microbatches={number}: write 1 or more")


def _devices(shape: Shape, way: str, hosts: int, forward_ns: int) -> list[Device]:
    """All alike; a block is two halves of equal length in way tensor, each shared by all hosts."""
    if way == TENSOR:
        half = Cost(forward_ns=forward_ns // 2 // hosts, backward_ns=forward_ns // hosts)
        profile = {f"block{number}.{part}": half for number in range(shape.layers) for part in ("attention", "feed")}
    else:
        whole = Cost(forward_ns=forward_ns, backward_ns=2 * forward_ns)
        profile = {f"block{number}": whole for number in range(shape.layers)}
    free = Cost(forward_ns=0, backward_ns=0)
    return [Device(flop_per_s=1.0, profile={**profile, "embedding": free, "head": free})] * hosts


def _measure(lab: Lab, plan: "Plan", way: str, hosts: Sequence[str], forward_ns: int) -> Found:
    from experiments.training.pipeline_parallel import train_pipeline
    from experiments.training.tensor_parallel import train_tensor_parallel

    devices = _devices(plan.shape, way, len(hosts), forward_ns)
    program: Any = train_tensor_parallel if way == TENSOR else train_pipeline
    more = () if way == TENSOR else (way,)
    with PairBytes(lab, hosts, between=("first step", "last step")) as pairs:
        trained = lab.job(program, plan, devices, *more, hosts=hosts, at_line_up=pairs.look)
    found = cast("list[PartTrained]", trained)
    return Found(
        way=way,
        microbatches=plan.accumulate,
        trained=found,
        pairs=pairs.counted(),
        accounts=account([each.steps for each in found]),
    )


def _note(lab: Lab, found: Found, hosts: Sequence[str]) -> None:
    lab.add_busy_ns(pipeline.span_ns([each.steps for each in found.trained]))
    labels = {"way": found.way, "microbatches": found.microbatches}
    losses = found.trained[-1].losses
    lab.sections.setdefault("model_parallel", []).append(
        {
            **labels,
            "step_us": round(found.step_ns / 1e3, 3),
            "idle_share": round(found.idle_share, 4),
            "most_held": max(each.most_held for each in found.trained),
            "sent_MB": round(sum(found.pairs.values()) / 1e6, 6),
            "loss_first": round(losses[0], 4),
            "loss_last": round(losses[-1], 4),
        }
    )
    lab.sections.setdefault("steps", []).extend(
        {**labels, "host": hosts[row["rank"]], **row} for row in summary(found.accounts)
    )


def _claim_values(lab: Lab, found: Found, plan: "Plan") -> None:
    import torch

    from experiments.training.data_parallel import alone
    from experiments.training.pipeline_parallel import stage_weights
    from experiments.training.tensor_parallel import slices

    losses, weights = alone(plan, 1)
    ranks, apart = len(found.trained), 0.0
    for rank, each in enumerate(found.trained):
        if found.way == TENSOR:
            wanted = slices(plan.shape, weights, rank=rank, ranks=ranks)
        else:
            wanted = stage_weights(plan.shape, weights, stage=rank, stages=ranks)
        for raw, values in zip(each.weights, wanted, strict=True):
            held = torch.frombuffer(bytearray(raw), dtype=torch.float32)
            apart = max(apart, float((held - values.flatten()).abs().max()))
    behind = max(abs(mine - loss) for mine, loss in zip(found.trained[-1].losses, losses, strict=True))
    lab.add_claim(
        f"{found.name}: parts and losses are those of one process that holds the whole model",
        expected=f"no parameter and no loss differs by more than {TOLERANCE}",
        measured=f"{apart:.2e}, {behind:.2e}",
        holds=apart <= TOLERANCE and behind <= TOLERANCE,
    )


def sent(found: Found, plan: "Plan") -> tuple[list[Message], int]:
    """Every message of all steps as gloo sends it, and the bytes that the papers' formulas say."""
    ranks, passes = len(found.trained), found.microbatches * (plan.warmup + plan.steps)
    size_bytes = plan.sequences * plan.shape.context * plan.shape.width * VALUE_BYTES
    if found.way == TENSOR:
        exchanges = 4 * plan.shape.layers * passes
        return list(messages.all_reduce(ranks, size_bytes)) * exchanges, 2 * (ranks - 1) * size_bytes * exchanges
    once = [
        Message(*pair, size_bytes) for stage in range(ranks - 1) for pair in ((stage, stage + 1), (stage + 1, stage))
    ]
    return once * passes, 2 * (ranks - 1) * size_bytes * passes


def _claim_bytes(lab: Lab, found: Found, plan: "Plan") -> None:
    listed, formula_bytes = sent(found, plan)
    wanted, total = expected(listed), sum(found.pairs.values())
    off = {pair for pair in wanted.keys() | found.pairs.keys() if wanted.get(pair) != found.pairs.get(pair)}
    words = "4 all-reduces per block" if found.way == TENSOR else "one tensor each way per boundary"
    header_bytes = HEADERS_BYTES * len(listed)
    lab.add_claim(
        f"{found.name}: bytes between hosts are those of {words} and micro-batch",
        expected=f"{formula_bytes} B and {header_bytes} B of gloo's headers, between every pair to the byte",
        measured=f"{total} B, {len(off)} pairs differ",
        holds=not off and total == formula_bytes + header_bytes,
    )


def _claim_pipeline(lab: Lab, found: Found, blocks: int, forward_ns: int) -> None:
    stages, hop = len(found.trained), hop_ns([each.steps for each in found.trained])
    share = float(bubble_share(stages, found.microbatches))
    each_ns = forward_ns * blocks // stages
    passes = alike(each_ns, 2 * each_ns)
    took_ns = makespan_ns(found.way, stages, found.microbatches, spent_ns=passes, hop_ns=hop)
    with_hops = 1 - 3 * each_ns * found.microbatches / took_ns
    lab.add_claim(
        f"{found.name}: (p-1)/(m+p-1) of the step is idle, and what transfers add in this schedule",
        expected=f"{share:.4f}; {with_hops:.4f} +- {BAND:.0%} with {hop / 1e3:.1f} us per transfer",
        measured=f"{found.idle_share:.4f}",
        holds=share <= found.idle_share and abs(found.idle_share / with_hops - 1) <= BAND,
    )
    schedule = schedule_named(found.way)
    wanted = [most_in_flight(schedule(stage, stages, found.microbatches)) for stage in range(stages)]
    held = [each.most_held for each in found.trained]
    lab.add_claim(
        f"{found.name}: micro-batches whose activations a stage holds at once",
        expected=", ".join(map(str, wanted)),
        measured=", ".join(map(str, held)),
        holds=held == wanted,
    )


EXPERIMENT = Experiment(
    name="model_parallel",
    question="What do tensor and pipeline parallelism send between hosts, and what do they wait for?",
    settings=Settings,
    run=run,
    topology="star:hosts=4",
)

if __name__ == "__main__":
    main(EXPERIMENT)
