"""Where scenarios play: their streams as a job, the ports before, during and after, and the pauses on the wire.

    with Stage(lab) as stage:
        with stage.ports(halved):                       other settings for a while
            played = stage.play(streams, end_ns=..., beside=watch)

`beside` runs in a thread while the job does: it sleeps until a moment, reads ports, changes them.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import cast

from controller.port_policies.decision import Lossless
from experiments.lab import Lab
from experiments.workloads.pfc.streams import Outcome, Received, Sent, Storm, Stream, Window, program
from testbed.pause_tap import Pause, PauseTap
from testbed.port.fabric_port import FabricPort
from testbed.port.stats import ClassStats, PortStats
from testbed.traffic_control import read_traffic_control
from testbed.workers.syscalls import set_timer_slack
from topologies.errors import InternalError

BIN_NS = 10_000
"""Of what receivers note."""
DATA = 3
"""The class that pauses are about: the policies' data class."""
Change = Callable[[str, Lossless], Lossless]
"""A switch port and its PFC settings by the policy -> those to put in force."""
Reading = Mapping[str, PortStats]


@dataclass(frozen=True, kw_only=True)
class Played:
    """What streams did, in the order in which they were given."""

    start_ns: int
    """Monotonic clock."""
    streams: tuple[Stream, ...]
    sent: tuple[Sent, ...]
    received: tuple[Received, ...]
    before: Reading
    after: Reading
    pauses: tuple[Pause, ...]
    """Of every class, times of the monotonic clock."""

    @property
    def lost_packets(self) -> int:
        """Taken by a NIC and not received."""
        return sum(each.packets for each in self.sent) - sum(each.packets for each in self.received)

    def dropped(self, cause: str) -> int:
        """Packets that ports dropped for this cause."""
        return sum(
            getattr(after.dropped_packets, cause) - getattr(before.dropped_packets, cause)
            for name in self.after
            for after, before in zip(self.after[name].classes, self.before[name].classes, strict=True)
        )

    @property
    def all_dropped(self) -> int:
        """Packets that ports dropped."""
        return sum(self.after[name].dropped_packets - self.before[name].dropped_packets for name in self.after)

    def grown(self, name: str, counter: str) -> int:
        """How much a counter of a port's data class grew."""
        return int(getattr(self.after[name].classes[DATA], counter) - getattr(self.before[name].classes[DATA], counter))

    def goodput_bps(self, numbers: Sequence[int], begin_ns: int, end_ns: int) -> float:
        """Of these streams together, frames counted whole, between two times after the start."""
        return Received.together([self.received[number] for number in numbers]).between(begin_ns, end_ns, BIN_NS)


class Stage:
    """A context manager around all scenarios of a run."""

    def __init__(self, lab: Lab) -> None:
        """Raises InternalError where ports are of a kind that knows no pauses: the experiment asks first."""
        port = lab.fabric.port
        if not isinstance(port, FabricPort):
            raise InternalError(f"pauses need ports of kind {FabricPort.name}, these are {port.name}")
        self.lab, self._port = lab, port
        self._stack = ExitStack()

    def __enter__(self) -> "Stage":
        """Opens its sockets."""
        names = list(self.lab.fabric.plan.placed)
        self._routes = self._stack.enter_context(self.lab.fabric.port_sockets(names))
        self._tap = self._stack.enter_context(PauseTap(self.lab.topology))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read(self, *, hosts: bool = True) -> Reading:
        """Every port, or those of switches alone: one dump."""
        plan, found = self.lab.fabric.plan, {}
        for host, route in self._routes.items():
            if hosts or host is None:
                control = read_traffic_control(route, policers=False)
                for name, place in plan.placed.items():
                    if place.host == host:
                        self._port.counters(plan.egresses[name], control)  # keeps the peak that this reading takes
                        found[name] = self._port.stats(plan.egresses[name], control)
        return found

    def data(self, name: str) -> ClassStats:
        """The data class of one switch port, now."""
        return self.read(hosts=False)[name].classes[DATA]

    def change(self, change: Change) -> None:
        """Puts other PFC settings in force at every switch port, at once and while traffic runs."""
        decisions = self.lab.plan.decisions
        configs = {
            name: self.lab.plan.config(replace(each, lossless=change(name, each.lossless)))
            for name, each in decisions.items()
            if each.is_switch and each.lossless is not None
        }
        self.lab.fabric.change_ports(configs, self._routes)

    @contextmanager
    def ports(self, change: Change) -> Iterator[None]:
        """The same for as long as the context lasts; then what the policy says is in force again."""
        self.change(change)
        try:
            yield
        finally:
            self.change(lambda _, lossless: lossless)

    def play(
        self,
        streams: Sequence[Stream],
        *,
        end_ns: int,
        storms: Sequence[Storm] = (),
        beside: Callable[[int], None] | None = None,
    ) -> Played:
        """Runs the streams as a job; `beside` is called with the start's time.  Raises RunFailed and what it raises."""
        hosts = sorted(
            {host for each in streams for host in (each.source, each.destination)} | {each.host for each in storms},
            key=[host.name for host in self.lab.topology.hosts].index,
        )
        self._tap.read()
        before = self.read()
        window = Window.from_now(end_ns=end_ns, bin_ns=BIN_NS, mtu=self.lab.topology.mtu)
        with _beside(beside, window.start_ns):
            outcomes = cast(
                "list[Outcome]",
                self.lab.job(program, hosts, list(streams), list(storms), window, hosts=hosts, process_group=False),
            )
        self.lab.add_busy_ns(end_ns)
        sent = {number: each for outcome in outcomes for number, each in outcome.sent.items()}
        received = {number: each for outcome in outcomes for number, each in outcome.received.items()}
        return Played(
            start_ns=window.start_ns,
            streams=tuple(streams),
            sent=tuple(sent[number] for number in range(len(streams))),
            received=tuple(received[number] for number in range(len(streams))),
            before=before,
            after=self.read(),
            pauses=tuple(self._tap.read()),
        )


def sleep_until(when_ns: int) -> None:
    """Of the monotonic clock; not at all if that has passed."""
    time.sleep(max(0, when_ns - time.monotonic_ns()) / 1e9)


@contextmanager
def _beside(function: Callable[[int], None] | None, start_ns: int) -> Iterator[None]:
    """Runs `function(start_ns)` in a thread; on leaving waits for it and raises what it raised."""
    if function is None:
        yield
        return
    with ThreadPoolExecutor(max_workers=1, initializer=set_timer_slack, initargs=(1,)) as pool:
        future = pool.submit(function, start_ns)
        yield
    future.result()
