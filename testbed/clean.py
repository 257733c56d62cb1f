"""Removes what dead runs left: and nothing else.

A fabric lives in network namespaces that only its processes hold, so the kernel takes interfaces, queues and switches
away by itself, even after SIGKILL.  What can stay is a directory under /run/fabric-testbed and, for a moment,
processes that were in the middle of something.  Both carry the run's tag: the directory by its name, a process in its
environment.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STATE = Path("/run/fabric-testbed")
TAG_VARIABLE = "FABRIC_TESTBED_TAG"
_OWNER = "owner.json"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that a run belongs to; a pid alone may be somebody else's by now."""

    pid: int
    started: int
    """Field 22 of /proc/PID/stat, in clock ticks since boot."""

    def alive(self) -> bool:
        """Whether that very process still runs."""
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """When a process started, None when there is no such process or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def claim(tag: str, state: Path = STATE) -> Path:
    """Makes the run's directory and writes down whose it is."""
    directory = state / tag
    directory.mkdir(parents=True)
    owner = Owner(pid=os.getpid(), started=start_time(os.getpid()) or 0)
    (directory / _OWNER).write_text(json.dumps({"pid": owner.pid, "started": owner.started}))
    return directory


def release(directory: Path) -> None:
    """Removes the run's directory, and the directory of all runs when it was the last."""
    shutil.rmtree(directory)
    try:
        directory.parent.rmdir()
    except OSError:
        return  # another run has its directory there


def clean(state: Path = STATE) -> list[str]:
    """Ends the processes and removes the directories of dead runs.  Returns what it removed, in words."""
    removed = []
    for directory in _dead(state):
        for pid in tagged_processes(directory.name):
            os.kill(pid, signal.SIGKILL)
            removed.append(f"process {pid} of run {directory.name}")
        release(directory)
        removed.append(f"directory {directory} of run {directory.name}")
    return removed


def tagged_processes(tag: str) -> list[int]:
    """Processes that carry the run's tag, this one excepted."""
    wanted = f"{TAG_VARIABLE}={tag}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # ended meanwhile, or not ours
        if wanted in environment.split(b"\0"):
            found.append(int(entry.name))
    return sorted(found)


def _dead(state: Path) -> Iterator[Path]:
    if not state.is_dir():
        return
    for directory in sorted(state.iterdir()):
        try:
            owner = Owner(**json.loads((directory / _OWNER).read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            # killed between making the directory and naming itself: nothing can have been started yet
            yield directory
            continue
        if not owner.alive():
            yield directory
