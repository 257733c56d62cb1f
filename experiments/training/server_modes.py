"""Measures a parameter server's three ways of waiting, with one worker slower than the others: jobs, table, claims."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from experiments.training.device import Device
from experiments.training.timeline import Kind

if TYPE_CHECKING:
    from experiments.lab import Lab
    from experiments.training.server import Plan, Served, Worked

MODES = ("synchronous", "asynchronous", "stale")
BAND = 0.15
"""Of ratios of step times against those of device times: what is left is the exchange."""
CLEARLY = 2.0
"""A worker must be slower than this to be told from the exchange's own time."""


def compare(lab: "Lab", plan: "Plan", modes: Sequence[str], device: Device, *, slowdown: float) -> None:
    """One job per mode: the server on the first host, workers on the next; the last worker is the slow one."""
    hosts = [host.name for host in lab.topology.hosts][: 1 + plan.workers]
    devices = [*[device] * (plan.workers - 1), replace(device, slowdown=slowdown)]
    found = {mode: _run(lab, replace(plan, mode=mode), devices, hosts) for mode in modes}
    for mode, (served, worked) in found.items():
        rows = [_worker(mode, host, each) for host, each in zip(hosts[1:], worked, strict=True)]
        lab.sections.setdefault("workers", []).extend(rows)
        lab.sections.setdefault("modes", []).append(_line(plan, mode, served, rows))
    _claim(lab, plan, found, slowdown=slowdown)


def _run(lab: "Lab", plan: "Plan", devices: Sequence[Device], hosts: Sequence[str]) -> "tuple[Served, list[Worked]]":
    from experiments.training.server import train_with_server

    served, *worked = lab.job(train_with_server, plan, devices, hosts=hosts)
    workers = cast("list[Worked]", worked)
    lab.add_busy_ns(
        max(each.records[-1].end_ns for each in workers) - min(each.records[0].start_ns for each in workers)
    )
    return cast("Served", served), workers


def _worker(mode: str, host: str, worked: "Worked") -> dict[str, Any]:
    compute_ns = sum(
        it.end_ns - it.start_ns for step in worked.records for it in step.intervals if it.kind is Kind.COMPUTE
    )
    took_ns, steps = worked.records[-1].end_ns - worked.records[0].start_ns, len(worked.records)
    return {
        "mode": mode,
        "host": host,
        "steps": steps,
        "step_us": round(took_ns / steps / 1e3, 3),
        "compute_us": round(compute_ns / steps / 1e3, 3),
        "exchange_us": round((took_ns - compute_ns) / steps / 1e3, 3),
        "halting": round(1 - compute_ns / took_ns, 4),
    }


def _line(plan: "Plan", mode: str, served: "Served", rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "mode": mode,
        "bound": plan.bound if mode == "stale" else None,
        "workers": len(rows),
        "fast_step_us": round(mean(row["step_us"] for row in rows[:-1]), 3),
        "slow_step_us": rows[-1]["step_us"],
        "largest_lead": served.largest_lead,
        "mean_staleness": round(served.mean_staleness, 4),
        "largest_staleness": served.largest_staleness,
        "server_in_bytes": served.traffic.rx_bytes,
        "loss_first": round(served.before.loss, 4),
        "loss_last": round(served.after.loss, 4),
    }


def _claim(lab: "Lab", plan: "Plan", found: "Mapping[str, tuple[Served, list[Worked]]]", *, slowdown: float) -> None:
    lines = {line["mode"]: line for line in lab.sections["modes"]}
    _claim_learning(lab, plan, found, lines)
    if "stale" in found:
        lead = lines["stale"]["largest_lead"]
        must_reach = slowdown >= CLEARLY and plan.steps * (1 - 1 / slowdown) > plan.bound + 1
        lab.add_claim(
            "stale server: nobody begins a step further ahead of the slowest than the bound",
            expected=f"{plan.bound} steps at most{', and reached' if must_reach else ''}",
            measured=f"{lead}",
            holds=lead <= plan.bound and (lead == plan.bound or not must_reach),
        )
    if len(lines) > 1:
        counts = {mode: line["server_in_bytes"] for mode, line in lines.items()}
        lab.add_claim(
            "waiting or not, the server's link takes in the same bytes",
            expected="equal to the byte",
            measured=", ".join(f"{mode} {count} B" for mode, count in counts.items()),
            holds=len(set(counts.values())) == 1,
        )
    if slowdown >= CLEARLY and "synchronous" in found and "asynchronous" in found:
        together, apart = lines["synchronous"], lines["asynchronous"]
        lab.add_claim(
            "the slow worker holds up everybody in a synchronous server, and nobody in an asynchronous one",
            expected=f"fast / slow workers' step 1 +- {BAND}; and 1 / {slowdown:g} +- {BAND} with the exchange",
            measured=f"{together['fast_step_us'] / together['slow_step_us']:.3f} and "
            f"{apart['fast_step_us'] / apart['slow_step_us']:.3f}",
            holds=abs(together["fast_step_us"] / together["slow_step_us"] - 1) <= BAND
            and abs(apart["fast_step_us"] / apart["slow_step_us"] - 1 / slowdown) <= BAND,
        )


def _claim_learning(
    lab: "Lab",
    plan: "Plan",
    found: "Mapping[str, tuple[Served, list[Worked]]]",
    lines: Mapping[str, Mapping[str, Any]],
) -> None:
    from experiments.training.server import alone

    for mode, line in lines.items():
        lab.add_claim(
            f"{mode} server: the model learns",
            expected="a lower loss on text that nobody learnt from",
            measured=f"{line['loss_first']:.3f} -> {line['loss_last']:.3f} nats per byte",
            holds=line["loss_last"] < line["loss_first"],
        )
    if "synchronous" in found:
        wanted = alone(plan).numpy().tobytes()
        lab.add_claim(
            "synchronous server: its weights are those of one process that saw every batch",
            expected="bit for bit",
            measured="equal" if found["synchronous"][0].weights == wanted else "different",
            holds=found["synchronous"][0].weights == wanted,
        )
