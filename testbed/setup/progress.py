"""Long work that shows what it does and for how long, and writes everything that it prints to a log."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from topologies.errors import RunFailed

_PLAIN_PERIOD_S = 10.0
_TERMINAL_PERIOD_S = 0.2
_LAST_LINES = 25


class Progress:
    """On a terminal one line that is rewritten; elsewhere a plain line every ten seconds.  All of it is logged."""

    def __init__(self, log: Path, screen: TextIO = sys.stderr) -> None:
        """Appends to `log`, whose folder is made."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self._screen = log, screen
        self._terminal = screen.isatty()

    def say(self, text: str) -> None:
        """One line for the user and the log."""
        self._screen.write(f"{text}\n")
        self._screen.flush()
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%F %T')} {text}\n")

    def command(
        self,
        what: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] = os.environ,
        directory: Path | None = None,
        check: bool = True,
    ) -> int:
        """Run `arguments` with its output in the log and elapsed time on the screen.

        Raises RunFailed with the last lines of its output when it fails, unless `check` is False.  It is ended with all
        its children when we are interrupted.
        """
        start_s = time.monotonic()
        last: deque[str] = deque(maxlen=_LAST_LINES)
        with self.log.open("ab", buffering=0) as log:
            log.write(f"{time.strftime('%F %T')} {what}: {' '.join(arguments)}\n".encode())
            status = self._run(what, arguments, environment=environment, directory=directory, log=log, last=last)
        elapsed = _elapsed(time.monotonic() - start_s)
        self._clear()
        if status != 0 and check:
            self.say(f"  {what}: failed after {elapsed}")
            raise RunFailed("\n".join([f"{what} failed; {self.log} has all of its output, which ended:", *last]))
        self.say(f"  {what}: {elapsed}" + (f" (exit status {status}, see {self.log})" if status else ""))
        return status

    def _run(
        self,
        what: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path | None,
        log: BinaryIO,
        last: deque[str],
    ) -> int:
        process = subprocess.Popen(
            arguments,
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self._follow(what, process, log, last)
            return process.wait()
        except BaseException:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._clear()
            raise

    def _follow(self, what: str, process: subprocess.Popen[bytes], log: BinaryIO, last: deque[str]) -> None:
        assert process.stdout is not None
        period_s = _TERMINAL_PERIOD_S if self._terminal else _PLAIN_PERIOD_S
        start_s = time.monotonic()
        next_s = start_s + period_s
        with process.stdout as output, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                if selector.select(max(0.0, next_s - time.monotonic())):
                    chunk = os.read(output.fileno(), 65536)
                    if not chunk:
                        return
                    log.write(chunk)
                    last += [line for line in chunk.decode(errors="replace").splitlines() if line.strip()]
                if time.monotonic() >= next_s:
                    next_s += period_s
                    self._tick(what, time.monotonic() - start_s, last[-1] if last else "")

    def _tick(self, what: str, elapsed_s: float, detail: str) -> None:
        if not self._terminal:
            self.say(f"  {what}: {_elapsed(elapsed_s)} so far")
            return
        width = os.get_terminal_size(self._screen.fileno()).columns
        self._screen.write(f"\r\x1b[K{f'  {what}: {_elapsed(elapsed_s)}  {detail.strip()}'[: width - 1]}")
        self._screen.flush()

    def _clear(self) -> None:
        if self._terminal:
            self._screen.write("\r\x1b[K")
            self._screen.flush()


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
