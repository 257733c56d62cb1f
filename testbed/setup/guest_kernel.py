"""Build the guest kernel: source, edits, our own code, configuration, `make ARCH=um`; in place only when whole."""

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testbed.guest import kernel, kernel_additions, kernel_edits
from testbed.setup.apt_sources import Source, machine_sources
from testbed.setup.linux_source import LinuxSource, PrivateApt, wanted_sources
from testbed.setup.lock import exclusive
from testbed.setup.progress import Progress
from topologies.errors import MissingFeature, RunFailed

_SPACE_BYTES = 4 * 10**9
_KEPT_SYMBOL = "time_travel_time"
"""The virtual clock, which testbed/guest/virtual_clock.py reads from outside."""
_OWN_KERNEL = f"set {kernel.OVERRIDE} to the path of a guest kernel of your own"


def ensure(cache: Path, progress: Progress) -> None:
    """Build this checkout's kernel unless it is there.  Raises MissingFeature, RunFailed."""
    if os.environ.get(kernel.OVERRIDE) or kernel.built(cache):
        return
    with exclusive(cache / "kernel.lock", progress):
        if kernel.built(cache):
            return
        for left in cache.glob("building-*"):  # by builders that were killed: whoever holds the lock builds alone
            shutil.rmtree(left, ignore_errors=True)
        if shutil.disk_usage(cache).free < _SPACE_BYTES:
            raise MissingFeature(
                f"{cache} has less than {_SPACE_BYTES // 10**9} GB free, which building the guest kernel takes",
                "free some, or set FABRIC_TESTBED_CACHE to a folder on a larger disk",
            )
        with (
            tempfile.TemporaryDirectory(prefix="building-", dir=cache) as directory,
            tempfile.TemporaryDirectory(prefix="building-", dir=tree_folder(cache)) as folder,
        ):
            _build(Path(directory), Path(folder) / "linux", cache, progress)


def tree_folder(cache: Path) -> Path:
    """Where the source is unpacked: the cache, unless make would stumble over its path."""
    return Path("/var/tmp") if re.search(r"[\s:]", str(cache)) else cache


def _build(directory: Path, tree: Path, cache: Path, progress: Progress) -> None:
    key = kernel.key()  # now: an edit of ours during the build does not make this the edited kernel
    progress.say("building the guest kernel (once; it takes about four minutes on two cores)")
    apt = PrivateApt(directory / "apt", _sources(), progress)
    source = _edited_source(apt, tree, progress)
    options = kernel.config_options()
    _configure(tree, options, progress)
    make = ["make", f"-j{len(os.sched_getaffinity(0))}", "ARCH=um"]
    progress.command(f"compiling Linux {source.version}", [*make, "linux"], environment=_environment(), directory=tree)
    whole = directory / "whole"
    whole.mkdir()
    progress.command(
        "stripping it", ["strip", "-s", f"-K{_KEPT_SYMBOL}", "-o", str(whole / "linux"), str(tree / "linux")]
    )
    shutil.copy(tree / ".config", whole / "config")
    (whole / "manifest.json").write_text(json.dumps(_manifest(source, key), indent=2) + "\n", encoding="utf-8")
    whole.rename(cache / f"kernel-{source.version}-{key}")


def _manifest(source: LinuxSource, key: str) -> dict[str, str]:
    return {"package": source.package, "version": source.package_version, "key": key}


def _environment() -> dict[str, str]:
    """The same stamp in every build, and none of the user's variables that make or the compiler would heed."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
        "KBUILD_BUILD_USER": "fabric",
        "KBUILD_BUILD_HOST": "testbed",
    }


def _sources() -> list[Source]:
    release = platform.freedesktop_os_release()
    distribution, codename = release.get("ID", ""), release.get("VERSION_CODENAME", "")
    return wanted_sources(machine_sources(), distribution=distribution, codename=codename)


def _edited_source(apt: PrivateApt, tree: Path, progress: Progress) -> LinuxSource:
    """The newest source that our edits fit, unpacked in `tree` and edited.  What is passed over or old is said."""
    found = apt.linux_sources()
    if not found:
        raise MissingFeature(
            f"no linux-source package can be had from this machine's mirror ({progress.log} says why)", _OWN_KERNEL
        )
    for source in found:
        apt.unpack(source, tree)
        try:
            kernel_edits.apply_edits(tree, kernel_edits.edits_for(source.release))
            for addition in kernel_additions.ADDITIONS:
                addition.apply(tree)
        except (kernel_edits.EditMismatchError, FileNotFoundError, ValueError) as error:
            progress.say(f"  {source.package}: our edits do not fit this release ({error}); trying an older one")
            shutil.rmtree(tree)
            continue
        if source.release < kernel_edits.SECCOMP_RELEASE:
            progress.say(
                f"  warning: no source of Linux {'.'.join(map(str, kernel_edits.SECCOMP_RELEASE))} or later; on "
                f"{source.package} runs take two to four times as long, and programs that spin on sched_yield may hang"
            )
        return source
    raise MissingFeature("our edits fit none of " + ", ".join(source.package for source in found), _OWN_KERNEL)


def _configure(tree: Path, options: Mapping[str, str], progress: Progress) -> None:
    """`allnoconfig` plus ours.  Raises RunFailed naming the options that the kernel's own rules dropped."""
    wanted = tree.with_name("wanted.config")
    wanted.write_text("".join(f"{name}={value}\n" for name, value in options.items()), encoding="utf-8")
    make = ["make", "ARCH=um", f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"]
    progress.command("configuring it", make, environment=_environment(), directory=tree)
    dropped = dropped_options(options, (tree / ".config").read_text(encoding="utf-8"))
    if dropped:
        raise RunFailed(
            "this kernel's configuration dropped "
            + ", ".join(dropped)
            + ": an option that these need is not asked for "
            "in testbed/guest/kernel.config, or the release has renamed them"
        )


def dropped_options(wanted: Mapping[str, str], config: str) -> list[str]:
    """The options of `wanted` that a kernel's `.config` does not have with that value."""
    lines = set(config.splitlines())
    return sorted(name for name, value in wanted.items() if f"{name}={value}" not in lines)
