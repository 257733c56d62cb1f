"""What an experiment asks of a job, and what may be said when one fails on a broken fabric."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.workers.occupant import Program
from testbed.workers.together import COMMON_START
from topologies.errors import RunFailed, UserError
from topologies.graph import distances, leaf_of
from topologies.model import Topology


@dataclass(frozen=True, kw_only=True)
class Work:
    """One job of several that run at once: `lab.jobs([Work(program=..., hosts=[...]), ...])`."""

    program: Program
    arguments: tuple[Any, ...] = ()
    hosts: Sequence[str] | None = None
    """In rank order; None is every host."""
    connections: int = 1
    process_group: bool = True
    cc: str | None = None
    """Congestion control, where it differs from the run's."""
    at_line_up: Callable[[str], None] | None = field(default=None)
    """Called with the label of every line-up while all ranks of this job stand; the fabric may be changed there."""


class CommonStart:
    """Holds every job at its line-up COMMON_START until all are there: then all go on at one instant."""

    def __init__(self, jobs: int) -> None:
        """For so many."""
        self._barrier = threading.Barrier(jobs)

    def wait(self, label: str) -> None:
        """Raises RunFailed once another job has failed."""
        if label == COMMON_START:
            try:
                self._barrier.wait()
            except threading.BrokenBarrierError:
                raise RunFailed("given up because another job of the run failed") from None

    def call_off(self) -> None:
        """Nobody need wait any more."""
        self._barrier.abort()


def check_together(works: Sequence[Work], hosts: Sequence[Sequence[str]]) -> None:
    """Raises UserError where two jobs cannot run at once."""
    for number, work in enumerate(works):
        for other in range(number):
            shared = sorted(set(hosts[number]) & set(hosts[other]))
            if shared and work.cc != works[other].cc:
                raise UserError(f"jobs {other + 1} and {number + 1} want different congestion control on {shared[0]}")


def cut_off(topology: Topology, down: frozenset[str], hosts: Sequence[str]) -> list[str]:
    """Why these hosts cannot all reach each other, a sentence per cut; none when they can.

    The links named are those that are down at the host, or else all that are down.
    """
    cut = [
        f"host {host} is cut off: its link {link.name} is down"
        for host in hosts
        for nic in topology.interfaces_of[host]
        if (link := topology.link_of[nic.name]).name in down
    ]
    reached = [host for host in hosts if not any(line.startswith(f"host {host} ") for line in cut)]
    leaf = {host: leaf_of(topology, topology.interfaces_of[host][0].name).name for host in reached}
    for host in reached[1:]:
        if leaf[host] not in distances(topology, leaf[reached[0]], down):
            cut.append(f"host {host} is cut off from {reached[0]}: no way is left with {', '.join(sorted(down))} down")
    return cut
