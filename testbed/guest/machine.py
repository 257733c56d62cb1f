"""Boot the guest, run one command in it as its root, stream what it prints, and return the command's exit code.

The guest is an ordinary process: no root, no KVM, no kernel module.  Its root file system is this machine's own, read
only, with memory above it; what it writes anywhere but in the run folder (/out in the guest) is gone when it halts.
"""

import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from testbed.cache import cache_dir
from testbed.guest import cpu, kernel, process, terminal
from testbed.guest.places import CHECKOUT, in_guest, places
from testbed.guest.virtual_clock import VirtualClock
from testbed.guest.watch import Watch, with_lines
from topologies.errors import RunFailed, UserError
from topologies.units import parse_size

CLOCK_START_NS = 1_767_225_600 * 10**9
"""Every guest's wall clock starts at 2026-01-01 00:00 UTC, so that the captures of equal runs carry equal stamps."""

_Running = AbstractContextManager[subprocess.Popen[bytes]]
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FATAL = ("Kernel panic - not syncing", "Oops:", "BUG: ", "kernel BUG at")
_GOODBYE = "reboot: Power down"
_TICK_S = 0.5
_LAST_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Boot:
    """One guest: what runs in it, where its output goes, and the machine that it sees."""

    command: Sequence[str]
    """The argument list; runs in the checkout's folder, as the guest's root, with no variable of the caller's.
    Paths in the checkout, the virtual environment and the cache become the guest's (places.py)."""
    run_dir: Path
    """Writable in the guest as /out; what the console prints is appended to its log.txt."""
    seed: int = 1
    """Of the guest's entropy."""
    memory: str = "6G"
    """Of the guest; the machine gives it page by page as it is used.  16 ranks of parameter_server.py take 4.2 GB."""
    time_travel: bool = True
    """False boots with the ordinary clock, as a machine of `--clock real`."""
    interactive: bool = False
    """The command's terminal is the caller's: keys go to it, its output goes to standard output (and the log)."""
    environment: dict[str, str] = field(default_factory=dict)
    """Added to the guest's fixed environment."""
    stall_s: float = 180
    """Wall seconds without a line printed or a step of the virtual clock after which the guest counts as stuck."""
    wall_limit_s: float | None = None
    """Wall seconds that the whole guest may take; None for no limit."""


def boot(request: Boot, on_line: Callable[[str], None] = lambda _: None) -> int:
    """Run `request.command` in a guest; `on_line` gets each line of the console.  Returns the command's exit code.

    Raises MissingFeature without a kernel, UserError for an impossible request, RunFailed with the last lines when the
    guest panics, gets stuck, or ends without the command's having ended.  KeyboardInterrupt and SIGTERM end the guest.
    """
    binary = kernel.find()
    run_dir = request.run_dir.absolute()
    with _exchange(run_dir, request) as exchange, cpu.seat(cache_dir()) as seat, _terminable():
        start = partial(
            process.started,
            [str(binary), *_kernel_arguments(request)],
            cpu=seat.cpu,
            directory=run_dir,
            environment={"PATH": _PATH, "TMPDIR": _memory_directory(_memory_bytes(request), run_dir)},
            keep=() if seat.lock is None else (seat.lock,),
        )
        with (run_dir / "log.txt").open("ab", buffering=0) as log:
            if request.interactive:
                status, last = _interact(start, log, exchange / "ready"), list[str]()
            else:
                status, last = _run(start, binary, request, log, on_line)
        return _exit_code(exchange / "exit", status, last)


def _interact(start: Callable[..., _Running], log: BinaryIO, ready: Path) -> int:
    with terminal.pair() as (ours, theirs), start(terminal=theirs) as running:
        os.close(theirs)
        terminal.relay(running, ours, ready=ready, on_output=lambda output: _write(log, output))
        return running.wait()


def _run(
    start: Callable[..., _Running], binary: Path, request: Boot, log: BinaryIO, on_line: Callable[[str], None]
) -> tuple[int, list[str]]:
    def tell(line: str) -> None:
        _write(log, f"{line}\n".encode())
        on_line(line)

    with start() as running:
        last = _follow(running, VirtualClock(running.pid, binary), request, tell)
        return running.wait(), last


def _write(log: BinaryIO, output: bytes) -> None:
    log.write(output)


def _follow(
    running: subprocess.Popen[bytes], clock: VirtualClock, request: Boot, tell: Callable[[str], None]
) -> list[str]:
    """Pass the console on until it closes; returns its last lines.  Raises RunFailed on a panic or a stuck guest."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    watch = Watch(
        clock=clock,
        stall_s=request.stall_s,
        wall_limit_s=request.wall_limit_s,
        now_s=time.monotonic(),
    )
    fatal = False
    for line in process.lines(running, tick_s=_TICK_S, on_tick=lambda: watch.look(time.monotonic(), last)):
        watch.saw_line(time.monotonic(), last)
        if line == _GOODBYE:
            continue
        last.append(line)
        tell(line)
        fatal = fatal or any(mark in line for mark in _FATAL)
    if fatal:
        raise RunFailed(with_lines("the guest's kernel reported a fault", last))
    return list(last)


def _exit_code(file: Path, status: int, last: Sequence[str]) -> int:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        how = f"was killed by signal {-status}" if status < 0 else f"halted with status {status}"
        raise RunFailed(with_lines(f"the guest {how} before its command had ended", last)) from None


def _kernel_arguments(request: Boot) -> list[str]:
    """The kernel's command line: no paths, so that it is the same wherever the run folder is."""
    clock = [f"time-travel-start={CLOCK_START_NS}", "time-travel=inf-cpu"] if request.time_travel else []
    return [
        f"mem={_memory_bytes(request)}",
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init=/proc/self/cwd/.guest/init"),
        *(
            "con=null",
            "con0=fd:0,fd:1",
            "ssl=null",
            "quiet",
            "panic_on_oops=1",
            "seccomp=on",
            "uml_dir=.guest/",
            "umid=guest",
        ),
        *("norandmaps", "ipv6.disable=1", f"rng-seed={request.seed}"),
        *clock,
    ]


def _memory_bytes(request: Boot) -> int:
    size = parse_size(request.memory)
    if size < 256 << 20:
        raise UserError(f"memory '{request.memory}' is too little for a guest; 512M is the least that is useful")
    return size >> 20 << 20


def _memory_directory(size: int, run_dir: Path) -> str:
    """Where the guest's memory file (unlinked at once) is made: shared memory if large enough, else the run folder."""
    shared = Path("/dev/shm")
    if shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free >= size:
        return str(shared)
    return str(run_dir)


def _command_script(request: Boot) -> str:
    """What the guest's shell runs: the command, in the checkout, in an environment that is the same everywhere."""
    environment = {
        "PATH": _PATH,
        "HOME": "/run/root",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb") if request.interactive else "dumb",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(CHECKOUT),
        **request.environment,
    }
    assignments = [f"{name}={in_guest(value)}" for name, value in environment.items()]
    command = shlex.join(["env", "-i", *assignments, *map(in_guest, request.command)])
    where = f"cd {in_guest(str(CHECKOUT))}\n"
    if request.interactive:
        # A guest without any timer jumps to the end of time instead of waiting for a key, hence the ticking; and
        # /dev/console cannot be a controlling terminal, which Ctrl-C needs.
        tick, ready = "while :; do sleep 0.02; done &\n", ": > /out/.guest/ready\n"
        return f"{where}{tick}{ready}exec setsid --ctty --wait {command} </dev/tty0 >/dev/tty0 2>&1\n"
    return f"{where}exec {command}\n"


@contextmanager
def _exchange(run_dir: Path, request: Boot) -> Iterator[Path]:
    """The folder through which host and guest talk: the init, the command, its exit code; gone afterwards."""
    exchange = run_dir / ".guest"
    shutil.rmtree(exchange, ignore_errors=True)
    (exchange / "places").mkdir(parents=True)
    try:
        for name, folder in places().items():
            (exchange / "places" / name).write_text(str(folder), encoding="utf-8")
        shutil.copy(Path(__file__).with_name("init.sh"), exchange / "init")
        (exchange / "init").chmod(0o755)
        (exchange / "command").write_text(_command_script(request), encoding="utf-8")
        yield exchange
    finally:
        shutil.rmtree(exchange, ignore_errors=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """While a guest runs, SIGTERM unwinds us like Ctrl-C does, so that the guest is ended and the run folder tidied."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
