"""High-water marks on their way between readers: whoever reads a port makes the kernel forget its mark for all others.

    reader A reads 9000 B  -> the slots of B and C hold 9000 B until each reads next, and finds max(theirs, 9000)

The memory is shared by every process forked after it was made.  Each reader's series so has the marks it would have had
alone, in whatever order they read.
"""

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from topologies.errors import UserError

READERS = 16
"""Samplers that may run at once."""


class Marks:
    """One slot per reader, one number per port."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        """Make it before forking; freed with the last process that has it."""
        self._place = {name: number for number, name in enumerate(interfaces)}
        memory = mmap.mmap(-1, 8 * READERS * max(1, len(self._place)))
        self._table = np.frombuffer(memory, dtype=np.int64).reshape(READERS, -1)
        self._free = list(range(READERS))

    def places(self, interfaces: Sequence[str]) -> NDArray[np.int64]:
        """Where these ports are."""
        return np.array([self._place[name] for name in interfaces], dtype=np.int64)

    @contextmanager
    def reader(self) -> Iterator[int]:
        """A slot for one more reader, empty.  Raises UserError where there are too many."""
        if not self._free:
            raise UserError(f"more than {READERS} samplers at once; let some end first")
        slot = self._free.pop(0)
        self._table[slot] = 0
        try:
            yield slot
        finally:
            self._free.insert(0, slot)

    def exchange(self, slot: int, places: NDArray[np.int64], peaks: NDArray[np.int64]) -> NDArray[np.int64]:
        """A reader found `peaks`: tells all others, and returns what they found since its own last reading."""
        missed: NDArray[np.int64] = self._table[slot, places]
        self._table[:, places] = np.maximum(self._table[:, places], peaks)
        self._table[slot, places] = 0
        return missed

    def tell(self, interface: str, peak_bytes: int) -> None:
        """Somebody without a slot read one port."""
        place = self._place[interface]
        np.maximum(self._table[:, place], peak_bytes, out=self._table[:, place])
