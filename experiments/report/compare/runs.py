"""The runs that are compared: read, named apart, and refused where a comparison would mean nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.figure import Run
from experiments.report.series import read_series
from experiments.results import Results, read_results
from experiments.run_folder import RunFolder, read_json
from topologies.errors import UserError
from topologies.json_form import from_json


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One run, and what tables and legends call it."""

    name: str
    run: Run
    manifest: Mapping[str, Any]

    @property
    def results(self) -> Results:
        """Its results.json."""
        return self.run.results


def read_runs(folders: Sequence[Path]) -> list[Compared]:
    """Raises UserError for fewer than two folders, one named twice, an invalid run, and different experiments."""
    paths = [folder.resolve() for folder in folders]
    if len(paths) < 2:
        raise UserError("compare: name two run folders at least")
    if twice := [str(path) for path in paths if paths.count(path) > 1]:
        raise UserError(f"compare: {twice[0]} is named twice; a run differs from itself in nothing")
    found = [
        Compared(name=name, run=_read(RunFolder(path)), manifest=read_json(RunFolder(path).manifest))
        for name, path in zip(names(paths), paths, strict=True)
    ]
    experiments = {each.results.experiment: each.name for each in found}
    if len(experiments) > 1:
        told = ", ".join(f"{name} is one of {experiment}" for experiment, name in experiments.items())
        raise UserError(f"compare: different experiments measure different things: {told}")
    if invalid := [each for each in found if not each.results.valid]:
        raise UserError(f"compare: {invalid[0].name} is not valid: {'; '.join(invalid[0].results.reasons)}")
    return found


def _read(folder: RunFolder) -> Run:
    series = read_series(folder.path / "series")
    return Run(read_results(folder.results), from_json(read_json(folder.topology)), series)


def names(paths: Sequence[Path]) -> list[str]:
    """The folders' own names, with as many of those above as it takes to tell them apart."""
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]
