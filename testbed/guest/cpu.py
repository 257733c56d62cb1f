"""One CPU for one guest: a guest that wanders between CPUs is two to three times slower."""

import fcntl
import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Seat:
    """The CPU that a guest runs on; `lock` is the descriptor that the guest's process keeps open, if it is alone."""

    cpu: int
    lock: int | None


@contextmanager
def seat(directory: Path, allowed: Set[int] | None = None) -> Iterator[Seat]:
    """A CPU that no other guest of this cache holds, of those that we may use; the least used by number if none is.

    The locks are advisory (flock) and die with the last process that holds the descriptor, however it ends.
    """
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    directory.mkdir(parents=True, exist_ok=True)
    for cpu in cpus:
        descriptor = os.open(directory / f"cpu-{cpu}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield Seat(cpu=cpu, lock=descriptor)
        finally:
            os.close(descriptor)
        return
    yield Seat(cpu=cpus[os.getpid() % len(cpus)], lock=None)
