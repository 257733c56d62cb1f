"""The command line keeps its word: exit codes 0 to 3, and messages that name the culprit and what would have worked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import catalogue
from experiments.experiment import main
from experiments.settings import describe_settings
from testbed.host_settings import HostSettings

CHECKOUT = Path(__file__).resolve().parents[3]
SCRIPTS = [path.stem for path in catalogue.scripts()]

MISTAKES = {
    "--topology leafspine": ["'leafspine'", "leaf_spine", "fat_tree", "star", "rail", "dumbbell"],
    "--topology leaf_spine:leafs=3": ["'leafs'", "leaves", "spines", "rate"],
    "--topology leaf_spine:leaves=many": ["leaves", "'many'", "from 1"],
    "--topology leaf_spine:leaves=0": ["leaves", "0"],
    "--topology leaf_spine:rate=100X": ["rate", "'100X'", "100G"],
    "--topology leaf_spine:rate": ["rate", "key=value"],
    "--topology nowhere.yaml": ["nowhere.yaml"],
    "--policy ecpm": ["'ecpm'", "ecmp", "single"],
    "--policy ecmp:sed=3": ["'sed'", "seed", "polarised"],
    "--policy ecmp:seed=x": ["seed", "'x'", "whole number"],
    "--clock wall": ["wall", "real", "virtual"],
    "--seed -1": ["--seed", "0"],
    "--seed x": ["--seed", "integer"],
    "--set size=1M": ["size", "sizes", "iterations", "warmup", "connections"],
    "--set sizes=1X": ["sizes", "'1X'", "64M"],
    "--set sizes": ["sizes", "key=value"],
    "--set iterations=0": ["iterations=0", "1"],
    "--set iterations=1 --set iterations=2": ["iterations", "twice"],
    "--set host.cwnd=1": ["host.cwnd", "host.initial_window", "host.cc"],
    "--set host.ecn=maybe": ["host.ecn=maybe", "off", "on", "passive"],
    "--set host.rto_min=1": ["host.rto_min=1", "ms"],
    "--pcap h99": ["'h99'", "h1", "hosts", "all", "none", "leaf1", "spine4-eth4"],
    "--out /proc/nowhere": ["/proc/nowhere"],
    "--frobnicate": ["--frobnicate"],
    "superfluous": ["superfluous"],
}


def outcome(
    name: str, *arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of an experiment's command line, in this process."""
    experiment = catalogue.load(name)
    monkeypatch.setattr(sys, "argv", [str(CHECKOUT / "experiments" / f"{name}.py"), *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as left:
        main(experiment, arguments)
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def in_a_process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a shell sees; without the guest kernel unless `environment` names one."""
    base = {name: value for name, value in os.environ.items() if name != "FABRIC_TESTBED_KERNEL"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**base, "PYTHONPATH": str(CHECKOUT), "FABRIC_TESTBED_CACHE": str(cwd / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_named_with_what_would_do_and_nothing_is_made(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = outcome("all_reduce", *arguments.split(), capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert [word for word in MISTAKES[arguments] if word not in error] == [], error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_all_mistakes_in_settings_are_told_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--set", "iterations=0", "--set", "size=1M", "--set", "host.ecn=maybe"]
    code, _, error = outcome("all_reduce", *arguments, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert all(culprit in error for culprit in ("iterations=0", "--set size:", "host.ecn=maybe"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_is_asked_and_names_every_key(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said, _ = outcome(name, "--help", capsys=capsys, monkeypatch=monkeypatch)
    experiment = catalogue.load(name)
    assert code == 0
    for option in ("--topology", "--policy", "--clock", "--seed", "--set", "--pcap", "--out", "--mn-cli"):
        assert option in said
    assert "--inside" not in said
    keys = [*describe_settings(experiment.settings), *describe_settings(HostSettings, prefix="host.")]
    for key, _, meaning in keys:
        assert f"{key}=" in said
        assert meaning
        assert " ".join(meaning.split()) in " ".join(said.split()), key
    assert "    ./run " in said, "an example to copy"


def test_a_copied_script_has_the_same_command_line(tmp_path: Path) -> None:
    """Experiments are scripts that users copy, wherever they like."""
    copy = tmp_path / "mine.py"
    copy.write_text((CHECKOUT / "experiments" / "all_reduce.py").read_text())
    assert "sizes=" in in_a_process(str(copy), "--help", cwd=tmp_path).stdout


def test_exit_code_0(tmp_path: Path) -> None:
    listed = in_a_process("-m", "experiments", "list", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    for name in (*SCRIPTS, "leaf_spine", "fat_tree", "ecmp", "single"):
        assert name in listed.stdout


def test_exit_code_1_when_the_guest_cannot_run(tmp_path: Path) -> None:
    """A kernel that ends at once: the run failed, says how, and publishes nothing."""
    script = str(CHECKOUT / "experiments" / "all_reduce.py")
    failed = in_a_process(script, "--out", str(tmp_path / "out"), cwd=tmp_path, FABRIC_TESTBED_KERNEL="/bin/false")
    assert failed.returncode == 1
    assert "before its command had ended" in failed.stderr
    assert (tmp_path / "out" / "error.json").exists()
    assert not (tmp_path / "out" / "results.json").exists()


def test_exit_code_2_and_one_line(tmp_path: Path) -> None:
    wrong = in_a_process("-m", "experiments", "topology", "leafspine", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: unknown topology 'leafspine'; known: ")
    assert wrong.stderr.count("\n") == 1


def test_exit_code_3_with_the_remedy(tmp_path: Path) -> None:
    script = str(CHECKOUT / "experiments" / "all_reduce.py")
    lacking = in_a_process(script, "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert lacking.returncode == 3
    assert "kernel" in lacking.stderr
    assert "./run setup" in lacking.stderr


def test_commands_are_listed_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    known = in_a_process("-m", "experiments", "--help", cwd=tmp_path)
    assert known.returncode == 0
    for command in ("demo", "list", "topology", "report", "shell", "bench", "doctor", "clean"):
        assert command in known.stdout
    unknown = in_a_process("-m", "experiments", "frobnicate", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "frobnicate" in unknown.stderr


def test_a_folder_that_is_no_run_is_refused_by_the_report(tmp_path: Path) -> None:
    refused = in_a_process("-m", "experiments", "report", str(tmp_path), cwd=tmp_path)
    assert refused.returncode == 2
    assert str(tmp_path) in refused.stderr
