"""How ranks end, and whose fault it was when a job fails: values in, sentences out, no processes here.

When one rank dies the others fail a moment later, because their connections to it close.  The user wants the first.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.workers.board import Entry, Phase


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What the supervisor knows of a rank that ended badly."""

    error: str
    at_ns: int
    """Monotonic clock: when the program raised, or when the supervisor saw the process end."""
    died: bool
    """The process itself ended, by a signal or an exit of its own, instead of raising."""


def describe_exit(status: int) -> str:
    """A wait status in words: `killed by SIGKILL`, `exited with code 3 before its program returned`."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exited with code {status} before its program returned"


def culprit(fates: Mapping[int, Fate]) -> int:
    """The rank to name: one that died before any that raised, then the earliest, then the lowest."""
    return min(fates, key=lambda rank: (not fates[rank].died, fates[rank].at_ns, rank))


def behind(entries: Sequence[Entry | None], stopped: Sequence[bool]) -> tuple[int, ...]:
    """The ranks that hold a stuck job up.

    Stopped processes if there are any; else those with fewest completed operations, and of these the ones that are
    not themselves waiting for others: a rank still computing rather than one inside a collective, and one inside a
    collective rather than one at a line-up.  An unreadable entry belongs to a rank that died while writing it.
    """
    halted = tuple(rank for rank, is_stopped in enumerate(stopped) if is_stopped)
    if halted:
        return halted
    patience = {Phase.IDLE: 0, Phase.STARTING: 0, Phase.WORKING: 1, Phase.WAITING: 2}

    def key(entry: Entry | None) -> tuple[int, int]:
        return (-1, 0) if entry is None else (entry.operations, patience.get(entry.phase, 3))

    unfinished = [rank for rank, entry in enumerate(entries) if entry is None or entry.phase is not Phase.FINISHED]
    least = min((key(entries[rank]) for rank in unfinished), default=(0, 0))
    return tuple(rank for rank in unfinished if key(entries[rank]) == least)


def tail(text: str, lines: int = 15) -> str:
    """The last lines of a log, indented to stand below a message."""
    return "\n".join("    " + line for line in text.splitlines()[-lines:])


def stack(text: str, lines: int = 8) -> str:
    """The innermost frames of the main thread from the last dump that faulthandler wrote into a log, or nothing."""
    _, found, rest = text.rpartition("Current thread ")
    return "\n".join("    " + line.strip() for line in rest.splitlines()[1 : lines + 1]) if found else ""
