"""What an experiment works with once the fabric carries traffic: jobs, counters, and a place for what it finds.

Fabric (namespaces, cables, ports, switches)
  + controller (a process; every rule acknowledged)
  + probe (every host reaches every other)
  + captures, if asked for
  = Lab, handed to the experiment's `run`; afterwards links, paths and the verdict are added and results.json is written
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments import balance
from experiments.console import MARK
from experiments.control import ControllerProcess
from experiments.jobs import CommonStart, Work, check_together, cut_off
from experiments.port_plan import PortPlan
from experiments.progress import progress
from experiments.request import Request
from experiments.results import Claim, Row
from experiments.run_folder import RunFolder
from experiments.socket_audit import Asked, SocketAudit
from experiments.timeline import Timeline
from testbed.counters import Counters
from testbed.fabric import Fabric
from testbed.link_faults import LinkFaults
from testbed.node import FabricHost
from testbed.workers.job import Job
from testbed.workers.occupant import Program
from testbed.workers.seat import Seat
from testbed.workers.together import run_together
from topologies.errors import RunFailed, UnknownName
from topologies.model import Topology

Say = Callable[[str], None]
SETTLE_STEP_S = 0.05
"""Longer than a delayed acknowledgement (40 ms on Linux) takes."""
SETTLE_TIMEOUT_S = 10.0
REPAIR_STEP_S = 0.001
REPAIR_TIMEOUT_S = 60.0
"""Longer than any detection delay that makes sense."""


@dataclass(kw_only=True)
class Lab:
    """A running fabric under one controller, and what an experiment has found on it so far."""

    request: Request
    topology: Topology
    fabric: Fabric
    plan: PortPlan
    sockets: SocketAudit
    controller: ControllerProcess
    folder: RunFolder
    say: Say
    """Prints a line for the user."""
    timeline: Timeline
    """What happens at given instants."""
    started_ns: int
    """The monotonic clock when `run` began."""
    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    sections: dict[str, Any] = field(default_factory=dict)
    busy_ns: int = 0
    _jobs: int = 0
    longest_queue: Callable[[], tuple[str, int]] = lambda: ("", 0)
    """The egress interface with the longest queue since the last call, and its bytes."""
    readings: list[balance.Reading] = field(default_factory=list)
    """What switch ports had sent at each line-up."""
    _broken: frozenset[str] = frozenset()
    _largest_job: int = 0
    _looking: threading.Lock = field(default_factory=threading.Lock)
    """Jobs that run at once are watched in threads, and read the same counters and sockets."""

    @property
    def seed(self) -> int:
        """The run's: every random choice of an experiment comes from it."""
        return self.request.seed

    def job(
        self,
        program: Program,
        *arguments: Any,
        hosts: Sequence[str] | None = None,
        connections: int = 1,
        process_group: bool = True,
        cc: str | None = None,
        at_line_up: Callable[[str], None] | None = None,
    ) -> list[object]:
        """Runs `program(rank, *arguments)` on every host (or on `hosts`, in rank order); results in rank order.

        `cc` is this job's congestion control, where it differs from the run's.  At each line-up that is new, every
        socket of the job's hosts is asked what it runs.

        Raises RunFailed naming the rank that died or got stuck, and the broken links that cut hosts off; UnknownName
        for a host that does not exist.
        """
        work = Work(
            program=program,
            arguments=arguments,
            hosts=hosts,
            connections=connections,
            process_group=process_group,
            cc=cc,
            at_line_up=at_line_up,
        )
        return self.jobs([work])[0]

    def jobs(self, works: Sequence[Work]) -> list[list[object]]:
        """Runs several jobs at once, each with its own rendezvous; the results of each in rank order.

        They go on together from a line-up called COMMON_START (testbed.workers.together), if they have one.
        Raises what `job` raises, and UserError for jobs that cannot share a host.
        """
        hosts = [
            [host.name for host in self.topology.hosts] if work.hosts is None else list(work.hosts) for work in works
        ]
        check_together(works, hosts)
        start = CommonStart(len(works))
        with ExitStack() as stack:
            jobs = [self._job(work, names, start, stack) for work, names in zip(works, hosts, strict=True)]
            try:
                return run_together(jobs, on_failure=start.call_off)
            except RunFailed as error:
                down = self.down
                cuts = cut_off(self.topology, down, [name for names in hosts for name in names])
                cuts += [f"links that were down: {', '.join(sorted(down))}"] if down and not cuts else []
                raise RunFailed("\n".join([*cuts, str(error)])) from error

    def _job(self, work: Work, names: Sequence[str], start: CommonStart, stack: ExitStack) -> Job:
        self._jobs += 1
        self._largest_job = max(self._largest_job, len(names))
        nodes = [self.fabric.net.get(name) for name in names]
        if work.cc is not None:
            for node in nodes:
                stack.enter_context(node.congestion_control(work.cc, instead_of=self.fabric.hosts.cc))
        look = self._observer(nodes, work.cc or self.fabric.hosts.cc)

        def observe(label: str) -> None:
            with self._looking:
                look(label)
                self._read(label)
                if work.at_line_up is not None:
                    work.at_line_up(label)
            start.wait(label)

        return Job(
            seats=[self.seat(name) for name in names],
            program=work.program,
            arguments=work.arguments,
            log_directory=self.folder.path / "ranks" / f"job-{self._jobs:02d}",
            seed=self.seed,
            connections=work.connections,
            process_group=work.process_group,
            observe=observe,
            began=self.timeline.begin,
        )

    def _read(self, label: str) -> None:
        sent, now_ns = self.fabric.sent_bytes(), time.monotonic_ns()
        self.readings.append(balance.Reading(at_ns=now_ns, label=label, sent_bytes=sent, down=self.down))
        far = progress(
            self.topology,
            self.readings,
            start_ns=self.started_ns,
            events=len(self.timeline.events),
            longest_queue=self.longest_queue(),
        )
        self.mark(far.line())

    def _observer(self, nodes: Sequence[FabricHost], cc: str) -> Callable[[str], None]:
        """Looks at the job's sockets at each line-up whose label is new."""
        # Linux's dctcp negotiates ECN whatever the sysctl says
        asked = Asked(cc=cc, ecn=cc == "dctcp" or self.fabric.hosts.ecn == "on")
        labels: set[str] = set()
        job = self._jobs

        def observe(label: str) -> None:
            if label not in labels:
                labels.add(label)
                self.sockets.look(nodes, job=job, asked=asked)

        return observe

    def use_policy(self, load_balancer: str) -> None:
        """Another load balancer, as `--policy` names it; in force on return, for flows under way as well.

        Raises RunFailed with the controller's words.
        """
        self.controller.ask({"do": "policy", "policy": load_balancer})

    @contextmanager
    def broken(self, *links: str) -> Iterator[None]:
        """These cables are down inside, and the controller has routed around them before it begins.

        Raises UserError for ports that cannot fail, RunFailed where the controller does not notice.
        """
        with LinkFaults(self.fabric, seed=self.seed) as faults:
            for link in links:
                faults.set_state(link, up=False)
            self._await_repair(faults.down)
            self._broken |= faults.down
            try:
                yield
            finally:
                for link in links:
                    faults.set_state(link, up=True)
                self._broken -= set(links)
                self._await_repair(self._broken)

    def _await_repair(self, down: AbstractSet[str]) -> None:
        """Until the controller does without exactly these links, and every switch's tables say so."""
        deadline = time.monotonic() + REPAIR_TIMEOUT_S
        while (found := set(self.controller.ask({"do": "failures"})["down"])) != down:
            if time.monotonic() > deadline:
                raise RunFailed(f"the controller believes that {sorted(found)} are down; {sorted(down)} are")
            time.sleep(REPAIR_STEP_S)  # a poll: the controller's sockets answer questions, and call nobody
        self.controller.wait_ready()

    @property
    def down(self) -> frozenset[str]:
        """Links that are down now."""
        return self.timeline.down | self._broken

    def seat(self, host: str) -> Seat:
        """Where a rank on `host` sits.  Raises UnknownName."""
        if host not in self.topology.host_named:
            raise UnknownName("host", host, self.topology.host_named)
        nics = self.topology.interfaces_of[host]
        namespace = self.fabric.net.get(host).namespace
        return Seat(
            host=host,
            namespace_path=Path(f"/proc/{os.getpid()}/fd/{namespace.fd}"),
            addresses=tuple(str(nic.ip) for nic in nics),
            interfaces=tuple(nic.name for nic in nics),
        )

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Rows of results.json."""
        self.rows.extend(rows)

    def add_busy_ns(self, busy_ns: int) -> None:
        """Time in which operations ran: what the links' utilisation is a share of."""
        self.busy_ns += busy_ns

    def add_claim(self, claim: str, *, expected: str, measured: str, holds: bool) -> None:
        """What the experiment says must be seen, and whether it was."""
        self.claims.append(Claim(claim=claim, expected=expected, measured=measured, holds=holds))

    def add(self, section: str, value: Any) -> None:
        """A top-level section of results.json of the experiment's own; JSON values only."""
        if section == "claims":
            self.claims.extend(Claim(**claim) for claim in value)
        elif section == "busy_ns":
            self.busy_ns += value
        else:
            self.sections[section] = value

    def sample(self) -> Mapping[str, Counters]:
        """Counters of every interface and port since the fabric was made."""
        return self.fabric.counters()

    def packet_hops(self) -> int:
        """Packets that have crossed a link so far, each link counted."""
        return sum(counters.rx_packets for counters in self.sample().values())

    def mark(self, name: str) -> None:
        """Lets the machine note at which wall-clock second this happened (wall.json)."""
        self.say(f"{MARK}{name}")

    @property
    def ranks(self) -> int:
        """Of the largest job so far."""
        return self._largest_job
