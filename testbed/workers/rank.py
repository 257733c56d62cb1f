"""What a program sees of the job it is part of.  Everything else is plain `torch.distributed`.

def program(rank: Rank, size_bytes: int) -> int:
    x = torch.ones(size_bytes // 4)
    rank.line_up("start")                              # all ranks leave at the same instant
    with rank.operation("all_reduce", size_bytes) as span:
        dist.all_reduce(x)
    return span.duration_ns                            # anything that pickles
"""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from testbed.workers import journal
from testbed.workers.board import Board, Entry, Phase
from testbed.workers.channel import Arrived, Began, Go, encode, receive
from testbed.workers.counters import HostCounters, HostReader
from testbed.workers.seat import Seat
from topologies.errors import InternalError


@dataclass(kw_only=True)
class Span:
    """The monotonic clock around an operation.  All ranks of a fabric share one clock."""

    start_ns: int = 0
    end_ns: int = 0

    @property
    def duration_ns(self) -> int:
        """End less start."""
        return self.end_ns - self.start_ns


class Rank:
    """One rank of a job, inside its host's network namespace."""

    def __init__(self, *, rank: int, seats: Sequence[Seat], seed: int, board: Board, supervisor: socket.socket) -> None:
        """Made by the job, in the forked process."""
        self.rank, self.seed = rank, seed
        self._seats, self._board, self._supervisor = tuple(seats), board, supervisor
        self._entry = Entry()
        self._began = False

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return len(self._seats)

    @property
    def host(self) -> str:
        """The host it runs on."""
        return self._seats[self.rank].host

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Names of the host's NICs."""
        return self._seats[self.rank].interfaces

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of every rank, in rank order, on its first NIC."""
        return tuple(seat.addresses[0] for seat in self._seats)

    @contextmanager
    def operation(self, name: str, size_bytes: int = 0) -> Iterator[Span]:
        """Times what happens inside, and shows the supervisor that this rank is at it.

        The job fails when no rank begins or ends an operation for the job's `stuck_after_s`.
        """
        span = Span()
        self._show(phase=Phase.WORKING, name=name, size_bytes=size_bytes)
        span.start_ns = time.monotonic_ns()
        if not self._began:
            self._began = True
            self._supervisor.sendall(encode(Began(at_ns=span.start_ns)))
        yield span
        span.end_ns = time.monotonic_ns()
        journal.note(kind="operation", name=name, start_ns=span.start_ns, end_ns=span.end_ns, size_bytes=size_bytes)
        self._show(phase=Phase.IDLE, operations=self._entry.operations + 1)

    def line_up(self, label: str = "line-up") -> None:
        """Waits for every rank of the job; then all go on at the same instant, and not a byte crossed the fabric.

        The instant is one quiet millisecond after the last arrival, so that acknowledgements still under way are out
        of the links when counters are read.  Raises EOFError when the supervisor is gone.
        """
        self._show(phase=Phase.WAITING, name=label, size_bytes=0)
        arrived_ns = time.monotonic_ns()
        self._supervisor.sendall(encode(Arrived(label=label)))
        answer = receive(self._supervisor)
        if not isinstance(answer, Go):
            raise InternalError(f"rank {self.rank} expected Go at line-up '{label}', got {answer}")
        time.sleep(max(0.0, (answer.at_ns - time.monotonic_ns()) / 1e9))
        journal.note(kind="wait", name=label, start_ns=arrived_ns, end_ns=time.monotonic_ns())
        self._show(phase=Phase.IDLE, operations=self._entry.operations + 1)

    def counters(self) -> HostCounters:
        """What the NICs of this host, and its TCP, have done so far."""
        return self._reader.read()

    @cached_property
    def _reader(self) -> HostReader:
        return HostReader(self.interfaces)

    def _show(
        self, *, phase: Phase, name: str | None = None, size_bytes: int | None = None, operations: int | None = None
    ) -> None:
        """Puts a new entry on the board; what is not given stays."""
        old = self._entry
        self._entry = replace(
            old,
            phase=phase,
            since_ns=time.monotonic_ns(),
            name=old.name if name is None else name,
            size_bytes=old.size_bytes if size_bytes is None else size_bytes,
            operations=old.operations if operations is None else operations,
        )
        self._board.write(self.rank, self._entry)

    def show_started(self) -> None:
        """Called by the job when the process group stands."""
        self._show(phase=Phase.IDLE)

    def show_end(self, *, failed: bool) -> None:
        """Called by the job when the program returned or raised."""
        self._show(phase=Phase.FAILED if failed else Phase.FINISHED)
