"""What this rank did and when: kept in memory while the program runs, written as one file when it has ended.

A rank is a process, so is its journal.  An entry is one append: it costs no virtual time, and touches no file.
"""

import json
from pathlib import Path
from typing import Final, NamedTuple

SUFFIX: Final = ".journal"
"""Beside the rank's log, in place of `.log`."""


class Entry(NamedTuple):
    """Something that lasted."""

    kind: str
    """operation, compute, communication, wait."""
    name: str
    start_ns: int
    """CLOCK_MONOTONIC."""
    end_ns: int
    size_bytes: int
    step: int | None
    """Of training, where there are steps."""


_ENTRIES: Final[list[Entry]] = []


def note(*, kind: str, name: str, start_ns: int, end_ns: int, size_bytes: int = 0, step: int | None = None) -> None:
    """One more entry; from whatever thread."""
    _ENTRIES.append(Entry(kind, name, start_ns, end_ns, size_bytes, step))


class Journal(NamedTuple):
    """A rank's, read back."""

    host: str
    entries: list[Entry]


def write(log: Path, *, host: str) -> None:
    """Beside `log`."""
    log.with_suffix(SUFFIX).write_text(json.dumps([host, _ENTRIES]))


def read(path: Path) -> Journal:
    """What `write` wrote."""
    host, entries = json.loads(path.read_text())
    return Journal(host, [Entry(*values) for values in entries])
