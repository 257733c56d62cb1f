"""What is taken for a dead run's, and what is left alone."""

import os
import subprocess
import sys
from pathlib import Path

from testbed import clean


def _dead_owner() -> tuple[int, int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = clean.start_time(process.pid)
    assert started is not None
    process.kill()
    process.wait()
    return process.pid, started


def _waiting(*, tag: str) -> "subprocess.Popen[bytes]":
    """A process that carries a run's tag."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        env={**os.environ, clean.TAG_VARIABLE: tag},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_a_living_run_is_left_alone(tmp_path: Path) -> None:
    directory = clean.claim("mine", tmp_path / "state")
    assert clean.clean(tmp_path / "state") == []
    assert directory.is_dir()
    clean.release(directory)
    assert not (tmp_path / "state").exists()


def test_a_dead_run_is_removed_with_its_processes(tmp_path: Path) -> None:
    pid, started = _dead_owner()
    directory = clean.claim("gone", tmp_path)
    (directory / "owner.json").write_text(f'{{"pid": {pid}, "started": {started}}}')
    stray, other = _waiting(tag="gone"), _waiting(tag="gone2")
    try:
        removed = clean.clean(tmp_path)
        assert removed == [f"process {stray.pid} of run gone", f"directory {directory} of run gone"]
        assert stray.wait(timeout=5) == -9
        assert other.poll() is None
    finally:
        for process in (stray, other):
            process.kill()
            process.communicate()


def test_a_pid_that_was_given_to_somebody_else_does_not_keep_a_run_alive() -> None:
    assert clean.Owner(pid=os.getpid(), started=clean.start_time(os.getpid()) or 0).alive()
    assert not clean.Owner(pid=os.getpid(), started=1).alive()


def test_a_run_that_was_killed_before_it_named_itself_is_removed(tmp_path: Path) -> None:
    (tmp_path / "nameless").mkdir()
    assert clean.clean(tmp_path) == [f"directory {tmp_path}/nameless of run nameless"]
