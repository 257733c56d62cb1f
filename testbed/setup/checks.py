"""`./run test`: formatting, lint, types, import layers, spelling, then the unit tests, then those that boot guests.

With arguments it is pytest with those arguments (`./run test tests/unit -k units`).
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from testbed.setup.virtual_environment import CHECKOUT

_PYTEST = ("-m", "pytest", "--color=auto")
_A_GUEST_PER_CPU = ("-n", "logical", "--maxprocesses", "4", "--dist", "loadfile")
"""A guest uses one CPU; a file's tests share its runs.  Four at most: each may touch gigabytes of memory."""
CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("format", ("-m", "ruff", "format", "--check", ".")),
    ("lint", ("-m", "ruff", "check", ".")),
    ("spelling", ("-m", "codespell_lib")),
    ("layers", ("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")),
    ("types", ("-m", "mypy", "topologies", "testbed", "controller", "experiments", "tests")),
    ("unit tests", (*_PYTEST, "tests/unit")),
    ("guest tests", (*_PYTEST, *_A_GUEST_PER_CPU, "tests/guest")),
    ("real-clock tests", (*_PYTEST, "tests/real")),
)


def _run(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, *arguments], cwd=CHECKOUT, env=os.environ, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """0 when every check passed.  All are run even if one fails, so that one run shows every fault."""
    if arguments:
        return _run((*_PYTEST, *arguments))
    failed = []
    for name, command in CHECKS:
        sys.stdout.write(f"== {name}\n")
        sys.stdout.flush()
        start_s = time.monotonic()
        status = _run(command)
        sys.stdout.write(f"== {name}: {'passed' if status == 0 else 'FAILED'}, {time.monotonic() - start_s:.0f} s\n\n")
        if status != 0:
            failed.append(name)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all checks passed\n")
    sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
