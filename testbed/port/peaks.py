"""The longest queue of every port so far, though the kernel forgets it with each reading and readers are several."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Peaks:
    """High-water marks in bytes, by interface, over everything that anybody has read."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._seen: dict[str, int] = {}
        self._others: list[Callable[[], Mapping[str, int]]] = []

    def note(self, interface: str, peak_bytes: int) -> int:
        """Adds a reading of our own; the highest so far, whoever read it."""
        known = [self._seen.get(interface, 0), *(other().get(interface, 0) for other in self._others)]
        self._seen[interface] = highest = max(peak_bytes, *known)
        return highest

    @contextmanager
    def shared_with(self, other: Callable[[], Mapping[str, int]]) -> Iterator[None]:
        """While inside, another reader takes marks out of the kernel; `other` tells the highest it has seen so far."""
        self._others.append(other)
        try:
            yield
        finally:
            self._others.remove(other)
            for interface, peak_bytes in other().items():
                self.note(interface, peak_bytes)
