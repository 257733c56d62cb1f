r"""A mixture of experts: what do its all-to-alls cost a step, and what does a popular expert do to the network?

    rank 0 [attention, router]\   /[expert 0]\   /[weighted sum]    every token goes to its top_k experts, wherever
    rank 1 [attention, router]--X--[expert 1]--X--[weighted sum]    they are: dispatch, combine, and gradients the
    rank 2 [attention, router]/   \[expert 2]/   \[weighted sum]    same ways back
                           dispatch       combine

    even    every port carries as much                 skewed   everybody sends to the popular expert's host at once:
            h1 h2 h3 h4                                         h1 h2 h4 ---[s1]===queue===> h3
            [s1]                                                an incast; back from there its NIC is the narrow place

Real: the layer in torch, its gradients, English text, gloo's all-to-all with uneven splits.  Modelled: the GPU's time,
by parameters and tokens.  A router draws experts by its scores and by Zipf's law with exponent `skew` (noisy top-k
gating, Shazeer et al. 2017); `capacities` limit what one expert takes of a rank, and drop the rest.

    ./run experiments/moe.py
    ./run experiments/moe.py --set skews=0,0.5,1,2 --set capacities=none,2,1.25 --policy dctcp

Expected: between every pair of hosts exactly the bytes that the routing says.  No all-to-all is faster than the busiest
host's port allows; a skewed one takes what its popular expert's port has to carry, and a limit bounds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.pair_bytes import PairBytes, Pairs, expected
from experiments.settings import Flops, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training import pipeline
from experiments.training.accounting import account, summary
from experiments.training.device import Device
from experiments.training.routing import (
    EXCHANGES,
    Gate,
    arriving,
    between_ranks,
    layer_messages,
    leaving,
    transposed,
)
from experiments.training.shape import Shape
from experiments.workloads import messages
from experiments.workloads.messages import Message
from testbed.sampler import Sampler
from topologies.errors import UserError

if TYPE_CHECKING:
    from experiments.training.data_parallel import Plan
    from experiments.training.experts import ExpertsTrained

PERIOD_NS = 50_000
"""Of the samples in which the longest queue is looked for; the marks between them are exact."""
BAND = 0.25
"""Of what an all-to-all takes beyond its bound: latency, and ports that stand still while others are busy."""
TOLERANCE = 1e-4
"""Largest difference of a parameter against one process: float32 sums in another order, over the steps."""


class Settings(BaseSettings):
    """The model, its router and the device."""

    skews: Words = Field(
        default=written("0,1.5"), description="exponents of Zipf's law by which experts are drawn; 0 is even"
    )
    capacities: Words = Field(
        default=written("none,1.25"), description="capacity factors: times the even share that an expert takes"
    )
    experts_per_host: int = Field(default=1, ge=1, description="experts on each host")
    top_k: int = Field(default=2, ge=1, description="experts per token")
    layers: int = Field(default=1, ge=1, description="blocks, each with a layer of experts")
    width: int = Field(default=64, ge=8, description="of the vectors; an expert has 8 width^2 parameters")
    heads: int = Field(default=4, ge=1, description="of the attention; divides the width")
    context: int = Field(default=64, ge=2, description="bytes of text per sequence")
    sequences: int = Field(default=32, ge=1, description="per rank; a token sends 4 x width bytes to each expert")
    steps: int = Field(default=2, ge=1, description="measured training steps")
    warmup: int = Field(default=1, ge=1, description="training steps before them")
    device: Flops = Field(default=written("10T"), gt=0, description="FLOP/s of the modelled GPU")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way of routing, trained."""

    gate: Gate
    capacity: str
    trained: "Sequence[ExpertsTrained]"
    pairs: Pairs
    """Payload that went between ranks, counted by sockets."""
    exchanges: Sequence["Timed"]
    queue_bytes: Sequence[int]
    """Rank -> longest queue at the switch's port to its host."""
    dropped_packets: int
    marked_packets: int

    @property
    def name(self) -> str:
        """In claims."""
        return f"skew {self.gate.skew:g}, capacity {self.capacity}"


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One all-to-all of one step."""

    kind: str
    took_ns: int
    """From the last rank's beginning to the last rank's end."""
    bound_ns: float
    """What the port that has most to carry needs for the payload alone."""
    busiest: int
    """The rank at that port."""
    inwards: bool
    """It is the switch's port to that host, and not the host's own."""


def run(lab: Lab, settings: Settings) -> None:
    """One job per skew and capacity."""
    from experiments.training.data_parallel import Plan

    hosts = [host.name for host in lab.topology.hosts]
    if len(hosts) < 2:
        raise UserError(f"--topology: {len(hosts)} host; experts on two or more are needed")
    plan = Plan(
        shape=Shape(layers=settings.layers, width=settings.width, heads=settings.heads, context=settings.context),
        sequences=settings.sequences,
        steps=settings.steps,
        warmup=settings.warmup,
        seed=lab.seed,
    )
    found = []
    for skew in settings.skews:
        for capacity in settings.capacities:
            gate = Gate(
                experts=settings.experts_per_host * len(hosts),
                top_k=settings.top_k,
                capacity_factor=None if capacity == "none" else _number("capacities", capacity),
                skew=_number("skews", skew),
                seed=lab.seed,
            )
            found.append(_measure(lab, plan, gate, capacity, Device(flop_per_s=settings.device), hosts))
    for case in found:
        _claim_bytes(lab, case, plan)
        _claim_bound(lab, case, hosts)
        _claim_learning(lab, case, plan)
    _claim_skew(lab, found, plan, hosts)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        words = " or none" if key == "capacities" else ""
        raise UserError(f"--set {key}={text}: write numbers{words}, separated by commas") from None


def _measure(lab: Lab, plan: "Plan", gate: Gate, capacity: str, device: Device, hosts: Sequence[str]) -> Case:
    from experiments.training.experts import train_experts

    downs = [lab.topology.peer_of[lab.topology.interfaces_of[host][0].name].name for host in hosts]
    before = lab.sample()
    counted = PairBytes(lab, hosts, between=("first step", "last step"))
    with counted as pairs, Sampler(lab.fabric, interfaces=downs, period_ns=PERIOD_NS) as sampler:
        trained = cast(
            "list[ExpertsTrained]",
            lab.job(train_experts, plan, gate, [device] * len(hosts), hosts=hosts, at_line_up=pairs.look),
        )
    after, series = lab.sample(), sampler.series()
    case = Case(
        gate=gate,
        capacity=capacity,
        trained=trained,
        pairs=pairs.counted(),
        exchanges=timed(trained, plan, rates_bps=[lab.topology.link_of[name].rate_bps for name in downs]),
        queue_bytes=[int(series[name]["peak_bytes"].max()) for name in downs],
        dropped_packets=sum(after[name].port.dropped_packets - before[name].port.dropped_packets for name in after),
        marked_packets=sum(after[name].port.marked_packets - before[name].port.marked_packets for name in after),
    )
    _note(lab, case, plan, hosts, downs)
    return case


def tables(trained: "Sequence[ExpertsTrained]", step: int) -> list[list[tuple[int, ...]]]:
    """Layer -> tokens from each rank to each expert; `step` counts from the first, warm-up included."""
    return [list(across) for across in zip(*(each.counts[step] for each in trained), strict=True)]


def timed(trained: "Sequence[ExpertsTrained]", plan: "Plan", *, rates_bps: Sequence[int]) -> list[Timed]:
    """Every all-to-all of tokens of the steps that count."""
    found = []
    for number in range(plan.warmup, plan.warmup + plan.steps):
        spans = [{each.name: each for each in rank.steps[number].intervals} for rank in trained]
        for layer, table in enumerate(tables(trained, number)):
            out = between_ranks(table)
            for kind, counts in zip(EXCHANGES, (out, transposed(out), out, transposed(out)), strict=True):
                mine = [of_rank[f"experts{layer}.{kind}"] for of_rank in spans]
                found.append(_timed(kind, mine, counts, 4 * plan.shape.width, rates_bps))
    return found


def _timed(
    kind: str, spans: Sequence[Any], counts: Sequence[Sequence[int]], unit_bytes: int, rates_bps: Sequence[int]
) -> Timed:
    loads = [
        (tokens * unit_bytes * 8e9 / rate_bps, inwards, rank)
        for inwards, all_tokens in ((True, arriving(counts)), (False, leaving(counts)))
        for rank, (tokens, rate_bps) in enumerate(zip(all_tokens, rates_bps, strict=True))
    ]
    bound_ns, inwards, busiest = max(loads)
    took_ns = max(each.end_ns for each in spans) - max(each.start_ns for each in spans)
    return Timed(kind=kind, took_ns=took_ns, bound_ns=bound_ns, busiest=busiest, inwards=inwards)


def _note(lab: Lab, case: Case, plan: "Plan", hosts: Sequence[str], downs: Sequence[str]) -> None:
    records = [each.steps for each in case.trained]
    accounts = account(records)
    lab.add_busy_ns(pipeline.span_ns(records))
    labels = {"skew": case.gate.skew, "capacity": case.capacity}
    choices = sum(sum(counts) for each in case.trained for step in each.counts for counts in step)
    refused = sum(sum(each.dropped) for each in case.trained)
    hot = max(range(len(hosts)), key=lambda rank: case.queue_bytes[rank])
    lab.sections.setdefault("experts", []).append(
        {
            **labels,
            "step_us": round(pipeline.step_ns(records) / 1e3, 3),
            "halting": round(mean(each.halting for each in accounts if each.step >= 0), 4),
            "all_to_alls_us": round(_per_step_ns(case.exchanges, plan.steps) / 1e3, 3),
            "bound_us": round(_bound_per_step_ns(case.exchanges, plan.steps) / 1e3, 3),
            "choices_dropped_percent": round(100 * refused / (choices + refused), 3),
            "hottest_port": f"{downs[hot]} to {hosts[hot]}",
            "its_queue_max_bytes": case.queue_bytes[hot],
            "packets_dropped": case.dropped_packets,
            "packets_marked": case.marked_packets,
            "loss_first": round(mean(each.losses[0] for each in case.trained), 4),
            "loss_last": round(mean(each.losses[-1] for each in case.trained), 4),
        }
    )
    lab.sections.setdefault("all_to_alls", []).extend(
        {
            **labels,
            "exchange": kind,
            "time_us": round(mean(each.took_ns for each in mine) / 1e3, 3),
            "bound_us": round(mean(each.bound_ns for each in mine) / 1e3, 3),
            "busiest_host": hosts[mine[-1].busiest],
            "direction": "in" if mine[-1].inwards else "out",
        }
        for kind in EXCHANGES
        for mine in [[each for each in case.exchanges if each.kind == kind]]
    )
    lab.sections.setdefault("steps", []).extend({**labels, **row} for row in summary(accounts))


def _per_step_ns(exchanges: Sequence[Timed], steps: int) -> float:
    return sum(each.took_ns for each in exchanges) / steps


def _bound_per_step_ns(exchanges: Sequence[Timed], steps: int) -> float:
    return sum(each.bound_ns for each in exchanges) / steps


def sent(case: Case, plan: "Plan") -> list[Message]:
    """Every message of all steps, from what the routers chose."""
    ranks = len(case.trained)
    found: list[Message] = []
    for number in range(plan.warmup + plan.steps):
        for table in tables(case.trained, number):
            found += layer_messages(table, 4 * plan.shape.width)
        found += messages.all_reduce(ranks, case.trained[0].shared_bytes)
    return found


def _claim_bytes(lab: Lab, case: Case, plan: "Plan") -> None:
    wanted = expected(sent(case, plan))
    off = {pair for pair in wanted.keys() | case.pairs.keys() if wanted.get(pair) != case.pairs.get(pair)}
    lab.add_claim(
        f"{case.name}: every pair of hosts exchanges the bytes that the routing says",
        expected=f"to the byte, {sum(wanted.values())} B over {len(wanted)} pairs",
        measured=f"{sum(case.pairs.values())} B, {len(off)} pairs differ",
        holds=not off,
    )


def _claim_bound(lab: Lab, case: Case, hosts: Sequence[str]) -> None:
    worst = min(case.exchanges, key=lambda each: each.took_ns / max(each.bound_ns, 1))
    lab.add_claim(
        f"{case.name}: no all-to-all is faster than the port that carries most of it",
        expected=f"at least {worst.bound_ns / 1e3:.1f} us ({worst.kind} at {hosts[worst.busiest]})",
        measured=f"{worst.took_ns / 1e3:.1f} us",
        holds=worst.took_ns >= worst.bound_ns,
    )


def _claim_skew(lab: Lab, cases: Sequence[Case], plan: "Plan", hosts: Sequence[str]) -> None:
    """Against the even router, and against the same one without a limit."""
    known = {(case.gate.skew, case.capacity): case for case in cases}
    for (skew, capacity), case in known.items():
        even, free = known.get((0.0, capacity)), known.get((skew, "none"))
        if skew > 0 and capacity == "none" and even is not None:
            _claim_popular(lab, case, even, plan, hosts)
        if skew > 0 and capacity != "none" and free is not None:
            took_us, free_us = (_per_step_ns(each.exchanges, plan.steps) / 1e3 for each in (case, free))
            lab.add_claim(
                f"{case.name}: a limit shortens the all-to-alls, and drops choices",
                expected=f"less than {free_us:.1f} us per step, some dropped",
                measured=f"{took_us:.1f} us, {sum(sum(each.dropped) for each in case.trained)} dropped",
                holds=took_us < free_us and any(sum(each.dropped) for each in case.trained),
            )


def _claim_popular(lab: Lab, case: Case, even: Case, plan: "Plan", hosts: Sequence[str]) -> None:
    popular = case.gate.popularity()[0] * len(hosts) // case.gate.experts
    hot = max(range(len(hosts)), key=lambda rank: case.queue_bytes[rank])
    lab.add_claim(
        f"{case.name}: the longest queue is at the port to the most popular expert's host",
        expected=f"{hosts[popular]}, longer than the {max(even.queue_bytes)} B of the even router",
        measured=f"{hosts[hot]}, {case.queue_bytes[hot]} B",
        holds=hot == popular and case.queue_bytes[hot] > max(even.queue_bytes),
    )
    beyond_us = (_per_step_ns(even.exchanges, plan.steps) - _bound_per_step_ns(even.exchanges, plan.steps)) / 1e3
    bound_us, took_us = (count(case.exchanges, plan.steps) / 1e3 for count in (_bound_per_step_ns, _per_step_ns))
    lab.add_claim(
        f"{case.name}: a step's all-to-alls follow what the popular expert's port has to carry",
        expected=f"{bound_us:.1f} us, and not more beyond it than the even router's {beyond_us:.1f} us + {BAND:.0%}",
        measured=f"{took_us:.1f} us",
        holds=bound_us <= took_us <= bound_us + beyond_us * (1 + BAND),
    )


def _claim_learning(lab: Lab, case: Case, plan: "Plan") -> None:
    from experiments.training.experts import experts_alone

    losses, shared, own = experts_alone(plan, case.gate, len(case.trained))
    lab.add_claim(
        f"{case.name}: all ranks hold the same shared parameters",
        expected="bit for bit",
        measured=f"{len({each.shared for each in case.trained})} different sets",
        holds=len({each.shared for each in case.trained}) == 1,
    )
    apart = max(_apart(case.trained[0].shared, shared), _apart(_all_experts(case, plan.shape.layers), own))
    behind = max(abs(mean(each.losses[step] for each in case.trained) - loss) for step, loss in enumerate(losses))
    lab.add_claim(
        f"{case.name}: parameters and losses are those of one process with all experts",
        expected=f"no parameter of the shared part or of an expert, and no loss, differs by more than {TOLERANCE}",
        measured=f"{apart:.2e}, {behind:.2e}",
        holds=apart <= TOLERANCE and behind <= TOLERANCE,
    )


def _all_experts(case: Case, layers: int) -> bytes:
    """Layer by layer, all ranks' experts in order."""
    part = len(case.trained[0].own) // layers
    return b"".join(each.own[layer * part : (layer + 1) * part] for layer in range(layers) for each in case.trained)


def _apart(one: bytes, other: bytes) -> float:
    import torch

    sides = [torch.frombuffer(bytearray(side), dtype=torch.float32) for side in (one, other)]
    return float((sides[0] - sides[1]).abs().max())


EXPERIMENT = Experiment(
    name="moe",
    question="What do the all-to-alls of a mixture of experts cost a step, and what does a popular expert do?",
    settings=Settings,
    run=run,
    topology="star:hosts=8",
)

if __name__ == "__main__":
    main(EXPERIMENT)
