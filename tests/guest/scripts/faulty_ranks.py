"""Ranks that fail in the middle of a job, in every way that a rank can: what is noticed, how soon, and what is left?

The folder's faults.json takes what was found for each fault; the last failure is the run's.
"""

import json
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Words, written
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

ELEMENTS = 250_000
ROUNDS, AT = 6, 3
VICTIM = 2


class Settings(BaseSettings):
    """How the rank fails."""

    faults: Words = Field(default=written("kill"), description="raise, exit, hang, stop or kill; one job each")


def program(rank: Rank, fault: str, note: str) -> int:
    """All-reduces; the victim fails before the fourth."""
    values = torch.ones(ELEMENTS)
    rank.line_up("start")
    for number in range(ROUNDS):
        if number == AT and rank.rank == VICTIM and fault != "none":
            fail(fault, Path(note))
        with rank.operation("all_reduce", ELEMENTS * 4):
            dist.all_reduce(values)
    return ROUNDS


def fail(fault: str, note: Path) -> None:
    """Writes down when, and goes."""
    note.write_text(str(time.monotonic_ns()))
    match fault:
        case "raise":
            raise ValueError("the gradient is not a number")
        case "exit":
            os._exit(7)
        case "hang":
            time.sleep(1e6)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def children() -> int:
    """Processes that are ours, zombies included."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found += int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def run(lab: Lab, settings: Settings) -> None:
    """One job per fault, then a healthy one on the same fabric; then the last failure goes on."""
    note, found = lab.folder.path / "fault-ns", []
    failure = None
    for fault in settings.faults:
        before = children()
        try:
            lab.job(program, fault, str(note))
        except RunFailed as error:
            failure = error
            noticed_s = (time.monotonic_ns() - int(note.read_text())) / 1e9
            found.append({"fault": fault, "message": str(error), "noticed_s": noticed_s, "left": children() - before})
    healthy = lab.job(program, "none", str(note))
    (lab.folder.path / "faults.json").write_text(json.dumps({"faults": found, "healthy": healthy}))
    if failure is not None:
        raise failure


EXPERIMENT = Experiment(
    name="faulty_ranks", question="Is every failure noticed?", settings=Settings, run=run, topology="star:hosts=4"
)

if __name__ == "__main__":
    main(EXPERIMENT)
