"""`run` under dash, with commands of our own in the place of dpkg, apt and sudo; and what it hands over to."""

import io
import os
import subprocess
import sys
from pathlib import Path
from platform import freedesktop_os_release

import pytest

from testbed.cache import cache_dir
from testbed.setup import virtual_environment
from testbed.setup.__main__ import main, needs_guest, program
from testbed.setup.progress import Progress
from testbed.setup.virtual_environment import CHECKOUT, VirtualEnvironment, key, ryu_requirement
from topologies.errors import RunFailed


class Stage:
    """A copy of `run` with a package list and a next step of our own, in a folder whose name has a space."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.bin, self.cache = folder / "my checkout", folder / "bin", folder / "my cache"
        setup = self.checkout / "testbed" / "setup"
        setup.mkdir(parents=True)
        self.bin.mkdir()
        (self.checkout / "testbed" / "__init__.py").touch()
        (setup / "__init__.py").touch()
        (setup / "packages.txt").write_text("# comment\nmake  # why\nflex\n")
        (setup / "packages.test.txt").write_text("browser  # why\n")
        (setup / "__main__.py").write_text("import sys; print('handed over', sys.argv[1:], sys.path[0])\n")
        run = (CHECKOUT / "run").read_text()
        (self.checkout / "run").write_text(run)
        self.fake("dpkg-query", 'cat "$FAKE_INSTALLED"')
        self.fake("id", 'echo "$FAKE_UID"')
        self.fake("apt-get", 'echo "apt-get $*" >> "$FAKE_LOG"; echo output; exit "${FAKE_APT_STATUS:-0}"')
        self.log = folder / "calls"
        self.log.touch()
        self.installed = folder / "installed"

    def fake(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def run(
        self, *arguments: str, installed: str, uid: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        self.installed.write_text(installed)
        for tool in (
            "dirname",
            "readlink",
            "mkdir",
            "tee",
            "date",
            "sleep",
            "tail",
            "sed",
            "env",
            "cat",
            "getent",
            "cut",
        ):
            if not (self.bin / tool).exists():
                (self.bin / tool).symlink_to(f"/usr/bin/{tool}")
        fakes = {"FAKE_INSTALLED": str(self.installed), "FAKE_UID": str(uid), "FAKE_LOG": str(self.log)}
        variables = {"PATH": str(self.bin), "FABRIC_TESTBED_CACHE": str(self.cache), **fakes, **environment}
        return subprocess.run(
            ["/bin/dash", str(self.checkout / "run"), *arguments],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            timeout=60,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


ALL = "installed:make installed:flex "


def test_a_complete_machine_is_handed_over_at_once(stage: Stage) -> None:
    done = stage.run("test", "-k", "a b", installed=ALL + "installed:browser ")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"handed over ['test', '-k', 'a b'] {stage.checkout}\n"
    assert stage.log.read_text() == ""


@pytest.mark.skipif(freedesktop_os_release()["ID"] != "debian", reason="elsewhere the browser is not a package")
def test_tests_alone_install_a_browser(stage: Stage) -> None:
    assert stage.run("demo", installed=ALL).returncode == 0
    assert stage.log.read_text() == ""
    assert stage.run("test", installed=ALL).returncode == 0
    assert stage.log.read_text().endswith("apt-get install -y --no-install-recommends browser\n")


def test_root_installs_what_is_missing_and_only_that(stage: Stage) -> None:
    done = stage.run("list", installed="installed:make config-files:flex ")
    assert done.returncode == 0, done.stderr
    assert stage.log.read_text() == "apt-get update\napt-get install -y --no-install-recommends flex\n"
    assert "installing packages: flex" in done.stderr
    log = (stage.cache / "setup.log").read_text()
    assert "installing packages: flex" in log
    assert "output" in log


def test_a_user_installs_by_sudo(stage: Stage) -> None:
    stage.fake("sudo", 'echo "sudo $1" >> "$FAKE_LOG"; [ "$1" = -n ] || exec "$@"')
    done = stage.run(installed="installed:make ", uid=1000)
    assert done.returncode == 0, done.stderr
    assert stage.log.read_text().splitlines()[:3] == ["sudo -n", "sudo apt-get", "apt-get update"]


@pytest.mark.parametrize("sudo", [None, "exit 1"])
def test_a_user_who_may_not_is_told_the_packages_and_the_command(stage: Stage, sudo: str | None) -> None:
    if sudo:
        stage.fake("sudo", sudo)
    done = stage.run(installed="installed:make ", uid=1000)
    assert done.returncode == 3
    assert "missing: flex" in done.stderr
    assert "apt-get install -y --no-install-recommends flex" in done.stderr
    assert stage.log.read_text() == ""


def test_a_failing_apt_ends_it_with_its_output(stage: Stage) -> None:
    done = stage.run(installed="", FAKE_APT_STATUS="100")
    assert done.returncode == 1
    assert "apt-get update failed" in done.stderr
    assert "output" in done.stderr
    assert done.stdout == ""


def test_another_system_is_told_what_to_install(stage: Stage) -> None:
    (stage.bin / "dpkg-query").unlink()
    done = stage.run(installed="")
    assert done.returncode == 3
    assert "packages.txt" in done.stderr


def test_a_cache_that_cannot_be_made_is_named(stage: Stage) -> None:
    done = stage.run(installed=ALL, FABRIC_TESTBED_CACHE="/proc/nowhere")
    assert done.returncode == 3
    assert "FABRIC_TESTBED_CACHE" in done.stderr


def test_the_cache_follows_the_environment_even_without_a_home() -> None:
    assert cache_dir({"FABRIC_TESTBED_CACHE": "/c", "HOME": "/h"}) == Path("/c")
    assert cache_dir({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/fabric-testbed")
    assert cache_dir({"HOME": "/h"}) == Path("/h/.cache/fabric-testbed")
    assert cache_dir({}).name == "fabric-testbed"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["test", "-x"], ["py", "-P", "-m", "testbed.setup.checks", "-x"]),
        (["doctor"], ["py", "-P", "-m", "experiments", "doctor"]),
        ([], ["py", "-P", "-m", "experiments", "--help"]),
        (["experiments/x.py", "--seed", "1"], ["py", "/checkout/experiments/x.py", "--seed", "1"]),
    ],
)
def test_who_handles_what(arguments: list[str], expected: list[str]) -> None:
    assert program("py", arguments, Path("/checkout")) == expected


def test_what_run_set_for_our_own_python_is_not_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ryu's build imports itself from the folder it is in, which PYTHONSAFEPATH forbids."""
    seen: list[dict[str, str]] = []
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("FABRIC_TESTBED_CACHE", str(tmp_path))
    monkeypatch.setattr(VirtualEnvironment, "ensure", lambda *_: seen.append(dict(os.environ)))
    monkeypatch.setattr(os, "execve", lambda _path, _arguments, environment: seen.append(environment))
    main(["list"])
    building, running = seen
    assert not {"PYTHONSAFEPATH", "PYTHONPATH"} & building.keys()
    assert "PYTHONSAFEPATH" not in running
    assert running["PYTHONPATH"] == str(CHECKOUT)


def test_a_script_is_looked_for_where_the_user_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert program("py", ["mine.py"], Path("/checkout")) == ["py", "mine.py"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["demo"], True), (["setup"], True), (["test"], True), (["e.py"], True), (["e.py", "--help"], False)]
    + [([command], False) for command in ("doctor", "list", "topology", "--help")]
    + [([], False)],
)
def test_only_what_may_boot_a_guest_waits_for_its_kernel(arguments: list[str], expected: bool) -> None:
    assert needs_guest(arguments) is expected


def test_ryu_is_built_where_python_still_can() -> None:
    requirements = (CHECKOUT / "requirements.txt").read_text()
    assert ryu_requirement(requirements, (3, 11)) == "ryu==4.34"
    assert ryu_requirement(requirements, (3, 12)) is None
    assert ryu_requirement("torch==1\n", (3, 11)) is None


def test_other_pins_or_another_python_are_another_environment() -> None:
    assert key("a", "3.11") == key("a", "3.11")
    assert len({key("a", "3.11"), key("b", "3.11"), key("a", "3.12")}) == 3


def test_an_interrupted_environment_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n")
    environment = virtual_environment.VirtualEnvironment(tmp_path / "cache", requirements)
    (environment.path / "bin").mkdir(parents=True)
    (environment.path / "left-over").touch()
    commands: list[str] = []

    def interrupted(_: Progress, what: str, *__: object, **___: object) -> int:
        commands.append(what)
        environment.path.mkdir(exist_ok=True)
        if len(commands) == 2:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(Progress, "command", interrupted)
    progress = Progress(tmp_path / "log", io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        environment.ensure(progress)
    assert not is_whole(environment)
    assert not (environment.path / "left-over").exists()
    environment.ensure(progress)
    assert is_whole(environment)
    assert len(commands) == 4
    environment.ensure(progress)
    assert len(commands) == 4


def test_progress_tells_the_log_everything_and_a_failure_its_end(tmp_path: Path) -> None:
    screen = io.StringIO()
    progress = Progress(tmp_path / "logs" / "log", screen)
    progress.command("counting", [sys.executable, "-c", "print('one'); print('two')"], environment=os.environ)
    assert screen.getvalue() == "  counting: 0 s\n"
    assert "one\ntwo\n" in progress.log.read_text()
    with pytest.raises(RunFailed, match=r"counting failed(.|\n)*the reason"):
        progress.command("counting", [sys.executable, "-c", "import sys; sys.exit('the reason')"])
    assert progress.command("counting", ["false"], check=False) == 1


def is_whole(environment: virtual_environment.VirtualEnvironment) -> bool:
    return environment.is_whole
