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

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.jobs import Work
from experiments.placement import MEANING, place, racks
from experiments.records import tcp_paths
from experiments.results import FlowPath
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, written
from experiments.workloads.incast_claims import late_us
from experiments.workloads.ring_ideal import ideal_ns
from experiments.workloads.split_rings import Round, Rounds, RoundTime, kept, program, times
from topologies.errors import UserError
from topologies.model import Topology

if TYPE_CHECKING:
    from experiments.lab import Lab

APART = 1.02
"""Of a job that shares no link with another: its time among the others over its time alone."""
MEETING = 1.15
"""Times the flows on one link: what queues cost beyond sharing."""


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
    alone = [_rounds(lab, lab.jobs([work])[0]) for work in works]
    before = tcp_paths(lab)
    together = [_rounds(lab, found) for found in lab.jobs(works)]
    sharing = most_on_a_link(lab.topology, before, tcp_paths(lab), least_bytes=settings.size // 2)
    table = [
        {
            "job": number + 1,
            "hosts": " ".join(hosts),
            "ideal_us": round(ideal_ns(lab.topology, hosts, settings.size) / 1e3, 3),
            "alone_us": round(mean_ns(alone[number]) / 1e3, 3),
            "together_us": round(mean_ns(together[number]) / 1e3, 3),
            "slowdown": round(mean_ns(together[number]) / mean_ns(alone[number]), 4),
            "rounds": settings.rounds,
            "timeouts": sum(each.timeouts for each in together[number]),
        }
        for number, hosts in enumerate(parts)
    ]
    lab.add("jobs", table)
    _claims(lab, parts, table, sharing)


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


def _rounds(lab: "Lab", found: Sequence[object]) -> list[RoundTime]:
    measured = times(cast("list[list[Round]]", found))
    lab.add_busy_ns(sum(each.time_ns for each in measured))
    return kept(measured)


def mean_ns(rounds: Sequence[RoundTime]) -> float:
    """Of a round."""
    return float(mean(each.time_ns for each in rounds))


def _claims(lab: "Lab", parts: Sequence[Sequence[str]], table: Sequence[dict[str, Any]], sharing: int) -> None:
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
        most = [max(sharing, 1) * MEETING + _lost_to_timeouts(lab, line) for line in table]
        lab.add_claim(
            f"jobs slow each other by no more than the {sharing} flows that share one link, queues, and their timeouts",
            expected=f"slowdowns of at most {', '.join(f'{bound:.2f}' for bound in most)}",
            measured=", ".join(f"{line['slowdown']:.3f}" for line in table),
            holds=all(line["slowdown"] <= bound for line, bound in zip(table, most, strict=True)),
        )


def most_on_a_link(
    topology: Topology, before: Sequence[FlowPath], after: Sequence[FlowPath], *, least_bytes: int
) -> int:
    """How many large flows that are new since `before` took the busiest link between two switches."""
    known = {(flow.src, flow.dst, flow.sport, flow.dport) for flow in before}
    switches = {switch.name for switch in topology.switches}
    between = {
        end.name
        for link in topology.links
        for end in (link.a, link.b)
        if link.a.node in switches and link.b.node in switches
    }
    count = Counter(
        name
        for flow in after
        if (flow.src, flow.dst, flow.sport, flow.dport) not in known and flow.bytes >= least_bytes
        for name in flow.path
        if name in between
    )
    return max(count.values(), default=0)


def _lost_to_timeouts(lab: "Lab", line: Mapping[str, Any]) -> float:
    """What a job's retransmission timers may have cost, as a share of its time alone: all ranks wait for each."""
    timer_us = lab.fabric.hosts.rto_min_us
    return float(line["timeouts"] * (timer_us + late_us(timer_us)) / (line["rounds"] * line["alone_us"]))


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
