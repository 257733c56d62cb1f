"""The guest as a process of this machine: started so that it cannot outlive us, followed line by line, watched, killed.

User-Mode Linux makes itself a session and starts a stub process per address space; stubs die with it, and it dies with
us (PR_SET_PDEATHSIG), so neither a `kill -9` of this process nor one of the guest leaves anything running.
"""

import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_LAUNCH = """
test "$PPID" = "$1" || exit 1  # the caller died before the death signal was armed
ulimit -n "$(ulimit -Hn)"      # hostfs holds a descriptor per open file; the usual 1,024 are too few
cpu=$2
shift 2
exec taskset -c "$cpu" "$@"
"""


@contextmanager
def started(
    arguments: Sequence[str],
    *,
    cpu: int,
    directory: Path,
    environment: dict[str, str],
    keep: Sequence[int] = (),
    terminal: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The kernel's process with `directory` as its working directory, pinned to `cpu`; killed and reaped on leaving.

    `keep` are descriptors that it inherits: locks that have to live exactly as long as it does.  `terminal` becomes its
    console; without one it has no input, and its output is a pipe.
    """
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _LAUNCH, "sh", str(os.getpid()), str(cpu), *arguments],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL if terminal is None else terminal,
        stdout=subprocess.PIPE if terminal is None else terminal,
        stderr=subprocess.STDOUT,
        pass_fds=keep,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the guest with everything in its session and reap it; nothing happens when it has ended by itself.

    One that is reaped already is left alone: its number may be somebody else's by now.
    """
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def lines(process: subprocess.Popen[bytes], *, tick_s: float, on_tick: Callable[[], None]) -> Iterator[str]:
    """What the guest prints, a line at a time without its end, until it closes its output; `on_tick` when silent."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(tick_s):
                on_tick()
                continue
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
    if rest:
        yield rest.decode(errors="replace").rstrip("\r")
