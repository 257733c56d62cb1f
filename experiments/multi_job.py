r"""Several training jobs on one fabric: how much does each slow the others down?

    rack 1: A B A B     placed in turn, each job has hosts in every rack, and both cross the same uplinks;
    rack 2: A B A B     rack by rack, each job keeps to its own leaf and never meets the other
      |||| uplinks

Every job is a ring all-reduce over and over.  Each runs alone first, then all start at one instant, each with its own
ranks and its own rendezvous.  Its slowdown is its mean time among the others over its time alone.

    ./run experiments/multi_job.py --set jobs=2 --set placement=interleaved
    ./run experiments/multi_job.py --set jobs=4 --set placement=contiguous --topology leaf_spine:leaves=4,hosts=4

Expected: jobs that share no link slow each other by nothing; jobs whose flows share uplinks by as much as the busiest
uplink has more flows than it had alone, which is a matter of the load balancer.
"""

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.jobs import Work
from experiments.placement import MEANING, place, racks
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, written
from experiments.workloads.ring_ideal import ideal_ns
from experiments.workloads.split_rings import Round, Rounds, kept, program, times
from topologies.errors import UserError

if TYPE_CHECKING:
    from experiments.lab import Lab

APART = 1.02
"""Of a job that shares no link with another: its time among the others over its time alone."""
MEETING = 1.15
"""Times the number of jobs: what queues, and losses where buffers are small, cost beyond sharing."""


class Settings(BaseSettings):
    """How many jobs, where, and what they do."""

    jobs: int = Field(default=2, ge=1, description="at once")
    placement: str = Field(
        default="interleaved",
        description=f"of all hosts; interleaved deals them out to the jobs in turn, the others in blocks.  {MEANING}",
    )
    size: Size = Field(default=written("4M"), ge=4, description="bytes of each job's array")
    rounds: int = Field(default=4, ge=1, description="all-reduces of each job, one straight after the other")
    connections: int = Field(default=1, ge=1, le=64, description="TCP connections per pair of ranks, each with a part")


def run(lab: "Lab", settings: Settings) -> None:
    """Each job alone, then all of them."""
    parts = hosts_of_jobs(lab, settings)
    works = [_work(settings, hosts) for hosts in parts]
    alone = [_mean_ns(lab, lab.jobs([work])[0]) for work in works]
    together = [_mean_ns(lab, found) for found in lab.jobs(works)]
    table = [
        {
            "job": number + 1,
            "hosts": " ".join(hosts),
            "ideal_us": round(ideal_ns(lab.topology, hosts, settings.size) / 1e3, 3),
            "alone_us": round(alone[number] / 1e3, 3),
            "together_us": round(together[number] / 1e3, 3),
            "slowdown": round(together[number] / alone[number], 4),
        }
        for number, hosts in enumerate(parts)
    ]
    lab.add("jobs", table)
    _claims(lab, parts, table)


def hosts_of_jobs(lab: "Lab", settings: Settings) -> list[list[str]]:
    """Hosts in rank order, a list per job.  Raises UserError."""
    placed = place(lab.topology, settings.placement, seed=lab.seed)
    each = len(placed) // settings.jobs
    if each < 2:
        raise UserError(f"--set jobs={settings.jobs}: {len(placed)} hosts give each job fewer than two")
    if settings.placement != "interleaved":
        return [placed[number * each : (number + 1) * each] for number in range(settings.jobs)]
    dealt = [
        [host for rack in racks(lab.topology) for host in rack[number :: settings.jobs]]
        for number in range(settings.jobs)
    ]
    order = {host: number for number, host in enumerate(placed)}
    return [sorted(hosts, key=lambda host: order[host]) for hosts in dealt]


def _work(settings: Settings, hosts: Sequence[str]) -> Work:
    rounds = Rounds(
        size_bytes=settings.size,
        connections=settings.connections,
        labels=[str(number) for number in range(settings.rounds)],
        warmup=1,
        together=False,
    )
    return Work(program=program, arguments=(rounds,), hosts=hosts, connections=settings.connections)


def _mean_ns(lab: "Lab", found: Sequence[object]) -> float:
    measured = times(cast("list[list[Round]]", found))
    lab.add_busy_ns(sum(each.time_ns for each in measured))
    return mean(each.time_ns for each in kept(measured))


def _claims(lab: "Lab", parts: Sequence[Sequence[str]], table: Sequence[dict[str, Any]]) -> None:
    rack = {host: number for number, hosts in enumerate(racks(lab.topology)) for host in hosts}
    apart = all(len({rack[host] for host in hosts}) == 1 for hosts in parts)
    worst = max(line["slowdown"] for line in table)
    if apart:
        lab.add_claim(
            "jobs that keep to their own racks do not meet",
            expected=f"every slowdown at most {APART}",
            measured=f"{worst:.3f}",
            holds=worst <= APART,
        )
    else:
        lab.add_claim(
            "jobs that share uplinks slow each other by at most their number, and a little for queues",
            expected=f"every slowdown between {1 / APART:.2f} and {len(parts) * MEETING:.2f}",
            measured=", ".join(f"{line['slowdown']:.3f}" for line in table),
            holds=all(1 / APART <= line["slowdown"] <= len(parts) * MEETING for line in table),
        )


EXPERIMENT = Experiment(
    name="multi_job",
    question="How much do training jobs on one fabric slow each other down?",
    settings=Settings,
    run=run,
    topology="leaf_spine:leaves=2,hosts=4,spines=4",
    host={"rto_min": "1ms"},
)

if __name__ == "__main__":
    main(EXPERIMENT)
