"""The progress board: what each rank is doing right now, in memory that the supervisor can read at any moment.

A rank that is stopped, or lost inside a C++ wait, cannot answer questions; its last entry on the board can.

    one slot a rank:  | version | phase | operations | since_ns | size_bytes | name (64) |

One writer per slot.  The version is odd while the writer is at work (a seqlock), so a reader that lands between two
stores, or meets a rank that was killed in the middle of one, sees so instead of taking half an entry for the truth.
"""

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum

_SLOT = struct.Struct("=QQQqq64s")
_VERSION = struct.Struct("=Q")


class Phase(IntEnum):
    """Where a rank is in its life."""

    STARTING = 0
    IDLE = 1
    """In the program, between operations."""
    WORKING = 2
    """Inside an operation."""
    WAITING = 3
    """Lined up, waiting for the other ranks."""
    FINISHED = 4
    FAILED = 5


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One rank's place on the board."""

    phase: Phase = Phase.STARTING
    operations: int = 0
    """How many operations and line-ups it has completed."""
    since_ns: int = 0
    """Monotonic clock when the phase began."""
    size_bytes: int = 0
    name: str = ""
    """Of the operation, or of the last one."""

    def words(self) -> str:
        """What to tell the user: `in all_reduce of 16000000 bytes`."""
        size = f" of {self.size_bytes} bytes" if self.size_bytes else ""
        match self.phase:
            case Phase.STARTING:
                return "before its first operation (joining the process group)"
            case Phase.WORKING:
                return f"in {self.name}{size}"
            case Phase.WAITING:
                return f"waiting for the other ranks at {self.name or 'a line-up'}"
            case Phase.IDLE:
                return f"after {self.name}{size}" if self.name else "before its first operation"
            case Phase.FINISHED:
                return "after its program returned"
            case Phase.FAILED:
                return f"in {self.name}{size}" if self.name else "in its program"


class Board:
    """Shared memory for `ranks` entries; make it before forking."""

    def __init__(self, ranks: int) -> None:
        """All entries begin as STARTING."""
        self._memory = mmap.mmap(-1, ranks * _SLOT.size)
        self._ranks = ranks

    def write(self, rank: int, entry: Entry) -> None:
        """Replaces the entry of `rank`; to be called by that rank only."""
        at = rank * _SLOT.size
        (version,) = _VERSION.unpack_from(self._memory, at)
        _VERSION.pack_into(self._memory, at, version | 1)
        name = entry.name.encode()[:64]
        _SLOT.pack_into(
            self._memory, at, version | 1, entry.phase, entry.operations, entry.since_ns, entry.size_bytes, name
        )
        _VERSION.pack_into(self._memory, at, (version | 1) + 1)

    def read(self, rank: int) -> Entry | None:
        """The entry of `rank`; None when it was caught while writing (and for good when it died doing so)."""
        at = rank * _SLOT.size
        version, phase, operations, since_ns, size_bytes, name = _SLOT.unpack_from(self._memory, at)
        if version & 1 or _VERSION.unpack_from(self._memory, at)[0] != version:
            return None
        return Entry(
            phase=Phase(phase),
            operations=operations,
            since_ns=since_ns,
            size_bytes=size_bytes,
            name=name.rstrip(b"\0").decode(errors="replace"),
        )

    def image(self) -> bytes:
        """All entries as bytes: two equal images mean that nobody began or ended anything in between."""
        return self._memory[:]

    def close(self) -> None:
        """Gives the memory back."""
        self._memory.close()
