"""Queue occupancy: what do long flows keep in the port that they share, and what does a shorter queue cost them?

    h2 ---\\                      CUBIC fills what the port may hold, then loses packets;
    h3 ----[ s1 ]==queue==> h1   DCTCP hovers around the threshold K at which the port marks;
    ...  /                       with K far below a BDP the queue runs dry, and throughput is lost

Every congestion control of `cc` runs on the same fabric, one after the other.  For dctcp the ports mark at `k`; for all
others they only drop.  The queue is sampled every `period` while the flows are in their steady state.

    ./run experiments/queue_occupancy.py --set cc=cubic,dctcp,bbr --set thresholds=0.02,0.07,0.14,0.3,1

Expected: DCTCP has at least 0.95 of CUBIC's goodput with at most 0.2 of its queue; it loses throughput when K is far
below C x RTT / 7.  (Issue and papers say queue.py; a script of that name would hide Python's own module `queue`.)
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from controller.port_policies.base_rtt import bdp_bytes
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.ports_in_force import PortsInForce
from experiments.settings import Delay, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.long_flows import Window
from experiments.workloads.steady_flows import Flows, steady_flows
from topologies.errors import UserError
from topologies.units import format_size

LEAST_SHARE = 0.95
"""Of CUBIC's goodput: Alizadeh et al., SIGCOMM 2010, report the same throughput."""
MOST_QUEUE = 0.2
"""Of CUBIC's mean queue; the same paper: 90% less buffer."""
FLOOR = 1 / 7
"""DCTCP needs K > C x RTT / 7 (the same paper, section 3.4)."""
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)


class Settings(BaseSettings):
    """Who sends how long, and how the queue is watched."""

    cc: Words = Field(default=written("cubic,dctcp"), description="congestion controls, one after the other")
    senders: int = Field(default=2, ge=1, description="long flows, from a host each to the first host")
    duration: Delay = Field(default=written("90ms"), description="of each: from the common start to the last byte")
    settle: Delay = Field(default=written("40ms"), description="of it, before the steady state: not counted")
    period: Delay = Field(default=written("10us"), description="time between two samples of the queue")
    k: str = Field(default="0.17bdp", description="DCTCP's marking threshold, in the words of --policy")
    thresholds: str = Field(
        default="0.02,0.05,0.1,0.14,0.3,1", description="K of the sweep, in BDP (rate x base RTT); none: no sweep"
    )


def run(lab: Lab, settings: Settings) -> None:
    """Every congestion control, then the sweep of K."""
    factors = _factors(settings.thresholds)
    if settings.settle >= settings.duration:
        raise UserError(f"--set settle={settings.settle} ns leaves nothing of a duration of {settings.duration} ns")
    with PortsInForce(lab) as ports:
        found = [_flows(lab, settings, ports, cc, settings.k) for cc in settings.cc]
        sweep = [(factor, _flows(lab, settings, ports, "dctcp", f"{factor:g}bdp")) for factor in factors]
    lab.add("queue_occupancy", [flows.line() for flows in found])
    lab.add("queue_percentiles", _percentiles(found))
    lab.add("queue_cdf", [{"name": flows.cc, "points": _points(flows)} for flows in found])
    if sweep:
        lab.add("threshold", [{"k_in_bdp": factor, **flows.line()} for factor, flows in sweep])
    _claim_of_queues(lab, {flows.cc: flows for flows in found})
    _claim_of_thresholds(lab, sweep)


def _factors(text: str) -> list[float]:
    if text == "none":
        return []
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError:
        factors = [0.0]
    if min(factors) <= 0:
        raise UserError(f"--set thresholds={text}: write factors above 0 separated by commas, or none")
    return factors


def _flows(lab: Lab, settings: Settings, ports: PortsInForce, cc: str, k: str) -> Flows:
    ports.vary({"kmin": k, "kmax": "kmin"} if cc == "dctcp" else {"kmin": "off"})
    window = Window(begin_ns=settings.settle, end_ns=settings.duration)
    return steady_flows(lab, ports.plan, cc=cc, senders=settings.senders, window=window, period_ns=settings.period)


def _percentiles(found: Sequence[Flows]) -> list[dict[str, Any]]:
    return [
        {"time_share_percent": percent, **{f"{flows.cc}_queue_bytes": flows.percentile(percent) for flows in found}}
        for percent in PERCENTILES
    ]


def _points(flows: Flows) -> list[list[float]]:
    """(bytes, share of the time that the queue was not longer), at every percent."""
    return [[flows.percentile(percent), percent / 100] for percent in range(101)]


def _claim_of_queues(lab: Lab, found: dict[str, Flows]) -> None:
    if "cubic" not in found or "dctcp" not in found:
        return
    cubic, dctcp = found["cubic"], found["dctcp"]
    lab.add_claim(
        "DCTCP keeps CUBIC's goodput",
        expected=f"at least {LEAST_SHARE} of CUBIC's",
        measured=f"{dctcp.goodput / cubic.goodput:.3f} ({dctcp.goodput:.3f} against {cubic.goodput:.3f} of the link)",
        holds=dctcp.goodput >= LEAST_SHARE * cubic.goodput,
    )
    lab.add_claim(
        "with a fraction of its queue",
        expected=f"mean queue at most {MOST_QUEUE} of CUBIC's",
        measured=f"{dctcp.mean_bytes / max(1.0, cubic.mean_bytes):.3f} "
        f"({format_size(round(dctcp.mean_bytes))} against {format_size(round(cubic.mean_bytes))})",
        holds=dctcp.mean_bytes <= MOST_QUEUE * cubic.mean_bytes,
    )


def _claim_of_thresholds(lab: Lab, sweep: Sequence[tuple[float, Flows]]) -> None:
    """Far below and above the floor: in between the number of flows and their synchrony decide."""
    low = [each for each in sweep if each[0] <= FLOOR / 3]
    high = [each for each in sweep if each[0] >= 2 * FLOOR]
    if not low or not high:
        return
    best = max(flows.goodput for _, flows in high)
    factor, flows = min(low, key=lambda each: each[0])
    lab.add_claim(
        f"K far below BDP / 7 ({format_size(_bdp_bytes(lab) // 7)}) loses throughput",
        expected=f"with the smallest K less than {LEAST_SHARE} of the best goodput with K of 2/7 BDP and more",
        measured=f"{flows.goodput / best:.3f} with K = {factor:g} BDP ({flows.goodput:.3f} against {best:.3f})",
        holds=flows.goodput < LEAST_SHARE * best,
    )
    lab.add_claim(
        "K above twice BDP / 7 loses nothing",
        expected=f"goodput at least {LEAST_SHARE} of the best",
        measured=", ".join(f"{flows.goodput:.3f} with K = {factor:g} BDP" for factor, flows in high),
        holds=all(flows.goodput >= LEAST_SHARE * best for _, flows in high),
    )


def _bdp_bytes(lab: Lab) -> int:
    nic = next(lab.topology.host_interfaces())
    return bdp_bytes(lab.topology, lab.topology.link_of[nic.name].rate_bps)


EXPERIMENT = Experiment(
    name="queue_occupancy",
    question="What do long flows keep in the port they share, and what does a shorter queue cost them?",
    settings=Settings,
    run=run,
    topology="star:hosts=3,rate=40G,delay=25us,buffer=1MB",
    policy="lossy",
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
