"""The forked process in a seat: takes its place, runs the program, hands back the result, leaves when told to.

Order matters.  Rendezvous sockets are made first, in the parent's network namespace, whose loopback stands for the
front-end network of a cluster; only then does the process move into its host, so that nothing but the program's own
traffic crosses the fabric.
"""

import faulthandler
import gc
import io
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from testbed.workers import journal
from testbed.workers.board import Board
from testbed.workers.channel import Leave, Raised, Returned, encode, receive
from testbed.workers.rank import Rank
from testbed.workers.seat import Seat
from testbed.workers.syscalls import die_with_parent, enter_network_namespace, set_timer_slack
from topologies.errors import InternalError

MASTER_PORT = 29500
"""Of the environment variable only: for programs that make a rendezvous of their own, over the fabric."""
GLOO_TIMEOUT = timedelta(hours=1)
"""Longer than any run: the supervisor decides when a rank is stuck, and says more about it than gloo does."""
STACKS_SIGNAL = signal.SIGUSR1
"""Makes a rank write every thread's Python stack into its log, even while it hangs in C++."""

Program = Callable[..., object]


@dataclass(frozen=True, kw_only=True)
class Posting:
    """All that a forked process must know."""

    rank: int
    seats: Sequence[Seat]
    program: Program
    arguments: tuple[Any, ...]
    seed: int
    connections: int
    log: Path
    board: Board
    supervisor: socket.socket
    parent_pid: int
    rendezvous: socket.socket | None
    """A listening socket of the parent for torch's store; None when the program needs no process group."""


def occupy(posting: Posting) -> NoReturn:
    """Never returns: exits with 0 after Leave.

    A rank that failed keeps its connections and waits to be killed, lest its peers fail too and hide the cause.  It
    stops itself meanwhile: gloo's thread would spin on messages whose buffers went with the failed collective, and a
    spin stands in the way of the virtual clock.
    """
    failed = True
    try:
        die_with_parent(signal.SIGKILL, parent_pid=posting.parent_pid)
        os.setsid()
        _reset_signals()
        _redirect_output(posting)
        rank = Rank(
            rank=posting.rank,
            seats=posting.seats,
            seed=posting.seed,
            board=posting.board,
            supervisor=posting.supervisor,
        )
        failed = not _run(posting, rank)
        sys.stdout.flush()
        if failed:
            os.kill(os.getpid(), signal.SIGSTOP)
        answer = receive(posting.supervisor)
        if not isinstance(answer, Leave):
            raise InternalError(f"rank {posting.rank} expected Leave, got {answer}")
    except EOFError:
        failed = True  # the supervisor is gone, and with it whoever wanted the result
    finally:
        os._exit(1 if failed else 0)


def _run(posting: Posting, rank: Rank) -> bool:
    try:
        _take_seat(posting)
        rank.show_started()
        frame = encode(Returned(value=posting.program(rank, *posting.arguments)))
        journal.write(posting.log, host=rank.host)
        rank.show_end(failed=False)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises is the run's failure, told in full
        rank.show_end(failed=True)
        traceback.print_exc()
        sys.stderr.flush()
        words = "".join(traceback.format_exception_only(error)).strip()
        posting.supervisor.sendall(encode(Raised(error=words, at_ns=time.monotonic_ns())))
        return False
    posting.supervisor.sendall(frame)
    return True


def _take_seat(posting: Posting) -> None:
    os.environ.update(_environment(posting))
    random.seed(posting.seed)
    set_timer_slack(1)
    path = posting.seats[posting.rank].namespace_path
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path is not None else None
    _close_inherited(posting, keep=namespace)
    store = _join_store(posting)
    if namespace is not None:
        enter_network_namespace(namespace)
    if store is not None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        torch.manual_seed(posting.seed)
        dist.init_process_group(
            "gloo", store=store, rank=posting.rank, world_size=len(posting.seats), timeout=GLOO_TIMEOUT
        )


def _close_inherited(posting: Posting, *, keep: int | None) -> None:
    """Lets go of all that the parent had open: its ends of other ranks' channels, Mininet's terminals, captures.

    Objects of the parent that own those descriptors live on in our memory; frozen, the collector never finds them
    and so never closes a descriptor whose number gloo has been given since.
    """
    gc.freeze()
    kept = {0, 1, 2, posting.supervisor.fileno()}
    if keep is not None:
        kept.add(keep)
    if posting.rendezvous is not None:
        kept.add(posting.rendezvous.fileno())
    for low, high in pairwise([*sorted(kept), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)


def _environment(posting: Posting) -> dict[str, str]:
    return {
        "RANK": str(posting.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(posting.seats)),
        "MASTER_ADDR": posting.seats[0].addresses[0],
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": posting.seats[posting.rank].gloo_interfaces(posting.connections),
        "OMP_NUM_THREADS": "1",
    }


def _join_store(posting: Posting) -> Any:
    """Torch's key-value store over the parent's loopback; rank 0 serves it from the socket the parent opened."""
    if posting.rendezvous is None:
        return None
    import torch.distributed as dist

    address, port = posting.rendezvous.getsockname()
    serves = posting.rank == 0
    return dist.TCPStore(  # type: ignore[attr-defined]  # torch's stubs leave it out
        address,
        port,
        world_size=len(posting.seats),
        is_master=serves,
        timeout=GLOO_TIMEOUT,
        master_listen_fd=posting.rendezvous.detach() if serves else None,
    )


def _reset_signals() -> None:
    """A rank answers signals as a fresh process would, whatever the parent had set up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def _redirect_output(posting: Posting) -> None:
    """Both streams into the rank's log, line by line, whatever the parent had put in their place."""
    log = os.open(posting.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), line_buffering=True, write_through=True)
    faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True, chain=False)
