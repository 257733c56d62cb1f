"""Runs of experiment scripts as a user starts them, as processes of their own, and what they leave in their folders."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.report import figure as report
from experiments.report.series import read_series
from experiments.report.summary import summary
from experiments.results import Results, read_results
from experiments.run_folder import RunFolder, read_json
from topologies.json_form import from_json

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
"""Experiments that only the tests need: two flows at a time, ranks that fail."""
LIMIT_S = 300


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that has ended."""

    exit_code: int
    said: str
    """Standard output and error, in the order in which they came."""
    folder: RunFolder
    wall_s: float

    def succeeded(self) -> "Run":
        """Itself; fails the test with all that was said when the run did not end well."""
        assert self.exit_code == 0, f"exit code {self.exit_code}:\n{self.said}"
        return self

    @cached_property
    def results(self) -> Results:
        """Its results.json."""
        return read_results(self.folder.results)

    @cached_property
    def manifest(self) -> Any:
        """Its manifest.json."""
        return read_json(self.folder.manifest)

    @cached_property
    def words(self) -> dict[str, list[str]]:
        """What its report says in sentences: kind of finding -> the sentences."""
        topology = from_json(read_json(self.folder.topology))
        found: dict[str, list[str]] = {}
        for finding in summary(report.Run(self.results, topology, read_series(self.folder.path / "series"))):
            found.setdefault(finding.kind, []).append(finding.text)
        return found

    def best_share(self, size_bytes: int, rate_bps: float) -> float:
        """The best iteration's bus bandwidth at one size, as a share of the line rate."""
        return max(row.busbw_GBps for row in self.results.rows if row.bytes == size_bytes) * 8e9 / rate_bps


def command(script: str | Path, *arguments: str, out: Path) -> list[str]:
    """`script` is the name of an experiment of ours, or the path of somebody's own."""
    path = script if isinstance(script, Path) else CHECKOUT / "experiments" / f"{script}.py"
    return [sys.executable, str(path), *arguments, "--out", str(out)]


def environment(**more: str) -> dict[str, str]:
    """What `./run` gives the scripts: this checkout's packages."""
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), **more}


def run(
    script: str | Path,
    *arguments: str,
    out: Path,
    prefix: Sequence[str] = (),
    more_environment: Mapping[str, str] | None = None,
) -> Run:
    """Runs it to its end.  `prefix` is a command that starts ours: `taskset`, `setpriv`."""
    began = time.monotonic()
    done = subprocess.run(
        [*prefix, *command(script, *arguments, out=out)],
        cwd=out.parent,
        env=environment(**(more_environment or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Run(exit_code=done.returncode, said=done.stdout, folder=RunFolder(out), wall_s=time.monotonic() - began)


@dataclass(kw_only=True)
class Running:
    """A run under way, whose output can be waited for."""

    process: subprocess.Popen[str]
    out: Path
    lines: list[str] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def wait_for(self, text: str, limit_s: float = 120) -> None:
        """Until a line with `text` is printed.  Fails the test when the run ends first."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self.said(text), limit_s)
            assert self.said(text), f"'{text}' was not printed:\n{''.join(self.lines)}"

    def said(self, text: str) -> bool:
        """Whether a line with `text` has been printed."""
        return any(text in line for line in self.lines)

    def end(self, limit_s: float = 60) -> int:
        """Waits for its end; its exit code, negative for a signal."""
        return self.process.wait(limit_s)

    def follow(self) -> None:
        """Collects its output; called in a thread of its own."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


@contextmanager
def started(script: str | Path, *arguments: str, out: Path) -> Iterator[Running]:
    """A run that may be disturbed while it lasts; ended on leaving."""
    process = subprocess.Popen(
        command(script, *arguments, out=out),
        cwd=out.parent,
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = Running(process=process, out=out)
    follower = threading.Thread(target=running.follow, daemon=True)
    follower.start()
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        follower.join(60)
