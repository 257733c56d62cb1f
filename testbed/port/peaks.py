"""The longest queue of every port so far, though the kernel forgets it with each reading and readers are several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from testbed.port.marks import Marks


class Peaks:
    """High-water marks in bytes, by interface, over everything that anybody has read."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._seen: dict[str, int] = {}
        self._others: list[Callable[[], Mapping[str, int]]] = []
        self._marks: Marks | None = None

    def marks(self, interfaces: Sequence[str]) -> Marks:
        """What samplers tell each other; made for all ports of the fabric by the first who asks."""
        if self._marks is None:
            self._marks = Marks(interfaces)
        return self._marks

    def note(self, interface: str, peak_bytes: int) -> int:
        """Adds a reading of our own; the highest so far, whoever read it."""
        known = [self._seen.get(interface, 0), *(other().get(interface, 0) for other in self._others)]
        self._seen[interface] = highest = max(peak_bytes, *known)
        if self._marks is not None:
            self._marks.tell(interface, peak_bytes)
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
                self._seen[interface] = max(peak_bytes, self._seen.get(interface, 0))
