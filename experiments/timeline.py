"""What happens at given instants beside a running experiment: changes of ports and failures of cables, in one order.

    policy file  --plan.steps-------+
                                    +--> Timeline: sleeps until each instant, does it, notes it --> events
    failures     --parse_failures---+                                                               losses

One thread; its timer slack is 1 ns, so under the virtual clock a thing happens at its instant to the nanosecond.
Time 0 is the start of the experiment's `run`, or the first operation of a rank (`--events-from`): a job takes virtual
time to come up, so failures that are to meet traffic are best counted from the second.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, get_args

from controller.port_policies.changes import Step
from experiments.failure_schedule import Failure, Loss, Rate, State
from experiments.port_plan import PortPlan
from testbed.fabric import Fabric
from testbed.link_faults import LinkFaults, Losses
from testbed.workers.syscalls import set_timer_slack
from topologies.errors import TestbedError, UserError

EventsFrom = Literal["run", "operation"]
EXACT_NS = 1_000_000
"""The last part of a wait, slept to the end; before it, the wait can be given up."""


def events_from(text: str) -> EventsFrom:
    """Checked.  Raises UserError."""
    for known in get_args(EventsFrom):
        if text == known:
            return known  # type: ignore[no-any-return]  # get_args has no type
    raise UserError(f"--events-from {text}: write {' or '.join(get_args(EventsFrom))}")


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A failure that has happened."""

    failure: Failure
    at_ns: int
    """Of the monotonic clock."""
    losses: Losses
    """Until just before it."""


@dataclass(frozen=True, kw_only=True)
class Noticed:
    """A link's other rate has come to the controller's ears; of one that is down it hears by itself."""

    rates_bps: Mapping[str, int]


class Timeline:
    """A context manager around the experiment."""

    def __init__(
        self,
        fabric: Fabric,
        plan: PortPlan,
        *,
        steps: Sequence[Step],
        failures: Sequence[Failure],
        zero: EventsFrom = "run",
        notice: Callable[[Mapping[str, int]], object] = lambda _rates_bps: None,
        detection_ns: int = 0,
    ) -> None:
        """Nothing happens before entry, and nothing at all without steps and failures.

        `notice` tells the controller links' other rates, `detection_ns` after they changed.
        """
        self._fabric, self._plan, self._zero, self._notice = fabric, plan, zero, notice
        whens: list[tuple[int, Step | Failure | Noticed]] = [(step.change.at_ns, step) for step in steps]
        whens += [(failure.at_ns, failure) for failure in failures]
        whens += [
            (failure.at_ns + detection_ns, Noticed(rates_bps=dict.fromkeys(failure.links, failure.deed.rate_bps)))
            for failure in failures
            if isinstance(failure.deed, Rate)
        ]
        self._moments = sorted(whens, key=lambda when: when[0])
        self._stack, self._clock = ExitStack(), ExitStack()
        self._faults: LinkFaults | None = None
        self._thread: threading.Thread | None = None
        self._error: TestbedError | None = None
        self.start_ns: int | None = None
        """Time 0 on the monotonic clock, once it has come."""
        self.at_start: list[Callable[[int], None]] = []
        """Called with it when it has come."""
        self.events: list[dict[str, object]] = []
        """What happened, for results.json."""
        self.struck: list[Struck] = []

    def __enter__(self) -> "Timeline":
        """Opens its sockets."""
        if self._moments:
            self._faults = self._stack.enter_context(LinkFaults(self._fabric, seed=self._plan.seed))
            wake, self._woken = socket.socketpair()
            self._clock.callback(self._woken.close)
            self._clock.callback(self._join)
            self._clock.callback(wake.close)
        return self

    def ready(self) -> None:
        """The experiment's `run` starts now."""
        if self._zero == "run":
            self.begin(time.monotonic_ns())

    def begin(self, start_ns: int) -> None:
        """Time 0 is now, or was a moment ago; only the first call counts."""
        if self.start_ns is None:
            self.start_ns = start_ns
            for tell in self.at_start:
                tell(start_ns)
            if self._moments:
                self._thread = threading.Thread(target=self._work, args=(start_ns,), daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Gives up what is still to come.  Raises what the kernel said to a change that it refused."""
        self._clock.close()
        if self._error is not None:
            raise self._error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops, and closes its sockets."""
        with self._stack:
            self._clock.close()

    def losses(self) -> Losses:
        """So far; asked after `stop` only, because the sockets are the thread's before.  Raises RunFailed."""
        return Losses() if self._faults is None else self._faults.losses()

    @property
    def down(self) -> frozenset[str]:
        """Links that are down now."""
        return frozenset() if self._faults is None else self._faults.down

    def missed(self) -> list[str]:
        """What was to happen and did not, because the experiment had ended."""
        all_of_it = [
            f"{_words(moment)} at {at_ns / 1e6:g} ms never came: the experiment ended before"
            for at_ns, moment in self._moments
            if not isinstance(moment, Noticed)
        ]
        return all_of_it[len(self.events) :]

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _work(self, start_ns: int) -> None:
        set_timer_slack(1)
        try:
            for at_ns, moment in self._moments:
                if not _sleep_until(start_ns + at_ns, self._woken):
                    return
                if isinstance(moment, Noticed):
                    self._notice(moment.rates_bps)
                else:
                    self.events.append(self._apply(moment, start_ns))
        except TestbedError as error:
            self._error = error

    def _apply(self, moment: Step | Failure, start_ns: int) -> dict[str, object]:
        assert self._faults is not None  # there is no thread without it
        if isinstance(moment, Step):
            self._faults.change({name: self._plan.config(decision) for name, decision in moment.ports.items()})
            said = {
                "kind": "ports",
                "at_us": moment.change.at_ns / 1e3,
                "where": moment.change.where or "every switch",
                "ports": len(moment.ports),
                "set": dict(moment.change.settings),
            }
        else:
            self.struck.append(Struck(failure=moment, at_ns=time.monotonic_ns(), losses=self._faults.losses()))
            for link in moment.links:
                _strike(self._faults, link, moment.deed)
            said = {"kind": "failure", "at_us": moment.at_ns / 1e3, "what": moment.words, "links": len(moment.links)}
        return {**said, "in_force_us": (time.monotonic_ns() - start_ns) / 1e3}


def _strike(faults: LinkFaults, link: str, deed: State | Rate | Loss) -> None:
    match deed:
        case State(up=up):
            faults.set_state(link, up=up)
        case Rate(rate_bps=rate_bps):
            faults.set_rate(link, rate_bps)
        case Loss(share=share):
            faults.set_loss(link, share)


def _words(moment: Step | Failure) -> str:
    return "the policy file's change" if isinstance(moment, Step) else f"the failure '{moment.words}'"


def _sleep_until(when_ns: int, woken: socket.socket) -> bool:
    """False when `woken` was closed at its other end before."""
    while (left_ns := when_ns - time.monotonic_ns()) > EXACT_NS:
        if select.select([woken], [], [], (left_ns - EXACT_NS) / 1e9)[0]:
            return False
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
    return True
