"""Queues over time: chosen ports read every `period_ns`, by a process of its own beside the experiment.

    with Sampler(fabric, interfaces=["leaf1-eth4"], period_ns=10_000) as sampler:
        ...                                         # traffic
    queue = sampler.series()["leaf1-eth4"].of_class(0, "queue_bytes")    # numpy, one number per sample

The process sleeps until each instant and asks the kernel for the chosen ports only, in one system call per network
namespace.  Under the virtual clock that takes no time, and the traffic is the same as without it; samples are taken
at entry and then `PHASE_NS` after every period.  Under the real clock it takes a processor.

High-water marks are forgotten by the kernel at each reading.  What the sampler reads is folded back into
`Fabric.counters()`, at once; a port's mark that another sampler or the counters read between two samples is told to
this one (`port.marks`).  Marks of single classes are not: there a series lacks what others read.
"""

import os
import pickle
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import numpy as np

from testbed.fabric import Fabric
from testbed.netlink import NetlinkSocket, Request
from testbed.port.fabric_port import FabricPort
from testbed.port.reading import CLASS_FIELDS, PORT_FIELDS, Column, question
from testbed.sampler_process import Board, Findings, Reader, fork
from testbed.socket_readings import SocketColumns, SocketReader
from topologies.errors import RunFailed, TestbedError, UnknownName, UserError

PORT_DEFAULTS: Final = ("now_ns", "queue_bytes", "peak_bytes", "delivered_bytes", "busy_ns", "shared_bytes")
CLASS_DEFAULTS: Final = (
    *("sent_packets", "sent_bytes", "queue_packets", "queue_bytes", "peak_bytes", "marked"),
    *("dropped_packets_egress", "dropped_packets_shared", "dropped_packets_headroom", "dropped_packets_watchdog"),
    *("pauses_sent", "pauses_received", "paused_ns", "ingress_bytes", "headroom_bytes", "state"),
)
LEAST_PERIOD_NS = 100
"""Below it a sampler would read several times between two packets of 64 B at 400 Gb/s."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One port over time.  Counters count from the making of the fabric; fields as `testbed.port.stats` explains."""

    interface: str
    start_ns: int
    """CLOCK_MONOTONIC at the sampler's entry; `now_ns` of a sample is on the same clock."""
    port: Mapping[str, Column]
    """Of the whole port: field -> one number per sample."""
    classes: Mapping[int, Mapping[str, Column]]
    """Of each class that was ever used."""

    @property
    def time_ns(self) -> Column:
        """Of each sample, since the sampler's entry."""
        return self["now_ns"] - self.start_ns

    def __getitem__(self, name: str) -> Column:
        """A field of the whole port.  Raises UnknownName."""
        if name not in self.port:
            raise UnknownName("sampled field of a port", name, self.port)
        return self.port[name]

    def of_class(self, index: int, name: str) -> Column:
        """A field of one class; zeros where the class was never used.  Raises UnknownName."""
        if index not in self.classes:
            return np.zeros_like(self["now_ns"])
        if name not in self.classes[index]:
            raise UnknownName("sampled field of a class", name, self.classes[index])
        return self.classes[index][name]

    def total(self, name: str) -> Column:
        """A field of the classes, summed over them."""
        columns = [self.of_class(index, name) for index in self.classes] or [self.of_class(0, name)]
        return np.asarray(np.sum(columns, axis=0), dtype=np.int64)


class Sampler:
    """A context manager around the traffic to be watched; `series` afterwards."""

    def __init__(
        self,
        fabric: Fabric,
        *,
        interfaces: Sequence[str],
        period_ns: int,
        port_fields: Sequence[str] = PORT_DEFAULTS,
        class_fields: Sequence[str] = CLASS_DEFAULTS,
        most_samples: int | None = None,
        socket_hosts: Sequence[str] = (),
        sockets_every: int = 1,
        last: bool = False,
    ) -> None:
        """The first sample is at entry, with `last` there is one at the exit.  `most_samples` (odd) are kept at most:
        when there are as many, every other one goes and the period doubles.  TCP sockets of `socket_hosts` are read at
        every so many samples of ports.

        Raises UnknownName for an interface or a field, UserError for a period or a
        fabric whose ports keep no such statistics.
        """
        if not isinstance(fabric.port, FabricPort):
            raise UserError(f"ports of kind {fabric.port.name} cannot be sampled; leave port.kind out")
        if period_ns < LEAST_PERIOD_NS:
            raise UserError(f"a sampling period of {period_ns} ns is too short; {LEAST_PERIOD_NS} is the least")
        for kind, names, known in (
            ("interface", interfaces, fabric.plan.placed),
            ("field of a port", port_fields, PORT_FIELDS),
            ("field of a class", class_fields, CLASS_FIELDS),
        ):
            for name in names:
                if name not in known:
                    raise UnknownName(kind, name, known)
        self._fabric, self._peaks, self._period_ns = fabric, fabric.port.peaks, period_ns
        self._fields = (tuple(dict.fromkeys(("now_ns", *port_fields))), tuple(class_fields))
        self._interfaces = sorted(set(interfaces), key=lambda name: (fabric.plan.placed[name].host or "", name))
        self._stack = ExitStack()
        self._start_ns = 0
        self._keep = (most_samples, sockets_every, last)
        self._socket_hosts = tuple(socket_hosts)
        self._found: Findings | None = None
        self._resting = False

    def __enter__(self) -> "Sampler":
        """Takes the first sample before it returns.  Raises KernelRefused."""
        with ExitStack() as stack:
            routes = stack.enter_context(self._fabric.port_sockets(self._interfaces))
            self._board = Board(len(self._interfaces))
            stack.callback(self._board.close)
            stack.enter_context(self._peaks.shared_with(self._highest))
            marks = self._peaks.marks(list(self._fabric.plan.placed))
            slot = stack.enter_context(marks.reader())
            sockets = SocketReader.of(self._fabric, self._socket_hosts, stack) if self._socket_hosts else None
            most_samples, sockets_every, last = self._keep
            self._start_ns = time.monotonic_ns()
            reader = Reader(
                asks=self._asks(routes),
                board=self._board,
                marks=marks,
                slot=slot,
                places=marks.places(self._interfaces),
                period_ns=self._period_ns,
                start_ns=self._start_ns,
                fields=self._fields,
                most_samples=most_samples,
                sockets=sockets,
                sockets_every=sockets_every,
                last=last,
            )
            self._child, self._answer, self._finish = fork(reader)
            stack.callback(self._collect)
            if os.read(self._answer, 1) != b"+":
                raise RunFailed("the sampler ended before its first sample; log.txt says why")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it.  Raises RunFailed when it failed meanwhile, with what it said."""
        self._stack.close()

    def series(self) -> dict[str, Series]:
        """Interface -> what was sampled there, once the context has been left.  Raises RunFailed before."""
        if self._found is None:
            raise RunFailed("a sampler tells its series after its context, not within")
        return {
            name: Series(interface=name, start_ns=self._start_ns, port=found.port, classes=found.classes)
            for name, found in zip(self._interfaces, self._found.ports, strict=True)
        }

    @property
    def start_ns(self) -> int:
        """CLOCK_MONOTONIC at the entry."""
        return self._start_ns

    def sockets(self) -> SocketColumns | None:
        """What `socket_hosts` showed, once the context has been left.  Raises RunFailed before."""
        if self._found is None:
            raise RunFailed("a sampler tells its series after its context, not within")
        return self._found.sockets

    def rest(self) -> None:
        """No more samples but the `last`.  The signal ends the process's sleep at once; should it come just before the
        sleep begins, it ends with the period.
        """
        if not self._resting:
            self._resting = True
            self._board.stop()
            os.kill(self._child, signal.SIGTERM)

    def _asks(self, routes: Mapping[str | None, NetlinkSocket]) -> list[tuple[NetlinkSocket, list[Request]]]:
        """In the order of `_interfaces`, which has the ports of one namespace beside each other."""
        placed = self._fabric.plan.placed
        found: dict[str | None, list[Request]] = {}
        for name in self._interfaces:
            found.setdefault(placed[name].host, []).append(question(placed[name].index, name))
        return [(routes[host], asks) for host, asks in found.items()]

    def recent(self) -> dict[str, int]:
        """Interface -> bytes of its longest queue in samples since this was last asked.  Within the context only."""
        return dict(zip(self._interfaces, self._board.recent(), strict=True))

    def _highest(self) -> Mapping[str, int]:
        return dict(zip(self._interfaces, self._board.peaks(), strict=True))

    def _collect(self) -> None:
        """Stops the process, takes what it sampled and buries it."""
        self.rest()
        with os.fdopen(self._finish, "wb", buffering=0) as finish:
            finish.write(b"!")  # not its end, which other forks have inherited
        with os.fdopen(self._answer, "rb") as stream:
            data = stream.read()
        os.waitpid(self._child, 0)
        found = pickle.loads(data) if data else RunFailed("the sampler was killed")
        if isinstance(found, TestbedError):
            raise found
        self._found = found
