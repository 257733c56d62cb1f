"""Once set up, the virtual clock needs no root: `run` as a user who owns nothing but a home, in folders with spaces."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.guest.places import CHECKOUT
from testbed.setup.virtual_environment import VirtualEnvironment
from tests.guest.conftest import RunExperiment

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="we are an ordinary user: every other test shows it")


class User:
    """A user with a home of its own, who sees this checkout, environment and kernel read only at paths of theirs."""

    def __init__(self, home: Path, kernel: Path) -> None:
        self.home, self.cache, self.checkout = home, home / "a cache", home / "the checkout"
        self._environment, self._kernel = home / "environment", home / "kernel"
        self._mounts = {CHECKOUT: self.checkout, Path(sys.prefix): self._environment, kernel.parent: self._kernel}
        self._variables = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "FABRIC_TESTBED_CACHE": str(self.cache),
            "FABRIC_TESTBED_KERNEL": str(self._kernel / kernel.name),
        }
        for folder in (*self._mounts.values(), self.cache):
            folder.mkdir()
        self._lend_environment()
        for folder in (home, self.cache):
            os.chown(folder, NOBODY, NOBODY)

    def _lend_environment(self) -> None:
        """What `run` finds in the user's cache is whole, and its Python is the one that runs us."""
        lent = VirtualEnvironment(self.cache)
        lent.python.parent.mkdir(parents=True)
        python = self._environment / "bin" / "python"
        lent.python.write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
        lent.python.chmod(0o755)
        (lent.path / "whole").touch()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`./run ARGUMENTS` in the user's checkout, without capabilities, groups, HOME or a terminal."""
        mounts = [shlex.join(["mount", "--bind", str(ours), str(theirs)]) for ours, theirs in self._mounts.items()]
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
        command = ["env", "-i", *(f"{name}={value}" for name, value in self._variables.items()), "./run", *arguments]
        steps = [*mounts, shlex.join(["cd", str(self.checkout)]), f"exec {shlex.join([*become, *command])}"]
        return subprocess.run(
            ["unshare", "--mount", "--propagation=private", "sh", "-ec", "\n".join(steps)],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )


@pytest.fixture
def user(guest_kernel: Path) -> Iterator[User]:
    """In a folder that everybody may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="ordinary user ") as folder:
        Path(folder).chmod(0o755)
        yield User(Path(folder), guest_kernel)


def test_an_all_reduce_and_its_results_are_anybody_s(user: User, run_experiment: RunExperiment) -> None:
    """Another user, another checkout, environment and cache, another length of every path: the same run to the byte.

    The demo's sixteen hosts, because smaller fabrics forgave a path's length and this one did not.
    """
    out = user.home / "a run"
    done = user.run("experiments/all_reduce.py", "--set", "sizes=1M", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "results.json").stat().st_uid == NOBODY
    ours = run_experiment("all_reduce", "--set", "sizes=1M").succeeded()
    assert (out / "results.json").read_bytes() == ours.folder.results.read_bytes()
