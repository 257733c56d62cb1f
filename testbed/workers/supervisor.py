"""Watches the ranks of one job until all have returned, or until the first sign that they never will.

It sleeps in `select`: a message, the end of a process, and nothing else wakes it, apart from one look at the progress
board every `stuck_after_s` / 20.  Under the virtual clock those looks cost nothing while ranks are busy.
"""

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from testbed.workers.board import Board
from testbed.workers.channel import Arrived, Began, Decoder, Go, Leave, Message, Raised, Returned, encode
from testbed.workers.fates import Fate, behind, culprit, describe_exit, stack, tail
from testbed.workers.occupant import STACKS_SIGNAL
from topologies.errors import InternalError, RunFailed

QUIET_NS = 1_000_000
"""Between the last arrival at a line-up and the next start, twice: long enough for every packet under way to land."""
GRACE_S = 0.05
"""After the first failure: how long to wait for the news of others that failed with it."""


@dataclass(kw_only=True)
class Worker:
    """The supervisor's hold on one forked rank."""

    rank: int
    host: str
    pid: int
    pidfd: int
    channel: socket.socket
    log: Path
    decoder: Decoder = field(default_factory=Decoder)
    status: int | None = None
    """Exit code, or minus the signal's number; None while it runs."""

    def end(self) -> int:
        """Kills the process if it still runs, and whatever it started in its session; returns how it ended."""
        if self.status is None:
            for kill in (os.killpg, os.kill):  # before setsid there is no such group yet
                with suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)  # until now its number cannot have been given to anybody else
            self.status = os.waitstatus_to_exitcode(status)
        return self.status


class Supervisor:
    """One job's worth of watching.  `watch` returns results or raises RunFailed; the caller then kills and reaps."""

    def __init__(
        self,
        workers: Sequence[Worker],
        board: Board,
        *,
        stuck_after_s: float,
        observe: Callable[[str], None] | None = None,
        began: Callable[[int], None] | None = None,
    ) -> None:
        """`observe` is called at every line-up, while all ranks stand and no packet is under way.

        `began` is called with the instant of the first operation of each rank.
        """
        self._workers, self._board, self._observe, self._began = workers, board, observe, began
        self._given_up = False
        self._stuck_after_s = stuck_after_s
        self._results: dict[int, object] = {}
        self._arrived: dict[int, str] = {}
        self._fates: dict[int, Fate] = {}
        self._selector = selectors.DefaultSelector()

    def watch(self) -> list[object]:
        """Blocks until every program has returned; results in rank order.  Raises RunFailed."""
        with self._selector:
            for worker in self._workers:
                self._selector.register(worker.channel, selectors.EVENT_READ, (worker, self._on_message))
                self._selector.register(worker.pidfd, selectors.EVENT_READ, (worker, self._on_end))
            self._until(lambda: len(self._results) == len(self._workers))
            for worker in self._workers:
                worker.channel.sendall(encode(Leave()))
            self._until(lambda: all(worker.status is not None for worker in self._workers))
        return [self._results[rank] for rank in range(len(self._workers))]

    def give_up(self) -> None:
        """Lets `watch` fail soon: from another thread, when another job of the same run has failed."""
        self._given_up = True

    def _until(self, done: Callable[[], bool]) -> None:
        """Serves events until `done`, a failure, or `stuck_after_s` in which no rank began or ended anything."""
        image, changed_at = b"", time.monotonic()
        while not done():
            self._serve(self._stuck_after_s / 20)
            if self._fates:
                self._fail()
            if self._given_up:
                raise RunFailed("given up because another job of the run failed")
            if self._board.image() != image:
                image, changed_at = self._board.image(), time.monotonic()
            elif time.monotonic() - changed_at >= self._stuck_after_s and not done():
                self._fail_stuck()

    def _serve(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            worker, handle = key.data
            handle(worker)

    def _on_message(self, worker: Worker) -> None:
        try:
            data = worker.channel.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self._selector.unregister(worker.channel)  # its end as a process follows
        for message in worker.decoder.feed(data):
            self._take(worker, message)

    def _take(self, worker: Worker, message: Message) -> None:
        match message:
            case Returned(value=value):
                self._results[worker.rank] = value
            case Raised(error=error, at_ns=at_ns):
                self._fates[worker.rank] = Fate(error=error, at_ns=at_ns, died=False)
            case Began(at_ns=at_ns):
                if self._began is not None:
                    self._began(at_ns)
            case Arrived(label=label):
                self._arrived[worker.rank] = label
                if len(self._arrived) == len(self._workers):
                    self._release()
            case _:
                raise InternalError(f"rank {worker.rank} sent {message}, which ranks do not send")
        if self._arrived and self._results:
            rank, label = next(iter(self._arrived.items()))
            left = next(iter(self._results))
            self._fates[left] = Fate(
                error=f"returned while rank {rank} stands at line-up '{label}': every rank must line up equally often",
                at_ns=time.monotonic_ns(),
                died=False,
            )

    def _release(self) -> None:
        """All stand at the line-up: let the fabric fall quiet, look, and name the instant at which all go on."""
        labels = set(self._arrived.values())
        if len(labels) > 1:
            rank = max(self._arrived, key=lambda rank: (self._arrived[rank] != self._arrived[0], -rank))
            self._fates[rank] = Fate(
                error=f"ranks lined up at different places: {', '.join(sorted(labels))}",
                at_ns=time.monotonic_ns(),
                died=False,
            )
            return
        if self._observe is not None:
            time.sleep(QUIET_NS / 1e9)
            self._observe(labels.pop())
        self._arrived.clear()
        go = encode(Go(at_ns=time.monotonic_ns() + QUIET_NS))
        for worker in self._workers:
            with suppress(BrokenPipeError):  # it died in the line-up; its pidfd tells
                worker.channel.sendall(go)

    def _on_end(self, worker: Worker) -> None:
        self._selector.unregister(worker.pidfd)
        status = worker.end()
        if worker.rank not in self._results or status != 0:
            self._fates.setdefault(worker.rank, Fate(error=describe_exit(status), at_ns=time.monotonic_ns(), died=True))

    def _fail(self) -> NoReturn:
        until = time.monotonic() + GRACE_S
        while (left_s := until - time.monotonic()) > 0:
            self._serve(left_s)
        rank = culprit(self._fates)
        also = sorted(set(self._fates) - {rank})
        more = f"\n  then, as a consequence or at the same time: rank {', '.join(map(str, also))}" if also else ""
        raise RunFailed(self._sentence(rank, self._fates[rank].error) + more + self._log_of(rank))

    def _fail_stuck(self) -> NoReturn:
        entries = [self._board.read(worker.rank) for worker in self._workers]
        ranks = behind(entries, [_is_stopped(worker.pid) for worker in self._workers])
        for worker in self._workers:
            if worker.status is None:
                signal.pidfd_send_signal(worker.pidfd, STACKS_SIGNAL)
        time.sleep(GRACE_S)  # the stacks go to the logs; nothing tells when a hung process has written them
        word = "is stopped (SIGSTOP or a debugger)" if _is_stopped(self._workers[ranks[0]].pid) else "is stuck"
        lines = [self._sentence(rank, word) for rank in ranks]
        raise RunFailed(
            f"no rank made progress for {self._stuck_after_s:g} s; the job waits for:\n"
            + "\n".join(lines)
            + "".join(self._stack_of(rank) for rank in ranks[:2])
        )

    def _sentence(self, rank: int, error: str) -> str:
        entry = self._board.read(rank)
        place = "while it wrote to the progress board" if entry is None else entry.words()
        return f"rank {rank} on host {self._workers[rank].host}, {place}: {error}"

    def _log_of(self, rank: int) -> str:
        path = self._workers[rank].log
        text = tail(_read(path))
        return f"\n  end of {path.name}:\n{text}" if text else ""

    def _stack_of(self, rank: int) -> str:
        text = stack(_read(self._workers[rank].log))
        return f"\n  rank {rank}, innermost frame first:\n{text}" if text else self._log_of(rank)


def _read(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


def _is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger holds the process (state T or t in /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] in {"T", "t"}
