"""Decide from outside that a guest is stuck: it is silent and its virtual clock stands still."""

from collections.abc import Sequence

from testbed.guest.virtual_clock import VirtualClock
from topologies.errors import RunFailed


class Watch:
    """Looks at one guest whenever it is asked to; time is the caller's."""

    def __init__(
        self,
        *,
        clock: VirtualClock,
        stall_s: float,
        wall_limit_s: float | None,
        now_s: float,
    ) -> None:
        """`stall_s` and `wall_limit_s` are wall seconds, as is `now_s`, a monotonic clock's reading."""
        self._clock = clock
        self._stall_s, self._wall_limit_s = stall_s, wall_limit_s
        self._started_s = self._moved_s = now_s
        self._virtual_ns: int | None = None

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
        if virtual_ns != self._virtual_ns:
            self._virtual_ns, self._moved_s = virtual_ns, now_s
        self._check_wall(now_s, last)
        if now_s - self._moved_s > self._stall_s:
            at = "" if virtual_ns is None else f" at {virtual_ns / 1e9:.6f} s of virtual time"
            why = (
                f"silent for {self._stall_s:g} s and its clock still (a loop that neither sleeps nor reads the clock?)"
            )
            raise RunFailed(with_lines(f"the guest is stuck{at}: {why}", last))


def with_lines(what: str, last: Sequence[str]) -> str:
    """An error's message with the guest's last words."""
    if not last:
        return f"{what}; it said nothing"
    return "\n".join([f"{what}; its last lines:", *(f"    {line}" for line in last)])
