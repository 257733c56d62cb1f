"""Compiles the selector once, before any run: `python -m controller.selector.build [DIRECTORY]`.

The object lies in the user's cache under a key made from its sources and flags, so that a change of either is another
file and an interrupted build is never taken for a finished one.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path

from topologies.errors import InternalError, MissingFeature, TestbedError

HERE = Path(__file__).parent
PROGRAM = HERE / "selector.bpf.c"
HEADERS = (HERE / "flow_hash.h", HERE / "spreading.h")
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3")
"""-g: libbpf reads the tables' layouts from the debug information.  v3: 32-bit instructions and jumps, Linux 5.1."""


def cache_directory() -> Path:
    """Where everything that is built once lives: $FABRIC_TESTBED_CACHE, else fabric-testbed under the user's cache."""
    chosen = os.environ.get("FABRIC_TESTBED_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fabric-testbed"


def object_path(program: Path = PROGRAM, cache: Path | None = None) -> Path:
    """Where the object of a program belongs."""
    digest = sha256("\0".join(FLAGS).encode())
    for source in (program, *HEADERS):
        digest.update(source.read_bytes())
    return (cache or cache_directory()) / f"bpf-{digest.hexdigest()[:12]}" / f"{program.name.partition('.')[0]}.bpf.o"


def built(program: Path = PROGRAM, cache: Path | None = None) -> Path:
    """The object, compiled now if it was not.  Raises MissingFeature without clang, InternalError if it complains."""
    target = object_path(program, cache)
    if target.exists():
        return target
    clang = shutil.which("clang")
    if clang is None:
        raise MissingFeature(
            "clang is not installed and the path selector is not built", "apt install clang libbpf-dev"
        )
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".o", delete=False) as partial:
        command = [clang, *FLAGS, f"-I/usr/include/{multiarch}", "-c", str(program), "-o", partial.name]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            if "bpf/bpf_helpers.h" in outcome.stderr and "not found" in outcome.stderr:
                raise MissingFeature("the headers of libbpf are not installed", "apt install libbpf-dev")
            raise InternalError(f"clang could not build {program.name}:\n{outcome.stderr}")
        Path(partial.name).chmod(0o644)
        Path(partial.name).rename(target)
    finally:
        Path(partial.name).unlink(missing_ok=True)
    return target


def main(arguments: list[str]) -> int:
    """The set-up's entry: prints where the object is."""
    try:
        sys.stdout.write(f"{built(cache=Path(arguments[0]) if arguments else None)}\n")
    except TestbedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
