"""`python3 -m testbed.setup ARGUMENTS`: prepare what ARGUMENTS need, then become the program that handles them."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from testbed.cache import cache_dir
from testbed.setup import guest_kernel
from testbed.setup.progress import Progress
from testbed.setup.virtual_environment import CHECKOUT, VirtualEnvironment
from topologies.errors import TestbedError

_NO_GUEST = {"doctor", "list", "topology", "report", "clean", "pcap", "export"}
"""Commands that never boot a guest: they work where its kernel cannot be built."""


def needs_guest(arguments: Sequence[str]) -> bool:
    """Whether what is asked for may boot a guest."""
    return bool(arguments) and arguments[0] not in _NO_GUEST and not {"--help", "-h"} & set(arguments)


def program(python: str, arguments: Sequence[str], checkout: Path = CHECKOUT) -> list[str]:
    """What to become: a script for `NAME.py` (found from here, else from the checkout), the checks, or the CLI."""
    first, rest = (arguments[0], list(arguments[1:])) if arguments else ("--help", [])
    if first.endswith(".py"):
        script = first if Path(first).exists() else str(checkout / first)
        return [python, script, *rest]
    if first == "test":
        return [python, "-P", "-m", "testbed.setup.checks", *rest]
    return [python, "-P", "-m", "experiments", first, *rest]


def main(arguments: Sequence[str]) -> None:
    """Returns only for `setup`; exits with the error's code when something cannot be prepared."""
    for name in ("PYTHONSAFEPATH", "PYTHONPATH"):  # `run` set them for us; builds of packages break under them
        os.environ.pop(name, None)
    cache = cache_dir()
    progress = Progress(cache / "setup.log")
    environment = VirtualEnvironment(cache)
    environment.ensure(progress)
    if needs_guest(arguments):
        guest_kernel.ensure(cache, progress)
    if list(arguments) == ["setup"]:
        progress.say("set up: everything is there")
        return
    command = program(str(environment.python), arguments)
    os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(CHECKOUT)})


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.stderr.write(f"run: ended by signal {number}\n")
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)  # so that what we started ends with us
    try:
        main(sys.argv[1:])
    except TestbedError as error:
        sys.stderr.write(f"run: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
