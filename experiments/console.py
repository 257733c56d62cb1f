"""What the user sees, on the terminal and in the run's log alike.

Only the command-line layer holds a Console; everything below returns values.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from rich.console import Console as RichConsole
from rich.live import Live

from experiments.live_view import LiveView
from experiments.progress import parse

MARK = "\x1e"
"""Begins a line that a guest prints for the machine, not for people: `<MARK>name` says that `name` happens now."""


class Console:
    """Prints lines with the wall-clock time since the start, and copies them to a log.  A context manager."""

    def __init__(self, log: Path | None = None) -> None:
        """`log`: where a copy of all that is printed goes; appended to."""
        self._rich = RichConsole(highlight=False, soft_wrap=True)
        self._log: IO[str] | None = log.open("a") if log is not None else None
        self._start = time.monotonic()
        self.marks: dict[str, float] = {}
        """Name of a mark -> wall seconds since the start."""
        self._view: LiveView | None = None

    def __enter__(self) -> "Console":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since this console was made."""
        return time.monotonic() - self._start

    def say(self, text: str = "") -> None:
        """One line or block, as it is."""
        self._rich.print(text, markup=False)
        self._write(text)

    def progress(self, line: str, *, logged: bool = False) -> None:
        """A line that came while something long runs: stamped with elapsed time, or taken as a mark.

        `logged`: whoever passes the line on has put it in the log already, as a guest's boot does.
        """
        if line.startswith(MARK):
            self._take(line.removeprefix(MARK).strip())
            return
        if self._view is not None:
            self._view.stage = line
        stamped = f"[{self.elapsed_s:6.1f} s] {line}"
        self._rich.print(stamped, markup=False)
        if not logged:
            self._write(stamped)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Shows how far the run is below its lines while this lasts; on a terminal only, elsewhere nothing changes."""
        if not self._rich.is_terminal:
            yield
            return
        self._view = LiveView(elapsed_s=lambda: self.elapsed_s)
        try:
            with Live(self._view, console=self._rich, refresh_per_second=4, transient=True, redirect_stdout=False):
                yield
        finally:
            self._view = None

    def _take(self, mark: str) -> None:
        progress = parse(mark)
        if progress is None:
            self.marks[mark] = self.elapsed_s
        elif self._view is not None:
            self._view.take(progress)

    def _write(self, text: str) -> None:
        if self._log is not None:
            self._log.write(text + "\n")
            self._log.flush()


def fail(message: str) -> None:
    """An error for the user, on standard error."""
    sys.stderr.write(f"error: {message}\n")
