"""Puts the changes of a policy file in force at their instants, beside a running experiment, and notes when.

A thread that sleeps until each instant and then tells the kernel; the ports go on with what they hold.  Its timer slack
is 1 ns, so under the virtual clock a change is in force at its instant to the nanosecond.
"""

import select
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from controller.port_policies.changes import Step
from experiments.port_plan import PortPlan
from testbed.fabric import Fabric
from testbed.netlink import NetlinkSocket
from testbed.workers.syscalls import set_timer_slack
from topologies.errors import TestbedError

EXACT_NS = 1_000_000
"""The last part of a wait, slept to the end; before it, the wait can be given up."""


class PolicyTimer:
    """A context manager around the experiment; time 0 is its entry."""

    def __init__(self, fabric: Fabric, plan: PortPlan, steps: Sequence[Step]) -> None:
        """Nothing happens before entry, and nothing at all without steps."""
        self._fabric, self._plan, self._steps = fabric, plan, steps
        self._stack = ExitStack()
        self._error: TestbedError | None = None
        self.events: list[dict[str, object]] = []
        """What was put in force, for results.json."""

    def __enter__(self) -> "PolicyTimer":
        """Starts the clock."""
        if self._steps:
            names = {name for step in self._steps for name in step.ports}
            routes = self._stack.enter_context(self._fabric.port_sockets(names))
            wake, woken = socket.socketpair()
            self._stack.callback(woken.close)
            thread = threading.Thread(target=self._work, args=(time.monotonic_ns(), woken, routes), daemon=True)
            thread.start()
            self._stack.callback(thread.join)
            self._stack.callback(wake.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives up what is still to come.  Raises what the kernel said to a change that it refused."""
        self._stack.close()
        if self._error is not None and error is None:
            raise self._error

    def missed(self) -> list[str]:
        """The changes whose time had not come when the experiment ended."""
        return [
            f"the policy file's change at {step.change.at_ns / 1e6:g} ms never came: the experiment ended before"
            for step in self._steps[len(self.events) :]
        ]

    def _work(self, start_ns: int, woken: socket.socket, routes: Mapping[str | None, NetlinkSocket]) -> None:
        set_timer_slack(1)
        try:
            for step in self._steps:
                if not _sleep_until(start_ns + step.change.at_ns, woken):
                    return
                self._apply(step, routes, start_ns)
        except TestbedError as error:
            self._error = error

    def _apply(self, step: Step, routes: Mapping[str | None, NetlinkSocket], start_ns: int) -> None:
        configs = {name: self._plan.config(decision) for name, decision in step.ports.items()}
        self._fabric.change_ports(configs, routes)
        self.events.append(
            {
                "kind": "ports",
                "at_us": step.change.at_ns / 1e3,
                "in_force_us": (time.monotonic_ns() - start_ns) / 1e3,
                "where": step.change.where or "every switch",
                "ports": len(configs),
                "set": dict(step.change.settings),
            }
        )


def _sleep_until(when_ns: int, woken: socket.socket) -> bool:
    """False when `woken` was closed at its other end before."""
    while (left_ns := when_ns - time.monotonic_ns()) > EXACT_NS:
        if select.select([woken], [], [], (left_ns - EXACT_NS) / 1e9)[0]:
            return False
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
    return True
