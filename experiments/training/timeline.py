"""What a rank did and when: the intervals of one training step, written down by the rank itself.

    step  |--------------------------------------------------|
    compute   [forward][--backward--][-----backward-----]
    comm                     [bucket 0    ][bucket 1         ]

All ranks of a fabric share one clock, so intervals of different ranks can be laid over each other.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from testbed.workers import journal


class Kind(StrEnum):
    """What an interval was spent on."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Something that began and ended within a step."""

    kind: Kind
    name: str
    """Equal on all ranks for one collective of one step: that is how it is known to be the same."""
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    """Of the array that was communicated."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step of one rank."""

    number: int
    """Negative for warm-up."""
    start_ns: int
    end_ns: int
    intervals: tuple[Interval, ...]


@dataclass(kw_only=True)
class Pending:
    """A communication under way; `done` ends it, from whatever thread notices."""

    recorder: "Recorder"
    name: str
    size_bytes: int
    start_ns: int

    def done(self) -> None:
        """It is complete at this rank."""
        self.recorder.add(
            Interval(
                kind=Kind.COMMUNICATION,
                name=self.name,
                start_ns=self.start_ns,
                end_ns=time.monotonic_ns(),
                size_bytes=self.size_bytes,
            )
        )


@dataclass(kw_only=True)
class Recorder:
    """One rank's notebook."""

    steps: list[StepRecord] = field(default_factory=list)
    _open: list[Interval] = field(default_factory=list)

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """What is recorded inside belongs to this step."""
        self._open = []
        start_ns = time.monotonic_ns()
        yield
        end_ns = time.monotonic_ns()
        in_order = tuple(sorted(self._open, key=lambda each: (each.start_ns, each.end_ns, each.name)))
        for each in in_order:
            journal.note(
                kind=each.kind.value,
                name=each.name,
                start_ns=each.start_ns,
                end_ns=each.end_ns,
                size_bytes=each.size_bytes,
                step=number,
            )
        self.steps.append(StepRecord(number=number, start_ns=start_ns, end_ns=end_ns, intervals=in_order))

    def compute(self, name: str, duration_ns: int) -> None:
        """A GPU is busy for so long: this rank sleeps, its communication goes on."""
        start_ns = time.monotonic_ns()
        if duration_ns:
            time.sleep(duration_ns / 1e9)
        self.add(Interval(kind=Kind.COMPUTE, name=name, start_ns=start_ns, end_ns=time.monotonic_ns()))

    def begin(self, name: str, size_bytes: int) -> Pending:
        """A communication begins."""
        return Pending(recorder=self, name=name, size_bytes=size_bytes, start_ns=time.monotonic_ns())

    @contextmanager
    def communication(self, name: str, size_bytes: int) -> Iterator[None]:
        """A communication that this rank waits for."""
        pending = self.begin(name, size_bytes)
        yield
        pending.done()

    def add(self, interval: Interval) -> None:
        """Any interval of the step that is open."""
        self._open.append(interval)
