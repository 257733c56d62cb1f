"""A job: one program on many hosts at once, as `torchrun` would start it, each rank in its host's namespace.

Torch is imported once, here, and every rank is a fork: sixteen imports would cost a guest most of a minute.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.workers.board import Board
from testbed.workers.occupant import Posting, Program, occupy
from testbed.workers.seat import Seat
from testbed.workers.supervisor import Supervisor, Worker
from topologies.errors import UserError

STUCK_AFTER_S = 4.5
"""With the twentieth of it between looks at the board, and the grace for stacks, a stuck job ends within 5 s."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run where.  `run` may be called once per job, from the main thread."""

    seats: Sequence[Seat]
    """Rank r sits in seat r."""
    program: Program
    """A function `program(rank, *arguments)`; what it returns is pickled and handed back."""
    arguments: tuple[Any, ...] = ()
    log_directory: Path
    """Takes `rank-000.log` and so on: what each rank printed."""
    seed: int = 1
    """Of `random` and torch in every rank, the same in each: add the rank's number where they should differ."""
    connections: int = 1
    """TCP connections per pair of ranks and NIC; collectives rotate over them."""
    process_group: bool = True
    """False for programs that do without torch."""
    stuck_after_s: float = STUCK_AFTER_S
    """The job fails when no rank begins or ends an operation for so long (of the clock that the ranks live by)."""
    observe: Callable[[str], None] | None = field(default=None)
    """Called with the label of every line-up, while all ranks stand and no packet is under way."""
    began: Callable[[int], None] | None = field(default=None)
    """Called with the instant at which each rank's first operation begins."""

    def __post_init__(self) -> None:
        """Refuses jobs that cannot be.  Raises UserError."""
        if not self.seats:
            raise UserError("a job needs at least one host")
        if not 1 <= self.connections <= 64:
            raise UserError(f"connections={self.connections} is not in 1..64")

    def run(self) -> list[object]:
        """Results in rank order; no rank outlives the call.  Raises RunFailed with rank, host, operation and error."""
        with self.started() as supervisor:
            return supervisor.watch()

    @contextmanager
    def started(self) -> Iterator[Supervisor]:
        """All ranks forked; whoever calls `watch` gets the results.  No rank outlives the context."""
        if self.process_group:
            _import_torch()
        self.log_directory.mkdir(parents=True, exist_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        with ExitStack() as undo:
            board = Board(len(self.seats))
            undo.callback(board.close)
            rendezvous = self._listen(undo)
            workers: list[Worker] = []
            undo.callback(_end_all, workers)
            for rank in range(len(self.seats)):
                workers.append(self._start(rank, board, rendezvous))
            if rendezvous is not None:
                rendezvous.close()
            yield Supervisor(workers, board, stuck_after_s=self.stuck_after_s, observe=self.observe, began=self.began)

    def _listen(self, undo: ExitStack) -> socket.socket | None:
        """The socket on which rank 0 will serve torch's store: loopback here, the stand-in for a front-end network."""
        if not self.process_group:
            return None
        listener = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        listener.bind(("127.0.0.1", 0))
        listener.listen(len(self.seats) * 2)
        return listener

    def _start(self, rank: int, board: Board, rendezvous: socket.socket | None) -> Worker:
        ours, theirs = socket.socketpair()
        log = self.log_directory / f"rank-{rank:03d}.log"
        posting = Posting(
            rank=rank,
            seats=self.seats,
            program=self.program,
            arguments=self.arguments,
            seed=self.seed,
            connections=self.connections,
            log=log,
            board=board,
            supervisor=theirs,
            parent_pid=os.getpid(),
            rendezvous=rendezvous,
        )
        pid = os.fork()
        if pid == 0:
            occupy(posting)
        theirs.close()
        return Worker(rank=rank, host=self.seats[rank].host, pid=pid, pidfd=os.pidfd_open(pid), channel=ours, log=log)


def _end_all(workers: Sequence[Worker]) -> None:
    """Kills and reaps whatever still runs, on every way out of a job."""
    for worker in workers:
        worker.end()
        os.close(worker.pidfd)
        worker.channel.close()


def _import_torch() -> None:
    """Loads torch into the parent so that forks share it, with no threads of its own that a fork would lose."""
    import torch
    import torch.distributed

    torch.set_num_threads(1)
