"""A run is a folder; this is its lay-out, and the only place that knows the file names.

runs/20261130-231500-all_reduce/
|-- request.json     what was asked for, read by the guest
|-- manifest.json    what was asked for and what was in force, versions, what is real and what is modelled
|-- results.json     the measured rows, links, paths and the verdict; absent when the run failed
|-- error.json       why the run failed; absent when it did not
|-- topology.json    the fabric as data;  controller.log  ranks/  log.txt  what was said
|-- pcap/            captures, when asked for
|-- series/          ports, sockets and ranks over time (series/schema.py)
|-- trace.json       the run for Perfetto (trace_file.py)
|-- wall.json        wall-clock seconds of the run's stages, the one file that differs between equal runs
`-- report.html      made from the files above and from nothing else
"""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from topologies.errors import UserError


@dataclass(frozen=True)
class RunFolder:
    """Paths inside one run folder."""

    path: Path

    @property
    def request(self) -> Path:
        """What was asked for."""
        return self.path / "request.json"

    @property
    def manifest(self) -> Path:
        """What was in force."""
        return self.path / "manifest.json"

    @property
    def results(self) -> Path:
        """What was measured."""
        return self.path / "results.json"

    @property
    def error(self) -> Path:
        """Why it failed."""
        return self.path / "error.json"

    @property
    def topology(self) -> Path:
        """The fabric, for the controller and the reports."""
        return self.path / "topology.json"

    @property
    def controller_log(self) -> Path:
        """All that the controller said."""
        return self.path / "controller.log"

    @property
    def wall(self) -> Path:
        """Wall-clock seconds by stage."""
        return self.path / "wall.json"

    @property
    def log(self) -> Path:
        """All that the user saw."""
        return self.path / "log.txt"

    @property
    def commands(self) -> Path:
        """What was piped to `--mn-cli` instead of typed."""
        return self.path / "commands.mn"

    @property
    def pcap(self) -> Path:
        """Captures."""
        return self.path / "pcap"

    @property
    def series(self) -> Path:
        """Ports, sockets and ranks over time."""
        return self.path / "series"

    @property
    def trace(self) -> Path:
        """The run for Perfetto."""
        return self.path / "trace.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"


def create(experiment: str, *, out: Path | None, now: datetime) -> RunFolder:
    """Makes an empty run folder: `out`, or a new one below ./runs named by time and experiment.  Raises UserError."""
    path = out if out is not None else Path("runs") / f"{now:%Y%m%d-%H%M%S}-{experiment}"
    number = 2
    while out is None and path.exists():
        path = Path("runs") / f"{now:%Y%m%d-%H%M%S}-{experiment}-{number}"
        number += 1
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"--out {path} exists and is not an empty folder; name a new one or empty it")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path} cannot be made: {error.strerror}") from error
    return RunFolder(path.resolve())


def write_json(path: Path, value: Any) -> None:
    """Writes `value` so that equal values give equal bytes."""
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> Any:
    """Reads what `write_json` wrote.  Raises UserError where the folder is not a run folder."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(f"{path.parent} has no {path.name}: it is not the folder of a finished run") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
