"""Comparing runs: what differs is told, by how much and for the better or not; what cannot be compared is refused."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.report.compare import page, read_runs, tables
from experiments.report.compare.changes import verdict
from experiments.report.compare.runs import names
from experiments.results import Row
from tests.unit.experiments.report_folders import link_uses, results, save
from topologies.errors import UserError
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=3,rate=100G")


def row(size: int, time_ns: int) -> Row:
    return Row.of(op="all_reduce", size_bytes=size, ranks=3, iteration=0, time_ns=time_ns, factor=1.5, wrong=0)


def made(path: Path, *, time_ns: int = 1000, drops: int = 0, policy: str = "ecmp", **more: Any) -> Path:
    rows = (row(1000, time_ns), row(2000, 2 * time_ns))
    found = results(
        STAR, **{"rows": rows, "links": link_uses(STAR, s1_eth1={"drops": drops, "utilisation": 0.9}), **more}
    )
    return save(path, STAR, found, policy=policy).path


def text(*folders: Path) -> str:
    return "\n".join(table.text() for table in tables(read_runs(folders)))


def test_what_was_asked_differently_comes_first_and_nothing_else(tmp_path: Path) -> None:
    first, *_ = tables(read_runs([made(tmp_path / "a"), made(tmp_path / "b", policy="te", time_ns=500)]))
    assert first.cells == (("asked.policy", "ecmp", "te"),)


def test_changes_are_told_against_the_first_run_and_judged(tmp_path: Path) -> None:
    said = text(made(tmp_path / "a", drops=4), made(tmp_path / "b", time_ns=500), made(tmp_path / "c", drops=6))
    (time_line,) = [line for line in said.splitlines() if "all_reduce 1000 B, 3 ranks: time us" in line]
    assert " ".join(time_line.split()) == "all_reduce 1000 B, 3 ranks: time us 1 0.5 -50.0% better 1"
    (speed_line,) = [line for line in said.splitlines() if "1000 B, 3 ranks: busbw GBps" in line]
    assert speed_line.split()[-4:] == ["3", "+100.0%", "better", "1.5"]
    (drops_line,) = [line for line in said.splitlines() if "drops" in line]
    assert " ".join(drops_line.split()) == "drops 4 0 -100.0% better 6 +50.0% worse"


def test_sections_are_matched_by_what_their_records_say(tmp_path: Path) -> None:
    one = [{"policy": "x", "goodput_GBps": 1.0}, {"policy": "y", "goodput_GBps": 2.0}]
    other = [{"policy": "y", "goodput_GBps": 1.5}, {"policy": "x", "goodput_GBps": 1.0}]
    said = text(made(tmp_path / "a", balance=one), made(tmp_path / "b", balance=other))
    assert [line.split() for line in said.splitlines() if "goodput" in line] == [
        ["y:", "goodput_GBps", "2", "1.5", "-25.0%", "worse"]
    ]


def test_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    runs = read_runs([made(tmp_path / "a"), made(tmp_path / "b")])
    assert tables(runs) == []
    assert "Nothing differs" in page(runs)


def test_a_quantity_whose_name_does_not_say_is_not_judged() -> None:
    assert verdict("packet-hops", 2, 1) == verdict("marks", 2, 1) == ""
    assert verdict("mean_fct_us", 2, 1) == " worse"
    assert verdict("busbw GBps", 2, 1) == " better"


def test_folders_of_equal_names_are_told_apart() -> None:
    assert names([Path("/x/1/run"), Path("/x/2/run")]) == ["1/run", "2/run"]
    assert names([Path("/x/a"), Path("/x/b")]) == ["a", "b"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    run = made(tmp_path / "a")
    with pytest.raises(UserError, match="two run folders"):
        read_runs([run])
    with pytest.raises(UserError, match="named twice"):
        read_runs([run, run])
    with pytest.raises(UserError, match=r"b is one of incast"):
        read_runs([run, made(tmp_path / "b", experiment="incast")])
    with pytest.raises(UserError, match="c is not valid: it broke"):
        read_runs([run, made(tmp_path / "c", valid=False, reasons=("it broke",))])
    with pytest.raises(UserError, match=r"has no results\.json"):
        read_runs([run, tmp_path / "nothing"])


def test_the_command_prints_tables_and_writes_a_page_with_figures_laid_over_each_other(tmp_path: Path) -> None:
    folders = [str(made(tmp_path / "a")), str(made(tmp_path / "b", time_ns=500))]
    target = tmp_path / "compare.html"
    ran = CliRunner().invoke(app, ["compare", *folders, "--out", str(target)])
    assert ran.exit_code == 0, ran.output
    assert "-50.0% better" in ran.output
    written = target.read_text()
    assert "Bus bandwidth of all_reduce" in written
    assert "Links by how busy they were" in written
    assert "<script" not in written
