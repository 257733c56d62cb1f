"""Who may go on while others are behind: the clocks of a parameter server.  Pure.

A worker's clock is the number of steps it has pushed.  It may begin the next one while it is at most `bound` steps
ahead of the slowest: bound 0 is lock-step, no bound is fully asynchronous (stale synchronous parallel, Ho et al. 2013).
"""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Clocks:
    """Of all workers, by number from 0."""

    workers: int
    steps: int
    """That every worker takes."""
    bound: int | None
    """None never holds anybody back."""
    done: list[int] = field(init=False)
    largest_lead: int = field(init=False, default=0)
    """Over all steps begun: how far the worker that began was ahead of the slowest then."""
    _held: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        """Nobody has done anything."""
        self.done = [0] * self.workers

    @property
    def finished(self) -> bool:
        """Everybody has taken every step."""
        return all(count == self.steps for count in self.done)

    def push(self, worker: int) -> list[int]:
        """A worker has done one step more; the workers that may go on because of that, in order.

        Those that have taken all their steps are let go at once: they ask for the weights a last time.
        """
        self.done[worker] += 1
        self._held.add(worker)
        slowest = min(self.done)
        free = [each for each in sorted(self._held) if self._may_begin(each, slowest)]
        self._held.difference_update(free)
        leads = [self.done[each] - slowest for each in free if self.done[each] < self.steps]
        self.largest_lead = max([self.largest_lead, *leads])
        return free

    def _may_begin(self, worker: int, slowest: int) -> bool:
        ahead = self.done[worker] - slowest
        return self.done[worker] == self.steps or self.bound is None or ahead <= self.bound
