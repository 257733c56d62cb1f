"""A large model in three dimensions: what does each kind of parallelism send, and what does it cost the step?

    rack 1                 rack 2                 rack 3                 rack 4            tp=4, dp=2, pp=2
    h1 h2 h3 h4            h5 h6 h7 h8            h9 .. h12              h13 .. h16
    [= layers 1-4, tp =]   [= layers 1-4, tp =]   [= layers 5-8, tp =]   [= layers 5-8, tp =]
         `------- dp --------'   |                     `------- dp --------'
         `------------------- pp ----------------------'     activations on, gradients back

By shape only: the arrays that are exchanged have the sizes of a published model (GPT-3 175B, Llama 3, ...), divided by
`scale`; nothing is learnt, but every sum and every hand-over is checked.  The device's time comes from FLOP formulas
and `device`, divided by `scale` too, and is slept.  A step takes 1/scale of the real one where bytes and FLOP decide;
latencies do not shrink, so that the more is scaled, the more they weigh.

    ./run experiments/large_model.py
    ./run experiments/large_model.py --set model=gpt3_175b --set scale=512 --set orders=tp-dp-pp,dp-pp-tp
    ./run experiments/large_model.py --topology leaf_spine:rate=400G --set tp=2 --set pp=4 --set microbatches=8

Expected: bytes of Megatron-LM's formulas in every dimension, and gloo's headers.  Tensor parallelism sends by far the
most, and nothing hides it: over Ethernet it halts the devices most of the time, which is why it stays within a node, or
here within a rack.  A step is as long as the pipeline's schedule makes it of its stages' passes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.pair_bytes import PairBytes, Pairs, expected
from experiments.settings import Flops, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training import pipeline
from experiments.training.accounting import StepAccount, account, summary
from experiments.training.grid import DIMENSIONS, Grid
from experiments.training.large_models import MODELS, model_named
from experiments.training.large_plan import LargePlan
from experiments.training.pipeline_schedules import SCHEDULES, Action, bubble_share, hop_ns, makespan_ns, schedule_named
from experiments.training.racks import rack_of
from experiments.training.timeline import Kind, StepRecord
from experiments.workloads.messages import PREAMBLE_BYTES
from topologies.errors import UserError

if TYPE_CHECKING:
    from experiments.training.large_step import LargeTrained

HEADER_BYTES = 3 * PREAMBLE_BYTES
"""Of a gloo message, both ways."""
ROUNDING = 1e-3
"""Of the formulas' bytes: arrays are whole numbers of values."""
PLAYED = 0.05
"""Of a step: passes of a stage are not all equally long, and copies of the model begin theirs apart."""
EXPLAINED = 0.02
"""Of a step: may be neither computing nor waiting for an exchange, such as the last hand-over leaving a rank."""


class Settings(BaseSettings):
    """The model, the grid and the device."""

    model: str = Field(default="llama3_8b", description=f"of {', '.join(MODELS)}")
    scale: int = Field(default=128, ge=1, description="divides all arrays and computing times; latencies stay")
    layers: int = Field(default=8, ge=0, description="that are run, a multiple of pp; 0: all of the model's")
    tp: int = Field(default=4, ge=1, description="ranks that share every layer")
    pp: int = Field(default=2, ge=1, description="stages of the pipeline")
    dp: int = Field(default=2, ge=1, description="copies of the model; tp x pp x dp hosts are needed")
    orders: Words = Field(
        default=written("tp-dp-pp"), description="which dimension's ranks are neighbours first; each is a job"
    )
    microbatches: int = Field(default=4, ge=1, description="per step and copy")
    sequences: int = Field(default=1, ge=1, description="per micro-batch, each of the model's context")
    schedule: str = Field(default="1f1b", description=f"of {', '.join(SCHEDULES)}")
    value_bytes: int = Field(default=2, description="of an activation: 2 or 4")
    gradient_bytes: int = Field(default=2, description="of a parameter's gradient: 2 or 4")
    steps: int = Field(default=1, ge=1, description="measured training steps")
    warmup: int = Field(default=1, ge=0, description="training steps before them")
    device: Flops = Field(default=written("400T"), gt=0, description="FLOP/s of the modelled GPU; 400T as in Llama 3")


@dataclass(frozen=True, kw_only=True)
class Found:
    """One order, run."""

    plan: LargePlan
    hosts: Sequence[str]
    trained: "Sequence[LargeTrained]"
    pairs: Pairs

    @property
    def name(self) -> str:
        """In claims."""
        return "-".join(self.plan.grid.order)

    @property
    def records(self) -> list[tuple[StepRecord, ...]]:
        """Of every rank."""
        return [each.steps for each in self.trained]

    @property
    def step_ns(self) -> float:
        """Mean over ranks and the steps that count; stages begin and end one step after the other."""
        return mean(step.end_ns - step.start_ns for of_rank in self.records for step in of_rank if step.number >= 0)

    def by_dimension(self) -> dict[str | None, dict[tuple[int, int], int]]:
        """Bytes that went between ranks, apart by what they share; nothing should be in None."""
        found: dict[str | None, dict[tuple[int, int], int]] = {}
        for pair, count in self.pairs.items():
            found.setdefault(self.plan.grid.dimension_of(*pair), {})[pair] = count
        return found


def run(lab: Lab, settings: Settings) -> None:
    """One job per order."""
    hosts = [host.name for host in lab.topology.hosts]
    plans = [_plan(settings, order.split("-")) for order in settings.orders]
    needed = plans[0].grid.ranks
    if not 2 <= needed <= len(hosts):
        raise UserError(
            f"--set tp={settings.tp} pp={settings.pp} dp={settings.dp}: takes {needed} hosts; this topology has "
            f"{len(hosts)}, and one alone exchanges nothing"
        )
    every = [_measure(lab, plan, hosts[:needed]) for plan in plans]
    for found in every:
        accounts = account(found.records)
        _note(lab, found, accounts)
        _claim_bytes(lab, found)
        _claim_time(lab, found)
    _claim_order(lab, every)


def _plan(settings: Settings, order: Sequence[str]) -> LargePlan:
    model = model_named(settings.model)
    schedule_named(settings.schedule)
    return LargePlan(
        model=model,
        grid=Grid(sizes={"tp": settings.tp, "pp": settings.pp, "dp": settings.dp}, order=order),
        layers=settings.layers or model.layers,
        scale=settings.scale,
        microbatches=settings.microbatches,
        sequences=settings.sequences,
        value_bytes=settings.value_bytes,
        gradient_bytes=settings.gradient_bytes,
        flop_per_s=settings.device,
        schedule=settings.schedule,
        steps=settings.steps,
        warmup=settings.warmup,
    )


def _measure(lab: Lab, plan: LargePlan, hosts: Sequence[str]) -> Found:
    from experiments.training.large_step import train_large

    with PairBytes(lab, hosts, between=("first step", "last step")) as pairs:
        trained = cast("list[LargeTrained]", lab.job(train_large, plan, hosts=hosts, at_line_up=pairs.look))
    return Found(plan=plan, hosts=hosts, trained=trained, pairs=pairs.counted())


def along(records: Sequence[Sequence[StepRecord]], dimension: str) -> list[list[StepRecord]]:
    """Computing and the communication of one dimension only."""
    return [
        [
            replace(
                record,
                intervals=tuple(
                    each for each in record.intervals if each.kind is Kind.COMPUTE or each.name.startswith(dimension)
                ),
            )
            for record in of_rank
        ]
        for of_rank in records
    ]


def _note(lab: Lab, found: Found, accounts: Sequence[StepAccount]) -> None:
    plan, step_ns = found.plan, found.step_ns
    lab.add_busy_ns(pipeline.span_ns(found.records))
    counted = [each for each in accounts if each.step >= 0]
    lab.sections.setdefault("large_model", []).append(
        {
            "order": found.name,
            "model": plan.model.name,
            "parameters_G": round(plan.model.parameters / 1e9, 3),
            "layers_run": f"{plan.layers} of {plan.model.layers}",
            "scale": plan.scale,
            "step_us": round(step_ns / 1e3, 3),
            "times_scale_ms": round(step_ns * plan.scale / 1e6, 3),
            "mfu": round(mean(each.compute_ns for each in counted) / step_ns, 4),
            "halting": round(mean(each.halting for each in counted), 4),
            "bubble_by_formula": round(float(bubble_share(plan.grid.sizes["pp"], plan.microbatches)), 4),
        }
    )
    apart = found.by_dimension()
    lab.sections.setdefault("dimensions", []).extend(
        _dimension(lab, found, name, apart.get(name, {})) for name in plan.grid.order if plan.grid.sizes[name] > 1
    )
    lab.sections.setdefault("steps", []).extend(
        {"order": found.name, "host": found.hosts[row["rank"]], **row} for row in summary(accounts)
    )


def _dimension(lab: Lab, found: Found, name: str, pairs: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    """A line of the table."""
    plan, racks = found.plan, [rack_of(lab.topology, host) for host in found.hosts]
    steps = plan.warmup + plan.steps
    sent = [sum(count for pair, count in pairs.items() if pair[0] == rank) for rank in range(plan.grid.ranks)]
    counted = [each for each in account(along(found.records, name)) if each.step >= 0]
    leaving = sum(count for (one, other), count in pairs.items() if racks[one] != racks[other])
    return {
        "order": found.name,
        "dimension": name,
        "ranks": plan.grid.sizes[name],
        "most_by_formula_bytes": round(max(plan.formula_bytes(name, rank) for rank in range(plan.grid.ranks))),
        "most_sent_bytes": round(max(sent) / steps),
        "all_sent_MB": round(sum(sent) / steps / 1e6, 6),
        "leaving_racks_MB": round(leaving / steps / 1e6, 6),
        "exposed_us": round(mean(each.exposed_ns for each in counted) / 1e3, 3),
        "waiting_us": round(mean(each.waiting_ns for each in counted) / 1e3, 3),
        "network_us": round(mean(each.network_ns for each in counted) / 1e3, 3),
        "share_of_step": round(mean(each.exposed_ns for each in counted) / found.step_ns, 4),
    }


def _claim_bytes(lab: Lab, found: Found) -> None:
    plan, apart = found.plan, found.by_dimension()
    steps = plan.warmup + plan.steps
    for name in DIMENSIONS:
        if plan.grid.sizes[name] == 1:
            continue
        listed = list(plan.messages(name)) * steps
        wanted, counted = expected(listed), apart.get(name, {})
        off = {pair for pair in wanted.keys() | counted.keys() if wanted.get(pair) != counted.get(pair)}
        formula = steps * sum(plan.formula_bytes(name, rank) for rank in range(plan.grid.ranks))
        values = sum(counted.values()) - HEADER_BYTES * len(listed)
        lab.add_claim(
            f"{found.name}: {name} sends the bytes of the formula",
            expected=f"{formula:.0f} B of values +- {ROUNDING:.1%}, gloo's messages between every pair to the byte",
            measured=f"{values} B, {len(off)} of {len(wanted)} pairs differ",
            holds=not off and abs(values / formula - 1) <= ROUNDING,
        )
    lab.add_claim(
        f"{found.name}: nothing goes between ranks that share no dimension, and every array arrives as it was sent",
        expected=f"0 B, {_exchanges(plan)} arrays with the right values",
        measured=f"{sum(apart.get(None, {}).values())} B, {sum(each.exchanges for each in found.trained)} arrays",
        holds=None not in apart and sum(each.exchanges for each in found.trained) == _exchanges(plan),
    )


def _exchanges(plan: LargePlan) -> int:
    per_step = sum(plan.exchanges(plan.grid.place(rank)["pp"]) for rank in range(plan.grid.ranks))
    return per_step * (plan.warmup + plan.steps)


def _claim_time(lab: Lab, found: Found) -> None:
    plan, step_ns = found.plan, found.step_ns
    exposed = {
        name: [each for each in account(along(found.records, name)) if each.step >= 0]
        for name in DIMENSIONS
        if plan.grid.sizes[name] > 1
    }
    computed = mean(plan.compute_ns(plan.grid.place(rank)["pp"]) for rank in range(plan.grid.ranks))
    parts = computed + sum(mean(each.exposed_ns for each in mine) for mine in exposed.values())
    lab.add_claim(
        f"{found.name}: FLOP by formula and the exposed exchanges of the dimensions explain a rank's step",
        expected=f"{parts / 1e3:.1f} us +- {EXPLAINED:.0%}",
        measured=f"{step_ns / 1e3:.1f} us",
        holds=abs(step_ns / parts - 1) <= EXPLAINED,
    )
    if plan.grid.sizes["pp"] > 1:
        _claim_pipeline(lab, found, mean(each.exposed_ns for each in exposed["dp"]) if "dp" in exposed else 0.0)
    rate_bps = max(lab.topology.link_of[nic.name].rate_bps for host in found.hosts for nic in _nics(lab, host))
    for name in ("tp", "dp"):
        if name not in exposed:
            continue
        bound_ns = mean(plan.formula_bytes(name, rank) for rank in range(plan.grid.ranks)) * 8e9 / rate_bps
        took_ns = mean(each.exposed_ns for each in exposed[name])
        lab.add_claim(
            f"{found.name}: {name} is not faster than the hosts' links",
            expected=f"at least {bound_ns / 1e3:.1f} us of {step_ns / 1e3:.1f} us",
            measured=f"{took_ns / 1e3:.1f} us",
            holds=took_ns >= bound_ns,
        )


def _claim_pipeline(lab: Lab, found: Found, data_ns: float) -> None:
    """The schedule played through with what each stage was busy for, its tensor group's exchanges included."""
    plan, stages = found.plan, found.plan.grid.sizes["pp"]
    spent_ns = {
        (stage, action): pass_ns(found, stage, action)
        for stage in range(stages)
        for action in schedule_named(plan.schedule)(stage, stages, plan.microbatches)
    }
    took_ns = data_ns + makespan_ns(
        plan.schedule,
        stages,
        plan.microbatches,
        spent_ns=lambda stage, action: spent_ns[stage, action],
        hop_ns=hop_ns(along(found.records, "pp")),
    )
    # Stages begin and end a step one after the other: the first has it longest when it begins with all others.
    longest_ns = max(mean(it.end_ns - it.start_ns for it in each if it.number >= 0) for each in found.records)
    lab.add_claim(
        f"{found.name}: a step is as long as {plan.schedule} makes it of its stages' passes, and the gradients' sum",
        expected=f"{took_ns / 1e3:.1f} us +- {PLAYED:.0%}",
        measured=f"{longest_ns / 1e3:.1f} us",
        holds=abs(longest_ns / took_ns - 1) <= PLAYED,
    )


def pass_ns(found: Found, stage: int, action: Action) -> float:
    """How long a stage was busy with a micro-batch's pass: computing, and sums within its tensor groups."""
    way = "backward" if action.backward else "forward"
    spent = [
        each.end_ns - each.start_ns
        for rank, of_rank in enumerate(found.records)
        if found.plan.grid.place(rank)["pp"] == stage
        for record in of_rank
        if record.number >= 0
        for each in record.intervals
        if f"micro{action.microbatch}." in each.name and each.name.endswith(f".{way}")
    ]
    return sum(spent) * found.plan.grid.sizes["pp"] / found.plan.grid.ranks / found.plan.steps


def _nics(lab: Lab, host: str) -> Sequence[Any]:
    return lab.topology.interfaces_of[host]


def _claim_order(lab: Lab, every: Sequence[Found]) -> None:
    """With several orders: whether it pays to keep what sends most in the rack."""
    near = [found for found in every if found.plan.grid.order[0] == "tp"]
    far = [found for found in every if found.plan.grid.order[-1] == "tp"]
    for one in near[:1]:
        for other in far[:1]:
            lab.add_claim(
                f"a step is shorter with tensor groups of neighbours ({one.name}) than spread out ({other.name})",
                expected=f"less than {other.step_ns / 1e3:.1f} us",
                measured=f"{one.step_ns / 1e3:.1f} us",
                holds=one.step_ns < other.step_ns,
            )


EXPERIMENT = Experiment(
    name="large_model",
    question="What do tensor, pipeline and data parallelism of a large model send, and what do they cost its step?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
