r"""How long must a flow pause before it may change its path?  The gap of flowlets, from spraying to ECMP.

      spine1     spine2  spine3  spine4
        | 25G      |       |       |       one uplink at a quarter of the others' rate
        +--------- leaf1 ----------+
                 h1 h2 h3 h4  --bursts, pauses between them-->  h5 h6 h7 h8 (leaf2)

    gap 0          every packet a path of its own: packets overtake each other, TCP sends again what was only late
    gap > the paths' difference in delay          nothing is overtaken, and yet bursts change their path
    gap infinite   ECMP: who is hashed to the slow link stays there

    ./run experiments/flowlet_gap.py --set gaps=0,5us,50us,infinite --set choices=random

Expected: reordering falls with the gap; with a choice by load nobody stays behind the slow link (facts.md 7.9, 7.10).
Reordering is what receivers' TCP counts as out of order (TCPOFOQueue), while nothing is dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, cast

from pydantic import Field

from experiments.balance import phases
from experiments.experiment import Experiment, main
from experiments.settings import Delay, Size, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.workloads.bursts import Bursts, Series, program
from topologies.units import parse_delay

if TYPE_CHECKING:
    from experiments.lab import Lab

WARM_UP = "warm-up"
BETTER, NEAR = 1.5, 1.2
"""Issue 4, facts.md 7.10."""
PATHS, TIMES = 0.01, 0.1
"""How equal ECMP and an infinite gap are: flows take the same paths, with windows that other bursts have left them."""


class Settings(BaseSettings):
    """The sweep, and the bursts."""

    gaps: Words = Field(default=written("0,5us,20us,100us,1ms,infinite"), description="of flowlets with random paths")
    choices: Words = Field(default=written("local,congestion"), description="choices by load, at `gap`")
    gap: str = Field(default="20us", description="of the choices by load")
    size: Size = Field(default=written("1M"), ge=1, description="bytes of a burst")
    bursts: int = Field(default=8, ge=1, description="of each sender, per policy")
    seeds: int = Field(default=12, ge=1, description="of the hash, from the run's on: who is hashed to the slow link")
    pause: Delay = Field(default=written("1500us"), description="between a sender's bursts")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One policy, measured."""

    policy: str
    completion_ns: float
    """Of all bursts of the slowest sender, pauses not counted: a mean over seeds."""
    burst_ns: Sequence[int]
    reordered: int
    retransmitted: int
    spurious: int
    dropped: int
    index: float

    def line(self) -> dict[str, object]:
        """Of the table."""
        return {
            "policy": self.policy,
            "completion_us": round(self.completion_ns / 1e3, 3),
            "burst_mean_us": round(mean(self.burst_ns) / 1e3, 3),
            "burst_worst_us": round(max(self.burst_ns) / 1e3, 3),
            "reordered": self.reordered,
            "retransmitted": self.retransmitted,
            "spurious": self.spurious,
            "dropped": self.dropped,
            "max_over_mean": round(self.index, 4),
        }


def run(lab: "Lab", settings: Settings) -> None:
    """One job; the policy changes while the hosts stand."""
    policies = ["ecmp", *(f"flowlet:gap={gap}" for gap in settings.gaps)]
    policies += [f"flowlet:gap={settings.gap},choice={choice}" for choice in settings.choices]
    labels = [_seeded(policy, lab.seed + number) for policy in policies for number in range(settings.seeds)]
    bursts = Bursts(
        size_bytes=settings.size,
        count=settings.bursts,
        pause_ns=settings.pause,
        labels=(WARM_UP, *labels),
    )
    first, drops = len(lab.readings), [0]
    job = lab.job(program, bursts, process_group=False, at_line_up=partial(_at_line_up, lab, labels, drops))
    series = cast("list[list[Series]]", job)
    indices = {
        phase.label.removeprefix("start "): phase.index
        for phase in phases(lab.topology, lab.readings[first:])
        if phase.label.startswith("start ") and phase.tier.startswith("leaf to")
    }
    points = []
    for at, policy in enumerate(policies):
        numbers = range(1 + at * settings.seeds, 1 + (at + 1) * settings.seeds)
        dropped = drops[numbers[-1] + 1] - drops[numbers[0]]
        found = [indices[labels[number - 1]] for number in numbers]
        points.append(_point(policy, [[host[number] for host in series] for number in numbers], dropped, mean(found)))
    spans = [[host[number] for host in series] for number in range(len(labels) + 1)]
    lab.add_busy_ns(sum(max(each.end_ns for each in span) - min(each.start_ns for each in span) for span in spans))
    lab.add("flowlet_gap", [point.line() for point in points])
    _claims(lab, settings, {point.policy: point for point in points})
    _claim_skew(lab, settings, {point.policy: point for point in points})


def _seeded(policy: str, seed: int) -> str:
    return f"{policy}{',' if ':' in policy else ':'}seed={seed}"


def _at_line_up(lab: "Lab", labels: Sequence[str], drops: list[int], label: str) -> None:
    """At the line-up that a policy gives its name the policy is put in force; drops are read at the ends."""
    if label in labels:
        lab.use_policy(label)
    if label.startswith("end "):
        drops.append(sum(counters.port.dropped_packets for counters in lab.sample().values()))


def _point(policy: str, runs: Sequence[Sequence[Series]], dropped: int, index: float) -> Point:
    hosts = [host for run in runs for host in run]
    senders = [host for host in hosts if host.burst_ns]
    return Point(
        policy=policy,
        completion_ns=mean(max(sum(host.burst_ns) for host in run) for run in runs),
        burst_ns=[each for host in senders for each in host.burst_ns],
        reordered=sum(host.reordered for host in hosts),
        retransmitted=sum(host.retransmitted for host in hosts),
        spurious=sum(host.spurious for host in hosts),
        dropped=dropped,
        index=index,
    )


def _claims(lab: "Lab", settings: Settings, points: dict[str, Point]) -> None:
    swept = [points[f"flowlet:gap={gap}"] for gap in settings.gaps]
    if len(swept) > 1:
        lab.add_claim(
            "reordering falls with the gap",
            expected="never more at a longer gap, and less at the longest than at the shortest",
            measured=", ".join(f"{gap}: {point.reordered}" for gap, point in zip(settings.gaps, swept, strict=True)),
            holds=all(one.reordered >= other.reordered for one, other in pairwise(swept))
            and swept[0].reordered > swept[-1].reordered,
        )
    ecmp, infinite = points["ecmp"], points.get("flowlet:gap=infinite")
    if infinite is not None:
        lab.add_claim(
            "an infinite gap is ECMP",
            expected=f"its busiest link to {PATHS:.0%}, {ecmp.index:.3f} times the mean; its time to {TIMES:.0%}",
            measured=f"{infinite.index:.3f}; {infinite.completion_ns / 1e3:.1f} of {ecmp.completion_ns / 1e3:.1f} us",
            holds=abs(infinite.index / ecmp.index - 1) <= PATHS
            and abs(infinite.completion_ns / ecmp.completion_ns - 1) <= TIMES,
        )
    best, random = (
        points.get(f"flowlet:gap={settings.gap},choice=congestion"),
        points.get(f"flowlet:gap={settings.gap}"),
    )
    if best is not None and len({link.rate_bps for link in lab.topology.links}) > 1:
        lab.add_claim(
            "congestion beats ECMP where an uplink is slow",
            expected=f"at least {BETTER} times as fast",
            measured=f"{ecmp.completion_ns / best.completion_ns:.2f}",
            holds=ecmp.completion_ns >= BETTER * best.completion_ns,
        )
        if random is not None:
            lab.add_claim(
                "random flowlets come near",
                expected=f"at most {NEAR} times the time of congestion",
                measured=f"{random.completion_ns / best.completion_ns:.2f}",
                holds=random.completion_ns <= NEAR * best.completion_ns,
            )


def worst_skew_ns(lab: "Lab") -> float:
    """By how much two paths between leaves can have differed: the longest queues on one, none on the other."""
    counters, longest = lab.sample(), {"up": 0.0, "down": 0.0}
    for link in lab.topology.links:
        for sender, receiver in link.ends():
            if {sender.node, receiver.node} <= set(lab.topology.switch_named):
                way = "up" if sender.node.startswith("leaf") else "down"
                waited_ns = counters[sender.name].port.queue_max_bytes * 8e9 / link.rate_bps
                longest[way] = max(longest[way], waited_ns)
    return sum(longest.values())


def _claim_skew(lab: "Lab", settings: Settings, points: dict[str, Point]) -> None:
    skew_ns = worst_skew_ns(lab)
    above = [gap for gap in settings.gaps if gap != "infinite" and parse_delay(gap) > skew_ns]
    if above:
        measured = [points[f"flowlet:gap={gap}"] for gap in above]
        lab.add_claim(
            "above the worst skew of queues nothing is overtaken, though paths change",
            expected=f"none at gaps above {skew_ns / 1e3:.1f} us, the busiest uplink less busy than ECMP's",
            measured=", ".join(f"{gap}: {it.reordered}" for gap, it in zip(above, measured, strict=True)),
            holds=all(not it.reordered and it.index < points["ecmp"].index for it in measured),
        )


EXPERIMENT = Experiment(
    name="flowlet_gap",
    question="How long must a flow pause before it may change its path?",
    policy="lossy:lb=ecmp,limit=4MB,buffer=16MB",  # room for all: losses would hide what paths do
    settings=Settings,
    run=run,
    topology=str(Path(__file__).with_name("slow_uplink.yaml")),
    host={"rto_min": "1ms"},
)

if __name__ == "__main__":
    main(EXPERIMENT)
