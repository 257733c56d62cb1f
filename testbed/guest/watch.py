"""Decide from outside that a guest is stuck: it is silent, its virtual clock stands still, it takes no more memory."""

import stat
from collections.abc import Sequence
from pathlib import Path

from testbed.guest.virtual_clock import VirtualClock
from topologies.errors import RunFailed


class Watch:
    """Looks at one guest whenever it is asked to; time is the caller's."""

    def __init__(
        self,
        *,
        pid: int,
        clock: VirtualClock,
        memory_bytes: int,
        stall_s: float,
        wall_limit_s: float | None,
        now_s: float,
    ) -> None:
        """`stall_s` and `wall_limit_s` are wall seconds, as is `now_s`, a monotonic clock's reading."""
        self._pid, self._clock, self._memory_bytes = pid, clock, memory_bytes
        self._stall_s, self._wall_limit_s = stall_s, wall_limit_s
        self._started_s = self._moved_s = now_s
        self._seen: tuple[int | None, int] = (None, 0)

    def saw_line(self, now_s: float, last: Sequence[str]) -> None:
        """The guest printed something: a sign of life.  Raises RunFailed when it has used up its wall time."""
        self._moved_s = now_s
        self._check_wall(now_s, last)

    def _check_wall(self, now_s: float, last: Sequence[str]) -> None:
        if self._wall_limit_s is not None and now_s - self._started_s > self._wall_limit_s:
            raise RunFailed(with_lines(f"the guest took longer than {self._wall_limit_s:g} s of wall time", last))

    def look(self, now_s: float, last: Sequence[str]) -> None:
        """Raises RunFailed with the `last` lines when a silent guest is stuck or has used up its wall time."""
        virtual_ns = self._clock.read_ns()
        seen = virtual_ns, memory_in_use(self._pid)
        if seen != self._seen:
            self._seen = seen
            self._moved_s = now_s
        self._check_wall(now_s, last)
        if now_s - self._moved_s > self._stall_s:
            at = "" if virtual_ns is None else f" at {virtual_ns / 1e9:.6f} s of virtual time"
            silent = f"silent for {self._stall_s:g} s and its clock still ({self._cause()})"
            raise RunFailed(with_lines(f"the guest is stuck{at}: {silent}", last))

    def _cause(self) -> str:
        """The two ways to get stuck: the kernel that looks for memory to free also waits for time to pass."""
        if self._seen[1] > 0.9 * self._memory_bytes:
            return f"out of memory: it has used all of its {self._memory_bytes >> 20} MiB"
        return "a loop that neither sleeps nor reads the clock?"


def memory_in_use(pid: int) -> int:
    """Bytes that the machine holds for the guest that is process `pid`: of its unlinked memory file, what is filled."""
    filled = [0]
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            status = descriptor.stat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            filled.append(status.st_blocks * 512)
    return max(filled)


def with_lines(what: str, last: Sequence[str]) -> str:
    """An error's message with the guest's last words."""
    if not last:
        return f"{what}; it said nothing"
    return "\n".join([f"{what}; its last lines:", *(f"    {line}" for line in last)])
