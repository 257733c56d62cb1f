"""Boots a guest once per clock and pytest session, has it gather facts about fabrics, and hands them out."""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from testbed.guest.machine import Boot, boot

REAL_CLOCK_FACTS = ("mininet", "real_clock", "unknown_congestion_control", "burst")
_FOLDERS: list["tempfile.TemporaryDirectory[str]"] = []


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What the guest wrote down, its files, and when it printed what."""

    facts: dict[str, Any]
    folder: Path
    printed: dict[str, float]
    """Line -> wall seconds since the guest was started."""

    def __getitem__(self, name: str) -> Any:
        """A fact; fails the test with the guest's error when it could not be had."""
        found = self.facts[name]
        assert not (isinstance(found, dict) and "raised" in found), f"{name}: {found['raised']}"
        return found

    def packets(self, file: str, *fields: str) -> list[tuple[str, ...]]:
        """Fields of every packet of a capture, by tshark, which must have nothing to complain of."""
        argv = ["tshark", "-n", "-r", str(self.folder / file), "-T", "fields"]
        done = subprocess.run(
            [*argv, *(word for field in fields for word in ("-e", field))], capture_output=True, text=True, check=True
        )
        complaints = [line for line in done.stderr.splitlines() if line and not line.startswith("Running as user")]
        assert not complaints, complaints
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


@cache
def gather(*names: str, time_travel: bool = True, seed: int = 1, attempt: int = 1) -> Gathered:
    """One boot; the same arguments give the same answer without another.  `attempt` tells equal boots apart."""
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="fabric-facts-"))
    folder = Path(_FOLDERS[-1].name)
    printed: dict[str, float] = {}
    start = time.monotonic()

    def note(line: str) -> None:
        printed.setdefault(line.strip(), time.monotonic() - start)

    code = boot(
        Boot(
            command=(sys.executable, "tests/guest/fabric_facts.py", "/out", *names),
            run_dir=folder,
            seed=seed,
            time_travel=time_travel,
            environment={"PYTHONPATH": "."},
        ),
        on_line=note,
    )
    assert code == 0, "\n".join(printed)
    return Gathered(facts=json.loads((folder / "facts.json").read_text()), folder=folder, printed=printed)
