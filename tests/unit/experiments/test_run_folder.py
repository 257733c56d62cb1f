"""A run never writes into what is there already."""

from datetime import datetime
from pathlib import Path

import pytest

from experiments import run_folder
from topologies.errors import UserError

NOW = datetime(2026, 12, 1, 3, 4, 5)


def test_folders_are_named_by_time_and_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = run_folder.create("all_reduce", out=None, now=NOW)
    second = run_folder.create("all_reduce", out=None, now=NOW)
    assert first.path.name == "20261201-030405-all_reduce"
    assert second.path.name == "20261201-030405-all_reduce-2"


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(UserError, match="not an empty folder"):
        run_folder.create("all_reduce", out=tmp_path, now=NOW)


def test_reading_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the folder of a finished run"):
        run_folder.read_json(run_folder.RunFolder(tmp_path).results)
