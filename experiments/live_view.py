"""The view that a terminal shows below the lines of a run while it lasts: how far it is and how fast its clock goes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.text import Text

from experiments.progress import Progress

BLOCKS = "▁▂▃▄▅▆▇█"
HISTORY = 40
"""Line-ups in the sparkline."""


@dataclass(kw_only=True)
class LiveView:
    """Renders itself as often as rich asks; `elapsed_s` gives the wall seconds since the run began."""

    elapsed_s: Callable[[], float]
    stage: str = "starting"
    """The last line that was said."""
    first: tuple[float, int] | None = None
    """Wall seconds and virtual nanoseconds of the first line-up."""
    last: Progress | None = None
    shares: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    queues_bytes: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def take(self, progress: Progress) -> None:
        """A new line-up."""
        if self.first is None:
            self.first = self.elapsed_s(), progress.virtual_ns
        self.last = progress
        if progress.link:
            self.shares.append(progress.share)
            self.queues_bytes.append(progress.queue_bytes)

    def text(self) -> str:
        """What is shown now, in one to three lines."""
        wall_s, it = self.elapsed_s(), self.last
        if it is None:
            return f"wall {wall_s:.0f} s   {self.stage}"
        lines = f"virtual {_time(it.virtual_ns)}   wall {wall_s:.0f} s   {self._ratio(wall_s)}   line-ups {it.line_ups}"
        lines += f" ({it.label})" + (f"   events {it.events}" if it.events else "")
        if it.link:
            lines += f"\nbusiest {it.link} {it.share:.0%}   {sparkline(list(self.shares))}"
        if it.queue and it.link:
            most = max(self.queues_bytes)
            shares = [each / most for each in self.queues_bytes]
            lines += f"\nlongest queue {it.queue} {it.queue_bytes / 1e3:,.0f} kB   {sparkline(shares)}"
        return lines

    def _ratio(self, wall_s: float) -> str:
        """How many seconds of this machine a second of the run takes, since the first line-up."""
        assert self.last is not None
        assert self.first is not None
        took_s, virtual_s = wall_s - self.first[0], (self.last.virtual_ns - self.first[1]) / 1e9
        return f"1 s takes {took_s / virtual_s:,.0f} s" if virtual_s > 0 and took_s > 0 else "1 s takes ? s"

    def __rich__(self) -> Text:
        """What rich draws."""
        return Text(self.text(), style="dim")


def sparkline(shares: list[float]) -> str:
    """A block for each share of 0 to 1."""
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(max(0.0, share) * len(BLOCKS)))] for share in shares)


def _time(time_ns: int) -> str:
    size, unit = next(((size, unit) for size, unit in ((1e9, "s"), (1e6, "ms")) if time_ns >= size), (1e3, "us"))
    return f"{time_ns / size:.3f} {unit}"
