"""ECN thresholds: what does a port mark, and what do Kmin, Kmax and Pmax do to goodput and queue?

    share                    ____      Open loop: the queue is held at known depths, and the port's own counts
    marked            Pmax /|          are compared with the law it was told.
                         /  |
    0 __________________/   |          Closed loop: DCTCP flows under the same thresholds; who marks early has
                     Kmin  Kmax        a short queue and may lose throughput.
          queue when a packet leaves

One fabric; the thresholds of all switch ports change between the points, while the fabric runs.

    ./run experiments/ecn_sweep.py --set points=24us/24us/1,32us/128us/0.2 --set cc=dctcp

Expected: below Kmin under 1% marked; above Kmax 95% and more; in between within two points of
Pmax x (queue - Kmin) / (Kmax - Kmin).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from controller.port_policies.decision import Marking
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.ports_in_force import PortsInForce
from experiments.settings import Delay, Size, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.held_queue import held_queue
from experiments.workloads.long_flows import Window
from experiments.workloads.steady_flows import steady_flows
from topologies.errors import UserError

BELOW, ABOVE, NEAR = 0.01, 0.95, 0.02
"""Shares marked below Kmin and above Kmax, and the distance from the ramp, that the marking law allows for chance."""


class Settings(BaseSettings):
    """What to sweep, and how long to look."""

    points: Words = Field(
        default=written("100k/100k/1,300k/300k/1,100k/400k/0.2"),
        description="KMIN/KMAX/PMAX, each in the words of --policy, comma separated",
    )
    packets: int = Field(default=5000, ge=100, description="that leave the port at each held depth")
    frame: Size = Field(default=1514, ge=100, description="bytes of each of them, without FCS")
    hold_period: Delay = Field(default=written("5us"), description="between two samples of a held queue")
    cc: str = Field(default="dctcp", description="of the closed loop: one that negotiates ECN; none: open loop only")
    senders: int = Field(default=2, ge=1, description="of the closed loop")
    duration: Delay = Field(default=written("16ms"), description="of the closed loop at each point")
    settle: Delay = Field(default=written("6ms"), description="of it, not counted")
    period: Delay = Field(default=written("10us"), description="between two samples in the closed loop")


def run(lab: Lab, settings: Settings) -> None:
    """Every point: first the held depths, then the flows."""
    if lab.plan.composition.ports.pfc:
        raise UserError("ecn_sweep: with PFC a held queue pauses its stream; choose a policy without, --policy lossy")
    curve: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    with PortsInForce(lab) as ports:
        for point in settings.points:
            marking = _put(lab, ports, point)
            curve += _curve(lab, settings, point, marking)
            if settings.cc != "none":
                flows.append(_flows(lab, settings, ports, point, marking))
    lab.add("marking_curve", curve)
    if flows:
        lab.add("ecn_sweep", flows)
    _claim(lab, curve)


def _put(lab: Lab, ports: PortsInForce, point: str) -> Marking:
    """The thresholds of a point in force at every switch; what they are at the port to the first host."""
    parts = point.split("/")
    if len(parts) != 3:
        raise UserError(f"--set points: '{point}' is not KMIN/KMAX/PMAX")
    plan = ports.vary({"kmin": parts[0], "kmax": parts[1], "pmax": parts[2]})
    nic = lab.topology.interfaces_of[lab.topology.hosts[0].name][0]
    marking = plan.decisions[lab.topology.peer_of[nic.name].name].marking
    if marking is None:
        raise UserError(f"--set points: '{point}' marks nothing")
    return marking


def depths(marking: Marking) -> Iterator[int]:
    """Well and just below Kmin, along the ramp, just and well above Kmax."""
    low, high = marking.kmin_bytes, marking.kmax_bytes
    yield from (low // 2, low * 9 // 10)
    if high > low:
        yield from (low + (high - low) * quarter // 4 for quarter in (1, 2, 3))
    yield from (high * 11 // 10, high * 5 // 4)


def law(marking: Marking, queue_bytes: float) -> float:
    """Share marked at a depth: the port's law, as `testbed/port/config.py` states it."""
    low, high = marking.kmin_bytes, marking.kmax_bytes
    if queue_bytes <= low:
        return 0.0
    return 1.0 if queue_bytes > high else marking.pmax * (queue_bytes - low) / (high - low)


def _curve(lab: Lab, settings: Settings, point: str, marking: Marking) -> Iterator[dict[str, Any]]:
    for depth_bytes in depths(marking):
        held = held_queue(
            lab,
            depth_bytes=depth_bytes,
            packets=settings.packets,
            frame_bytes=settings.frame,
            period_ns=settings.hold_period,
        )
        yield {
            "point": point,
            "kmin_bytes": marking.kmin_bytes,
            "kmax_bytes": marking.kmax_bytes,
            "pmax": marking.pmax,
            "queue_bytes": round(held.queue_bytes),
            "sent": held.sent,
            "marked": held.marked,
            "marked_percent": round(100 * held.share, 3),
            "law_percent": round(100 * law(marking, held.queue_bytes), 3),
        }


def _flows(lab: Lab, settings: Settings, ports: PortsInForce, point: str, marking: Marking) -> dict[str, Any]:
    window = Window(begin_ns=settings.settle, end_ns=settings.duration)
    found = steady_flows(
        lab, ports.plan, cc=settings.cc, senders=settings.senders, window=window, period_ns=settings.period
    )
    line = {key: value for key, value in found.line().items() if key != "k_bytes"}
    above = round(float((found.queue > marking.kmin_bytes).mean()) * 100, 2)
    return {"point": point, **line, "above_kmin_percent": above}


def _claim(lab: Lab, curve: Sequence[dict[str, Any]]) -> None:
    below = [line["marked_percent"] for line in curve if line["queue_bytes"] < line["kmin_bytes"]]
    above = [line["marked_percent"] for line in curve if line["queue_bytes"] > line["kmax_bytes"]]
    ramp = [line for line in curve if line["kmin_bytes"] <= line["queue_bytes"] <= line["kmax_bytes"]]
    lab.add_claim(
        "below Kmin hardly anything is marked",
        expected=f"under {BELOW:.0%} at each depth",
        measured=f"{max(below):.3f}% at most",
        holds=max(below) < 100 * BELOW,
    )
    lab.add_claim(
        "above Kmax nearly everything is",
        expected=f"at least {ABOVE:.0%} at each depth",
        measured=f"{min(above):.2f}% at least",
        holds=min(above) >= 100 * ABOVE,
    )
    if ramp:
        worst = max(ramp, key=lambda line: abs(line["marked_percent"] - line["law_percent"]))
        lab.add_claim(
            "between them the share follows Pmax x (queue - Kmin) / (Kmax - Kmin)",
            expected=f"within {100 * NEAR:g} points at each depth",
            measured=f"{worst['marked_percent']:.2f}% where the law says {worst['law_percent']:.2f}%",
            holds=abs(worst["marked_percent"] - worst["law_percent"]) <= 100 * NEAR,
        )


EXPERIMENT = Experiment(
    name="ecn_sweep",
    question="What does a port mark, and what do Kmin, Kmax and Pmax do to goodput and queue?",
    settings=Settings,
    run=run,
    topology="star:hosts=3",
    policy="lossy",
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
