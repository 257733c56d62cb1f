"""`kill -9` of any process of a run, at any moment: nothing is left behind, and the next run works."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Running, started

FLOWS = SCRIPTS / "two_flows.py"
SHORT, LONG = "flow=1M", "flow=100G"
NOTICED_S = 240
"""Most deaths are noticed at once; one while the kernel changes the process's memory only by the guest's standstill."""
WATCHED = ("/etc", "/usr/bin", "/usr/local", "/usr/lib/python3", "/var/lib/openvswitch", "/lib/modules")
"""Folders that nothing but a package manager writes to: a guest sees them as its own."""
SHARED = ("/run", "/run/netns", "/run/openvswitch", "/dev/shm", "/sys/class/net", "/tmp")
OURS = ("fabric-testbed", "vm_file", ".guest", "openvswitch", "mininet", "leaf", "spine", "h1-", "h2-")


@dataclass(frozen=True)
class Process:
    """A process of the machine that belongs to a run."""

    pid: int
    parent: int
    command: str


def processes(out: Path) -> list[Process]:
    """Everything that works in a run's folder: the guest's main process and its stubs, wherever their parents are."""
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            here = (directory / "cwd").readlink()
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if here == out and fields[0] != "Z":
            found.append(Process(pid=int(directory.name), parent=int(fields[1]), command=command))
    return found


def guest(run: Running) -> int:
    """The guest's main process: the one whose parent is not in the guest."""
    wait_for(lambda: any(each.parent == run.process.pid for each in processes(run.out)))
    return next(each.pid for each in processes(run.out) if each.parent == run.process.pid)


def stub(run: Running, which: Callable[[list[int]], int]) -> int:
    """One of the processes whose memory the guest's processes live in."""
    main = guest(run)
    wait_for(lambda: len(processes(run.out)) > 2)
    return which(sorted(each.pid for each in processes(run.out) if each.parent == main))


def host_side(run: Running) -> int:
    """The script that the user started."""
    return run.process.pid


def wait_for(condition: Callable[[], bool], limit_s: float = 60) -> None:
    """Fails the test when it does not come true in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


VICTIMS: dict[str, Callable[[Running], int]] = {
    "the script": host_side,
    "the guest": guest,
    "the guest's first process": lambda run: stub(run, min),
    "the guest's newest process": lambda run: stub(run, max),
}
MOMENTS = {
    "boot": None,
    "fabric": "fabric:",
    "controller": "controller:",
    "job": "probe:",
}
CASES = [
    ("the script", "boot", LONG),
    ("the guest", "fabric", LONG),
    ("the guest's first process", "controller", SHORT),
    ("the guest's newest process", "job", LONG),
    ("the script", "job", LONG),
]
"""The first process waits for the command: that it is gone is noticed when the command ends."""


def snapshot() -> dict[str, tuple[int, int]]:
    """Path -> (modified, size) of all below the watched folders."""
    found = {}
    for top in WATCHED:
        for folder, names, files in os.walk(top):
            for name in (*names, *files):
                status = os.lstat(f"{folder}/{name}")
                found[f"{folder}/{name}"] = (status.st_mtime_ns, status.st_size)
    return found


def leftovers() -> set[str]:
    """Names of our kind in the folders that everybody shares: state, shared memory, namespaces, interfaces."""
    return {
        str(path)
        for folder in SHARED
        if Path(folder).is_dir()
        for path in Path(folder).iterdir()
        if path.name.startswith(OURS)
    }


@pytest.fixture
def nothing_changes_outside() -> Iterator[None]:
    """Files of the machine, state folders, shared memory, namespaces and interfaces are afterwards as before."""
    files, names = snapshot(), leftovers()
    yield
    assert leftovers() - names == set()
    assert snapshot() == files


@pytest.mark.parametrize(("victim", "moment", "flow"), CASES, ids=[f"{who}, {when}" for who, when, _ in CASES])
@pytest.mark.usefixtures("nothing_changes_outside")
def test_a_killed_run_leaves_nothing_and_the_next_one_works(
    victim: str, moment: str, flow: str, run_experiment: RunExperiment, tmp_path: Path
) -> None:
    with started(FLOWS, "--set", flow, out=tmp_path / "killed") as run:
        text = MOMENTS[moment]
        if text is None:
            guest(run)
        else:
            run.wait_for(text)
        os.kill(VICTIMS[victim](run), signal.SIGKILL)
        code = run.end(NOTICED_S)
    assert code == (-signal.SIGKILL if victim == "the script" else 1), "".join(run.lines)
    wait_for(lambda: not processes(tmp_path / "killed"), limit_s=10)
    assert not (tmp_path / "killed" / "results.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["killed"]
    run_experiment(FLOWS, "--set", SHORT, out=tmp_path / "next").succeeded()
    assert not processes(tmp_path / "next")


@pytest.mark.usefixtures("nothing_changes_outside")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_run_that_is_asked_to_end_tidies_up(number: signal.Signals, guest_kernel: Path, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM: the guest is ended, the folder holds no exchange files."""
    with started(FLOWS, "--set", LONG, out=tmp_path / "out") as run:
        run.wait_for("fabric:")
        run.process.send_signal(number)
        assert run.end() in (130, 128 + number)
    assert not processes(tmp_path / "out")
    assert not (tmp_path / "out" / ".guest").exists()
    assert not (tmp_path / "out" / "results.json").exists()
