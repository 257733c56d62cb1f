"""Find and unpack the newest Linux source that the machine's distribution packages, without touching the machine's apt.

Debian packages each release's kernel as `linux-source-X.Y`, and newer ones in its backports.  A private apt (own lists,
own cache, the machine's mirror, keys and proxies) looks there; it needs no root and changes nothing.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.setup.apt_sources import Source
from testbed.setup.progress import Progress
from topologies.errors import MissingFeature, RunFailed

_DEBIAN_BACKPORTS = {
    "bookworm": ("bookworm-backports", "trixie-backports"),
    "trixie": ("trixie-backports",),
}


@dataclass(frozen=True, kw_only=True)
class LinuxSource:
    """One package with a kernel's source: `linux-source-7.3`, `7.3.4-1~bpo13+1`."""

    package: str
    package_version: str

    @property
    def release(self) -> tuple[int, ...]:
        """(7, 3): the kernel's release, from the package's name."""
        return tuple(int(part) for part in self.package.removeprefix("linux-source-").split("."))

    @property
    def version(self) -> str:
        """'7.3.4-1~bpo13+1' with the characters that a directory's name may hold."""
        return re.sub(r"[^0-9A-Za-z.+~-]", "_", self.package_version)


def candidates(madison: str) -> list[LinuxSource]:
    """What `apt-cache madison` lists, newest kernel first and of each package its newest version."""
    found: dict[str, LinuxSource] = {}
    for line in madison.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 3 and re.fullmatch(r"linux-source-\d+(\.\d+)+", columns[0]):
            found.setdefault(columns[0], LinuxSource(package=columns[0], package_version=columns[1]))
    return sorted(found.values(), key=lambda source: source.release, reverse=True)


def wanted_sources(sources: Iterable[Source], *, distribution: str, codename: str) -> list[Source]:
    """The suites to look into: the machine's own archive, and on Debian the backports on the same mirror."""
    own = [source for source in sources if any(suite.split("-")[0] == codename for suite in source.suites)]
    main = next((source for source in own if source.offers(codename)), None)
    if main is None:
        raise MissingFeature(
            f"apt on this machine has no source for {distribution} {codename} with the component main",
            "add one to /etc/apt/sources.list.d, or set FABRIC_TESTBED_KERNEL to a guest kernel of your own",
        )
    if distribution != "debian":
        return own
    return [*own, *(main.with_suites((suite,)) for suite in _DEBIAN_BACKPORTS.get(codename, ()))]


class PrivateApt:
    """An apt of our own in `directory`: the machine's configuration, but other sources, lists and cache."""

    def __init__(self, directory: Path, sources: Sequence[Source], progress: Progress) -> None:
        """Writes the configuration; nothing is fetched yet."""
        self._directory, self._progress = directory, progress
        for part in ("lists/partial", "archives/partial"):
            (directory / part).mkdir(parents=True)
        (directory / "sources.sources").write_text("\n".join(source.stanza() for source in sources), encoding="utf-8")
        configuration = {
            "Dir::State": directory,
            "Dir::State::lists": directory / "lists",
            "Dir::State::status": "/var/lib/dpkg/status",
            "Dir::Cache": directory,
            "Dir::Cache::archives": directory / "archives",
            "Dir::Etc::sourcelist": directory / "sources.sources",
            "Dir::Etc::sourceparts": "-",
            "Acquire::Languages": "none",
        }
        if os.geteuid() == 0:
            configuration["APT::Sandbox::User"] = "root"  # the download user may not enter our folder
        lines = [f'{name} "{value}";\n' for name, value in configuration.items()]
        (directory / "apt.conf").write_text("".join(lines), encoding="utf-8")
        self._environment = {**os.environ, "APT_CONFIG": str(directory / "apt.conf"), "LC_ALL": "C"}

    def linux_sources(self) -> list[LinuxSource]:
        """Fetch the lists and say which kernels there are, newest first.  A suite that cannot be had is only logged."""
        self._progress.command(
            "looking for the newest Linux source", ["apt-get", "update"], environment=self._environment, check=False
        )
        names = self._cache("pkgnames", "linux-source-").split()
        return candidates(self._cache("madison", *sorted(names))) if names else []

    def _cache(self, *arguments: str) -> str:
        completed = subprocess.run(
            ["apt-cache", *arguments], env=self._environment, capture_output=True, text=True, check=False
        )
        if completed.returncode != 0:
            raise RunFailed(f"apt-cache {arguments[0]} failed: {completed.stderr.strip()}")
        return completed.stdout

    def unpack(self, source: LinuxSource, tree: Path) -> None:
        """Download the package and unpack the kernel's source into `tree`."""
        self._progress.command(
            f"downloading {source.package} {source.package_version}",
            ["apt-get", "download", f"{source.package}={source.package_version}"],
            environment=self._environment,
            directory=self._directory,
        )
        (archive,) = self._directory.glob(f"{source.package}_*.deb")
        package = self._directory / "package"
        self._progress.command("unpacking the package", ["dpkg-deb", "-x", str(archive), str(package)])
        archive.unlink()
        tarball = next(package.glob(f"usr/src/**/{source.package}.tar.*"))
        tree.mkdir()
        self._progress.command(
            "unpacking the source",
            ["tar", "-x", "-f", str(tarball), "-C", str(tree), "--strip-components=1"],
            environment={**os.environ, "XZ_OPT": "-T0"},
        )
        shutil.rmtree(package)
