"""The guest as a machine of its own: its clock, its root, its limits, and that nothing of it outlives or leaves it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.guest.machine import CLOCK_START_NS, Boot, boot
from testbed.guest.places import CHECKOUT
from topologies.errors import RunFailed

Guest = Callable[..., list[str]]


@pytest.fixture
def run_dir(guest_kernel: Path, tmp_path: Path) -> Path:
    return tmp_path / "a run, 'quoted'"


@pytest.fixture
def guest(run_dir: Path) -> Guest:
    """`guest("a shell script", seed=2)`: its lines; the script must succeed."""

    def run(script: str, **settings: object) -> list[str]:
        lines: list[str] = []
        request = Boot(command=("sh", "-ec", script), run_dir=run_dir, **settings)  # type: ignore[arg-type]
        assert boot(request, lines.append) == 0, lines
        return lines

    return run


def test_sleeping_costs_virtual_time_to_the_nanosecond_and_no_wall_time(guest: Guest) -> None:
    start_s = time.monotonic()
    program = """
import time
a = time.monotonic_ns(); time.sleep(3600); b = time.monotonic_ns()
print(b - a, time.time_ns())
"""
    slept_ns, now_ns = map(int, guest(f"exec '{sys.executable}' -c '{program}'")[-1].split())
    assert 0 <= slept_ns - 3600 * 10**9 <= 60_000  # the default timer slack is 50 us
    assert 3600 * 10**9 <= now_ns - CLOCK_START_NS <= 3601 * 10**9
    assert time.monotonic() - start_s < 30


def test_without_time_travel_time_is_the_machines_own(guest: Guest) -> None:
    start_s = time.monotonic()
    (date_s,) = guest("sleep 1; date +%s", time_travel=False)
    assert time.monotonic() - start_s >= 1
    assert abs(int(date_s) - time.time()) < 30


def test_it_is_root_in_the_checkout_with_nothing_of_the_callers(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    lines = guest("id -u; pwd; env; cat /proc/sys/kernel/hostname; ip -br link show lo; cat /proc/cmdline")
    assert lines[:2] == ["0", "/testbed/checkout"]
    assert not [line for line in lines if "SSH" in line or "de_DE" in line or "run, " in line]
    assert "testbed" in lines
    assert [line for line in lines if line.startswith("lo") and "LOOPBACK,UP" in line]


def test_the_run_folder_is_writable_and_the_machine_is_not(guest: Guest, run_dir: Path, tmp_path: Path) -> None:
    victim = tmp_path / "machine" / "file"
    victim.parent.mkdir()
    victim.write_text("the machine's\n")
    guest(
        f"""
        echo changed > '{victim}'; grep -q changed '{victim}'
        echo new > '{victim.parent}/new'; rm -r /etc/apt; echo x >> /etc/passwd; mkdir /etc/of-the-guest
        mkdir /out/sub; echo result > '/out/sub/of the run'
        """
    )
    assert victim.read_text() == "the machine's\n"
    assert list(victim.parent.iterdir()) == [victim]
    assert Path("/etc/apt").is_dir()
    assert not Path("/etc/of-the-guest").exists()
    assert (run_dir / "sub" / "of the run").read_text() == "result\n"
    assert {path.name for path in run_dir.iterdir()} == {"sub", "log.txt"}


def test_the_exit_code_comes_through(run_dir: Path) -> None:
    assert boot(Boot(command=("sh", "-c", "exit 42"), run_dir=run_dir)) == 42
    assert boot(Boot(command=("no-such-program",), run_dir=run_dir)) == 127


def test_its_entropy_is_the_seeds(guest: Guest) -> None:
    script = "head -c 32 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid; echo $$"
    first, again, other = guest(script, seed=7), guest(script, seed=7), guest(script, seed=8)
    assert first == again
    assert first[0] != other[0]


def test_a_kernel_panic_is_a_failed_run(
    guest_kernel: Path, tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_init = tmp_path / "kernel"
    without_init.write_text(f"#!/bin/sh\nexec '{guest_kernel}' \"$@\" init=/no/such/program\n")
    without_init.chmod(0o755)
    monkeypatch.setenv("FABRIC_TESTBED_KERNEL", str(without_init))
    with pytest.raises(RunFailed, match=r"kernel reported a fault(.|\n)*panic(.|\n)*/no/such/program"):
        boot(Boot(command=("true",), run_dir=run_dir))


def test_a_command_that_wants_more_memory_than_there_is_is_killed_and_the_console_says_so(run_dir: Path) -> None:
    lines: list[str] = []
    hungry = ("perl", "-e", 'push @all, "x" x 10_000_000 while 1')
    assert boot(Boot(command=hungry, run_dir=run_dir, memory="512M"), lines.append) == 137
    assert any("Out of memory: Killed process" in line for line in lines)


def test_a_process_may_fill_more_memory_backwards_than_the_machine_has_mappings_for(run_dir: Path) -> None:
    """The smallest failing input: each page is a mapping of its own there, of which Linux allows 65,530."""
    pages = 70_000
    program = f"""
import mmap
memory = mmap.mmap(-1, {pages} * 4096)
for page in reversed(range({pages})):
    memory[4096 * page] = page % 251
for again in range(2):
    assert all(memory[4096 * page] == page % 251 for page in range({pages}))
print("as written")
"""
    lines: list[str] = []
    assert boot(Boot(command=("python3", "-c", program), run_dir=run_dir, memory="1G"), lines.append) == 0
    assert lines == ["as written"]


def test_a_loop_that_never_lets_time_move_is_stuck(run_dir: Path) -> None:
    script = "sleep 5; echo looping; while :; do :; done"
    with pytest.raises(RunFailed, match=r"stuck at 5\.\d+ s of virtual time(.|\n)*looping"):
        boot(Boot(command=("sh", "-c", script), run_dir=run_dir, stall_s=2))


def test_work_that_moves_only_virtual_time_is_not_stuck(guest: Guest) -> None:
    assert guest("for i in $(seq 300); do sleep 1; done; echo done", stall_s=0.7) == ["done"]


def test_a_terminal_typed_into_by_a_pipe(run_dir: Path) -> None:
    program = "import sys; from pathlib import Path; from testbed.guest.machine import *; "
    program += "sys.exit(boot(Boot(command=('sh',), run_dir=Path(sys.argv[1]), interactive=True)))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(run_dir)],
        input="echo sum $((40 + 2)); tty; exit 5\n",
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "sum 42" in done.stdout
    assert "/dev/tty0" in (run_dir / "log.txt").read_text()


@pytest.fixture
def host(run_dir: Path) -> Callable[[], subprocess.Popen[bytes]]:
    """Starts a process that boots a guest which never ends, and waits until that is up."""

    def start() -> subprocess.Popen[bytes]:
        program = "import sys; from pathlib import Path; from testbed.guest.machine import *; "
        program += (
            "boot(Boot(command=('sh', '-c', 'echo > /out/up; while :; do sh -c :; done'), run_dir=Path(sys.argv[1])))"
        )
        (run_dir / "up").unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(run_dir)],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stderr=subprocess.DEVNULL,
        )
        wait_until((run_dir / "up").exists)
        return process

    return start


def processes_in(folder: Path) -> set[int]:
    """Those of this machine that work in `folder`, as a guest and its stubs do, and are no zombies."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve(strict=True) == folder.resolve():
                found.add(int(process.name))
        except OSError:
            continue
    return found


def traces() -> set[str]:
    """What User-Mode Linux is known to leave on a machine."""
    patterns = ("/tmp/vm_file-*", "/dev/shm/vm_file-*", "/tmp/uml*", str(Path.home() / ".uml" / "*"))
    return {str(path) for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))}


@pytest.mark.parametrize("victim", ["host", "guest"])
def test_kill_9_of_either_side_leaves_nothing_and_the_next_guest_boots(
    host: Callable[[], subprocess.Popen[bytes]], run_dir: Path, guest: Guest, victim: str
) -> None:
    before = traces()
    for _ in range(5):
        process = host()
        assert processes_in(run_dir)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(process.pid if victim == "host" else int(children[0]), signal.SIGKILL)
        assert process.wait(timeout=20) != 0
        wait_until(lambda: not processes_in(run_dir))
        assert traces() == before
    assert guest("echo well") == ["well"]


def wait_until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
