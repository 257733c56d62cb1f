r"""A link fails under traffic: how long until packets take another way, what is lost, and what does a step lose?

    t=0         at              at + detection delay          repaired
    |--ring-----X- - - - - - - -|- rules and paths rewritten -|--ring----->      lost: flushed from queues and wires,
                ^ link down       controller notices                             then all that is sent to the dead port

A ring all-reduce runs round after round, one straight after the other.  The controller hears of the port at once, but
believes it after `--detection-delay`; then every table is rewritten and read back.  TCP repairs what was lost: by its
retransmission timeout where a whole window went, so `host.rto_min` (1 ms here, 200 ms in a stock Linux) matters more
than the repair.

    ./run experiments/failures.py --failure "at 3ms link leaf1-spine1 down" --failure "at 9ms link leaf1-spine1 up"
    ./run experiments/failures.py --failure "at 3ms switch spine1 down" --detection-delay 10ms
    ./run experiments/failures.py --failure "at 1ms link leaf1-spine1 flap 5x every 4ms" --policy flowlet

Expected: the repair follows the detection in no (virtual) time; nothing is sent to the dead link afterwards; the round
that was hit is longer by the outage and a few timeouts, and rounds after the repair take what the links left allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from controller.policies import parse_policy
from experiments.experiment import Experiment, main
from experiments.failure_schedule import Failure, State, parse_failures
from experiments.placement import MEANING, place
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, written
from experiments.workloads.ring_ideal import ideal_ns
from experiments.workloads.split_rings import Round, Rounds, RoundTime, program, times
from topologies.units import parse_delay

if TYPE_CHECKING:
    from experiments.lab import Lab

REPAIR_US = 100
"""Of virtual time, from detection to tables that read back: software takes none, the messages cross a loopback."""


RECOVERED = 1.1
"""Other hashes on other links: not to the per cent."""


class Settings(BaseSettings):
    """The ring that the failure meets."""

    size: Size = Field(default=written("4M"), ge=4, description="bytes of the array")
    rounds: int = Field(default=12, ge=1, description="all-reduces, one straight after the other")
    connections: int = Field(default=1, ge=1, le=64, description="TCP connections per pair of ranks, each with a part")
    placement: str = Field(default="interleaved", description=MEANING)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A round on the schedule's clock."""

    number: int
    from_us: float
    until_us: float
    ideal_us: float
    """With the links that were down at its beginning."""

    @property
    def slowdown(self) -> float:
        """Against the ideal."""
        return (self.until_us - self.from_us) / self.ideal_us

    def line(self) -> dict[str, Any]:
        """Of the table."""
        return {
            "round": self.number,
            "from_us": self.from_us,
            "time_us": round(self.until_us - self.from_us, 3),
            "ideal_us": round(self.ideal_us, 3),
            "slowdown": round(self.slowdown, 3),
        }


def run(lab: "Lab", settings: Settings) -> None:
    """One job; the schedule does the rest."""
    hosts = place(lab.topology, settings.placement, seed=lab.seed)
    rounds = Rounds(
        size_bytes=settings.size,
        connections=settings.connections,
        labels=[str(number) for number in range(settings.rounds)],
        together=False,
    )
    found = cast("list[list[Round]]", lab.job(program, rounds, hosts=hosts, connections=settings.connections))
    measured = times(found)
    lab.add_busy_ns(sum(each.time_ns for each in measured))
    failures = parse_failures(lab.request.failures, lab.topology)
    zero_ns = lab.timeline.start_ns or 0
    starts_us = [(min(it.start_ns for it in across) - zero_ns) / 1e3 for across in zip(*found, strict=True)]
    timed = [
        Timed(
            number=number,
            from_us=start_us,
            until_us=start_us + each.time_ns / 1e3,
            ideal_us=ideal_ns(lab.topology, hosts, settings.size, down_at(failures, start_us * 1e3)) / 1e3,
        )
        for number, (start_us, each) in enumerate(zip(starts_us, measured, strict=True))
    ]
    lab.add("rounds", [each.line() for each in timed])
    _claims(lab, failures)
    _claim_recovery(lab, timed, failures)
    _claim_period(lab, timed, failures)
    _note_step_loss(lab, timed, measured)


def down_at(failures: Sequence[Failure], at_ns: float) -> frozenset[str]:
    """Links that are down at an instant of the schedule.  Pure."""
    down: set[str] = set()
    for failure in failures:
        if failure.at_ns <= at_ns and isinstance(failure.deed, State):
            (down.difference_update if failure.deed.up else down.update)(failure.links)
    return frozenset(down)


def _note_step_loss(lab: "Lab", timed: Sequence[Timed], measured: Sequence[RoundTime]) -> None:
    """What the failures cost in time: the rounds together against what the first ones, unhurt, would have taken."""
    first_us = timed[0].until_us - timed[0].from_us
    unhurt = [each.time_ns / 1e3 for each in measured]
    lab.add(
        "step_loss",
        [
            {
                "rounds": len(timed),
                "first_us": round(first_us, 3),
                "longest_us": round(max(unhurt), 3),
                "total_us": round(sum(unhurt), 3),
                "lost_us": round(sum(unhurt) - len(unhurt) * min(unhurt), 3),
            }
        ],
    )


def unhurt(timed: Sequence[Timed], failures: Sequence[Failure]) -> float:
    """The slowest round that ended before anything broke, or the first; against its ideal."""
    broken_us = min((failure.at_ns for failure in failures), default=0) / 1e3
    return max([each.slowdown for each in timed if each.until_us <= broken_us] or [timed[0].slowdown])


def _claim_recovery(lab: "Lab", timed: Sequence[Timed], failures: Sequence[Failure]) -> None:
    before, last = unhurt(timed, failures), timed[-1].slowdown
    lab.add_claim(
        "the last round runs as well as those before the failure did, for the links that are up",
        expected=f"at most {RECOVERED} times the slowest's {before:.2f} of the ideal",
        measured=f"{last:.2f} of the ideal",
        holds=last <= RECOVERED * before,
    )


def _claim_period(lab: "Lab", timed: Sequence[Timed], failures: Sequence[Failure]) -> None:
    """A policy that measures has planned for what is left once a period has passed since the tables were repaired."""
    period_ns = parse_policy(lab.plan.composition.balancer_spec).measures_every_ns
    repaired = [each["repaired_ns"] for each in lab.controller.ask({"do": "failures"})["detections"]]
    if period_ns is None or not repaired or None in repaired:
        return
    planned_us = (max(repaired) - (lab.timeline.start_ns or 0) + period_ns) / 1e3
    before, after = unhurt(timed, failures), [each for each in timed if each.from_us >= planned_us]
    if after:
        lab.add_claim(
            "the first round that begins a period after the repair runs as well as those before, for what is left",
            expected=f"at most {RECOVERED} times the slowest's {before:.2f} of the ideal",
            measured=f"{after[0].slowdown:.2f} of the ideal, from {after[0].from_us:.0f} us on",
            holds=after[0].slowdown <= RECOVERED * before,
        )


def _claims(lab: "Lab", failures: Sequence[Failure]) -> None:
    if not any(isinstance(each.deed, State) for each in failures):
        return
    detections = lab.controller.ask({"do": "failures"})["detections"]
    between = [each for each in detections if _between_switches(lab, each["link"])]
    if not between:
        return
    delay_us = parse_delay(lab.request.detection_delay) / 1e3
    noticed = [(each["detected_ns"] - each["seen_ns"]) / 1e3 for each in between]
    lab.add_claim(
        "a change of a link is believed after the detection delay",
        expected=f"{delay_us:g} us, to the microsecond",
        measured=", ".join(sorted({f"{each:g} us" for each in noticed})),
        holds=all(abs(each - delay_us) <= 1 for each in noticed),
    )
    repairs = [(each["repaired_ns"] - each["detected_ns"]) / 1e3 for each in between if each["repaired_ns"]]
    lab.add_claim(
        "then every switch's tables are rewritten, read back, and equal the plan without the link",
        expected=f"within {REPAIR_US} us, for each of {len(between)} changes",
        measured=f"{len(repairs)} repaired, the slowest in {max(repairs, default=0):g} us",
        holds=len(repairs) == len(between) and max(repairs, default=0) <= REPAIR_US,
    )


def _between_switches(lab: "Lab", link_name: str) -> bool:
    link = lab.topology.link_named[link_name]
    return {link.a.node, link.b.node} <= set(lab.topology.switch_named)


EXPERIMENT = Experiment(
    name="failures",
    question="A link fails under traffic: how soon is it repaired, what is lost, what does a training step lose?",
    settings=Settings,
    run=run,
    topology="leaf_spine:leaves=2,hosts=2,spines=2",
    host={"rto_min": "1ms"},
    failures=("at 2ms link leaf1-spine1 down", "at 10ms link leaf1-spine1 up"),
    events_from="operation",
)

if __name__ == "__main__":
    main(EXPERIMENT)
