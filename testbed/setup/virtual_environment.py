"""The virtual environment: everything that requirements.txt pins, made once per machine and per change of the pins.

A virtual environment cannot be moved, so it is built where it stays; a file written last says that it is whole.
"""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

from testbed.setup.lock import exclusive
from testbed.setup.progress import Progress
from topologies.errors import MissingFeature

CHECKOUT = Path(__file__).resolve().parents[2]
OLDEST_PYTHON = (3, 11)
_OLD_SETUPTOOLS = "setuptools<67"
"""Ryu 4.34's build calls a function that newer ones dropped, while torch wants one of 77 or later: hence two steps."""
_RECIPE = 1
_WHOLE = "whole"


def ryu_requirement(requirements: str, python: tuple[int, ...]) -> str | None:
    """The pinned Ryu where it can be built: its build needs distutils, which Python 3.12 removed."""
    match = re.search(r"^(ryu==\S+?)\s*(?:;.*)?$", requirements, flags=re.MULTILINE)
    return match[1] if match and python < (3, 12) else None


def key(requirements: str, python: str) -> str:
    """What distinguishes one environment from another: the pins, the interpreter and how it is made."""
    return hashlib.sha256(f"{_RECIPE}\n{python}\n{requirements}".encode()).hexdigest()[:12]


class VirtualEnvironment:
    """The environment of this checkout's pins, in the cache."""

    def __init__(self, cache: Path, requirements: Path = CHECKOUT / "requirements.txt") -> None:
        """Looks at nothing but the pins."""
        self._requirements = requirements
        self._cache = cache
        self.path = cache / f"venv-{key(requirements.read_text(encoding='utf-8'), sys.version)}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    @property
    def is_whole(self) -> bool:
        """Whether it was built to the end."""
        return (self.path / _WHOLE).exists()

    def ensure(self, progress: Progress) -> None:
        """Build it unless it is whole.  Raises MissingFeature for an old Python, RunFailed when pip fails."""
        if self.is_whole:
            return
        if sys.version_info < OLDEST_PYTHON:
            raise MissingFeature(
                f"{sys.executable} is Python {sys.version.split()[0]}, and 3.11 is the oldest that will do",
                "use Debian 12 or later, or Ubuntu 24.04 or later",
            )
        with exclusive(self._cache / "venv.lock", progress):
            if not self.is_whole:
                self._build(progress)

    def _build(self, progress: Progress) -> None:
        progress.say(f"making the virtual environment {self.path}")
        shutil.rmtree(self.path, ignore_errors=True)
        progress.command("creating it", [sys.executable, "-m", "venv", str(self.path)])
        ryu = ryu_requirement(self._requirements.read_text(encoding="utf-8"), sys.version_info[:2])
        if ryu is None:
            progress.say(
                f"  Ryu needs Python 3.11 to build; on {sys.version.split()[0]} the controller runs under OS-Ken only"
            )
        else:
            self._install_ryu(ryu, progress)
        self._pip("installing what requirements.txt pins", ["-r", str(self._requirements)], progress, os.environ)
        (self.path / _WHOLE).touch()

    def _install_ryu(self, requirement: str, progress: Progress) -> None:
        constraint = self.path / "build-constraint.txt"
        constraint.write_text(f"{_OLD_SETUPTOOLS}\n", encoding="utf-8")
        environment = {**os.environ, "PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
        self._pip(f"building {requirement}", ["--no-deps", requirement], progress, environment)

    def _pip(
        self, what: str, arguments: list[str], progress: Progress, environment: "os._Environ[str] | dict[str, str]"
    ) -> None:
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
        progress.command(what, [*command, *arguments], environment=environment)
