"""The three Linux calls that Python 3.11 has no name for, as typed functions that raise OSError."""

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter_network_namespace(descriptor: int) -> None:
    """Moves the calling thread, and all that it starts from now on, into the namespace; closes the descriptor."""
    try:
        _check(_libc.setns(descriptor, _CLONE_NEWNET), "setns into a host's network namespace")
    finally:
        os.close(descriptor)


def set_timer_slack(slack_ns: int) -> None:
    """Lets timed waits of this thread and its future threads end at most `slack_ns` late; Linux gives 50,000."""
    _check(_libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(slack_ns), 0, 0, 0), "prctl PR_SET_TIMERSLACK")


def die_with_parent(signal_number: int, *, parent_pid: int) -> None:
    """Asks the kernel for `signal_number` when the thread that forked us ends; exits at once if it has already."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl PR_SET_PDEATHSIG")
    if os.getppid() != parent_pid:
        os._exit(1)
