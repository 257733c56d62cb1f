"""A person's terminal on the guest's console: what `./run shell` and `--mn-cli` are typed into."""

import os
import pty
import selectors
import subprocess
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_END_OF_INPUT = b"\x04"  # what the guest's terminal takes for the end of a piped standard input


@contextmanager
def pair() -> Iterator[tuple[int, int]]:
    """A pseudo terminal: our end and the guest's, closed on leaving (the guest's may be closed before)."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # the guest's own terminal echoes and interprets
    try:
        yield ours, theirs
    finally:
        for descriptor in (ours, theirs):
            with suppress(OSError):
                os.close(descriptor)


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Every key goes to the guest, whose terminal echoes and interprets it; the user's settings come back after."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def relay(guest: subprocess.Popen[bytes], ours: int, *, ready: Path, on_output: Callable[[bytes], None]) -> None:
    """Carry keys to the guest and its output to standard output, until the guest has ended.

    Keys are kept back until the file `ready` exists: the guest would miss what came before its console was open.
    `on_output` also gets what the guest prints.  A standard input that ends (a pipe) is an end of input in the guest.
    """
    keys, screen = sys.stdin.fileno(), sys.stdout.fileno()
    with ExitStack() as stack:
        stack.enter_context(_raw(keys))
        selector = stack.enter_context(selectors.SelectSelector())
        selector.register(ours, selectors.EVENT_READ)
        listening = False
        while True:
            if not listening and ready.exists():
                listening = True
                selector.register(keys, selectors.EVENT_READ)
            readable = {key.fd for key, _ in selector.select(0.2 if listening else 0.02)}
            if ours in readable and (output := _read(ours)):
                os.write(screen, output)
                on_output(output)
            elif guest.poll() is not None:
                return
            if keys in readable:
                typed = _read(keys)
                os.write(ours, typed or _END_OF_INPUT)
                if not typed:
                    selector.unregister(keys)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end of a pseudo terminal has closed
        return b""
