"""Booting, with a shell script in the place of the kernel: what the host's side does when a guest misbehaves.

The script's words stand for the guest's; it finds the exchange folder where the guest's init does.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.guest import process
from testbed.guest.machine import Boot, boot
from testbed.guest.places import CHECKOUT, in_guest
from topologies.errors import RunFailed, UserError


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "a run, with spaces"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable whose body tests write with `says`; the cache is the test's own."""
    file = tmp_path / "kernel"
    monkeypatch.setenv("FABRIC_TESTBED_KERNEL", str(file))
    monkeypatch.setenv("FABRIC_TESTBED_CACHE", str(tmp_path / "cache"))
    return file


def says(kernel: Path, body: str) -> None:
    kernel.write_text(f"#!/bin/sh\n{body}\n")
    kernel.chmod(0o755)


def test_exit_code_lines_and_log(kernel: Path, run_dir: Path) -> None:
    says(kernel, 'printf "one\\r\\ntwo\\nreboot: Power down\\nthree"; echo 7 > .guest/exit')
    lines: list[str] = []
    assert boot(Boot(command=("true",), run_dir=run_dir), lines.append) == 7
    assert lines == ["one", "two", "three"]
    assert (run_dir / "log.txt").read_text() == "one\ntwo\nthree\n"
    assert sorted(path.name for path in run_dir.iterdir()) == ["log.txt"]


def test_the_command_reaches_the_guest_with_a_fixed_environment(
    kernel: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/secret")
    says(kernel, "sed 's,^cd .*,:,' .guest/command | sh; echo $? > .guest/exit; env; cat .guest/command")
    lines: list[str] = []
    script = 'echo "$0|$1|$2"; env; exit 3'
    command = ("sh", "-c", script, "a b", "it's", f"{CHECKOUT}/experiments/x.py")
    assert boot(Boot(command=command, run_dir=run_dir), lines.append) == 3
    assert "a b|it's|/testbed/checkout/experiments/x.py" in lines
    assert {"PYTHONHASHSEED=0", "HOME=/run/root", "PYTHONPATH=/testbed/checkout", "cd /testbed/checkout"} <= set(lines)
    assert not [line for line in lines if "SSH" in line]


def test_the_guest_names_the_project_s_folders_alike_everywhere(kernel: Path, run_dir: Path) -> None:
    says(kernel, "cd .guest/places; for each in *; do echo $each $(cat $each); done; echo 0 > ../exit")
    lines: list[str] = []
    boot(Boot(command=("true",), run_dir=run_dir), lines.append)
    cache = kernel.parent / "cache"
    assert {f"checkout {CHECKOUT}", f"cache {cache}"} <= set(lines)
    assert in_guest(f"{cache}/bpf-1/selector.o") == "/testbed/cache/bpf-1/selector.o"
    assert in_guest(sys.executable) == "/testbed/python/bin/python"
    assert in_guest(f"{CHECKOUT}-2/x") == f"{CHECKOUT}-2/x"


def test_the_kernel_gets_no_path_and_the_seed(kernel: Path, run_dir: Path) -> None:
    says(kernel, 'echo "$*"; echo 0 > .guest/exit')
    lines: list[str] = []
    boot(Boot(command=("true",), run_dir=run_dir, seed=42, memory="512MiB"), lines.append)
    boot(Boot(command=("true",), run_dir=run_dir, time_travel=False), lines.append)
    assert str(run_dir) not in lines[0]
    assert {"mem=536870912", "rng-seed=42", "time-travel=inf-cpu", "ipv6.disable=1"} <= set(lines[0].split())
    assert "time-travel" not in lines[1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo Kernel panic - not syncing: out of luck; echo 0 > .guest/exit", "reported a fault.*\n.*out of luck"),
        ("echo working; kill -9 $$", "killed by signal 9 before its command had ended; its last lines:\n    working"),
        ("exit 1", "halted with status 1 before its command had ended; it said nothing"),
        ("echo > .guest/exit", "before its command had ended"),
    ],
)
def test_a_guest_that_ends_badly_is_a_failed_run(kernel: Path, run_dir: Path, body: str, message: str) -> None:
    says(kernel, body)
    with pytest.raises(RunFailed, match=message):
        boot(Boot(command=("true",), run_dir=run_dir))
    assert not (run_dir / ".guest").exists()


def test_a_silent_guest_is_stuck_and_ended(kernel: Path, run_dir: Path) -> None:
    says(kernel, "echo $$ > pid; echo begun; sleep 1000")
    with pytest.raises(RunFailed, match=r"stuck.*\n    begun"):
        boot(Boot(command=("true",), run_dir=run_dir, stall_s=0.6))
    assert not is_alive(int((run_dir / "pid").read_text()))


def test_a_guest_that_talks_for_too_long_is_ended(kernel: Path, run_dir: Path) -> None:
    says(kernel, "while :; do echo tick; sleep 0.1; done")
    with pytest.raises(RunFailed, match=r"longer than 0\.5 s of wall time"):
        boot(Boot(command=("true",), run_dir=run_dir, wall_limit_s=0.5))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_guest_ends_with_its_host(kernel: Path, run_dir: Path, number: signal.Signals) -> None:
    says(kernel, "echo $$ > pid; exec sleep 1000")
    program = "import sys; from pathlib import Path; from testbed.guest.machine import *; "
    program += "boot(Boot(command=('true',), run_dir=Path(sys.argv[1])))"
    host = subprocess.Popen(
        [sys.executable, "-c", program, str(run_dir)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stderr=subprocess.DEVNULL,
    )
    pid = int(wait_for_text(run_dir / "pid"))
    host.send_signal(number)
    assert host.wait(timeout=20) != 0
    deadline_s = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_alive(pid)
    assert (number == signal.SIGKILL) == (run_dir / ".guest").exists()


def test_what_a_killed_host_left_does_not_matter(kernel: Path, run_dir: Path) -> None:
    (run_dir / ".guest").mkdir(parents=True)
    (run_dir / ".guest" / "exit").write_text("0\n")
    says(kernel, "exit 0")
    with pytest.raises(RunFailed, match="before its command had ended"):
        boot(Boot(command=("true",), run_dir=run_dir))


def test_too_little_memory_is_the_users_mistake(kernel: Path, run_dir: Path) -> None:
    says(kernel, "exit 0")
    with pytest.raises(UserError, match="100M"):
        boot(Boot(command=("true",), run_dir=run_dir, memory="100M"))


def test_an_override_that_is_no_program_is_named(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_TESTBED_KERNEL", str(run_dir))
    with pytest.raises(UserError, match="not an executable file"):
        boot(Boot(command=("true",), run_dir=run_dir))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_text(file: Path) -> str:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        if file.exists() and (text := file.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{file} never came")


def test_a_guest_that_has_ended_is_not_killed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its process number may have been given to somebody else."""
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("killed a stranger"))
    with process.started(["true"], cpu=min(os.sched_getaffinity(0)), directory=tmp_path, environment={}) as ended:
        ended.wait()
