"""Runs in the guest: what its clock does, as JSON on the last line.  usage: clock_facts.py"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_TIMERSLACK = 29
SYS_CLOCK_GETTIME = 228  # x86-64
MONOTONIC_RAW_AND_CPU = (time.CLOCK_MONOTONIC_RAW, time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_BOOTTIME)
SLEEPS_NS = (1, 2, 10, 499, 500, 1000, 12_345, 1_000_001, 10**9 + 7)


class Timespec(ctypes.Structure):
    """struct timespec."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def kernel_ns(clock: int) -> int:
    """What the kernel itself says, past the vDSO."""
    answer = Timespec()
    assert LIBC.syscall(SYS_CLOCK_GETTIME, clock, ctypes.byref(answer)) == 0
    return int(answer.seconds * 10**9 + answer.nanoseconds)


def slept_ns(duration_ns: int) -> int:
    wanted = Timespec(*divmod(duration_ns, 10**9))
    before = now_ns()
    assert LIBC.nanosleep(ctypes.byref(wanted), None) == 0
    return now_ns() - before


def cost_ns(action: Callable[[], object], times: int) -> int:
    """How far the clock moves during so many calls; after a sleep, so that they are the first at their instant."""
    slept_ns(1000)
    before = now_ns()
    for _ in range(times):
        action()
    return now_ns() - before


def refused_read() -> Callable[[], object]:
    """A read of a socket with nothing to read: EAGAIN."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)

    def read() -> object:
        try:
            return reader.recv(1), writer
        except BlockingIOError:
            return None

    return read


def loop_until_alarm(action: Callable[[], object], after_s: float) -> int:
    """How long a loop of nothing but `action` runs that only a timer ends, set for `after_s`; never, if time stands."""
    rang: list[int] = []
    signal.signal(signal.SIGALRM, lambda *_: rang.append(now_ns()))
    before = now_ns()
    signal.setitimer(signal.ITIMER_REAL, after_s)
    while not rang:
        action()
    return rang[0] - before


def loop_on_the_clock(duration_ns: int) -> int:
    """How long a loop runs that reads the clock until it has moved by `duration_ns`."""
    before = now_ns()
    while now_ns() - before < duration_ns:
        pass
    return now_ns() - before


def child_sees_the_clock_move() -> bool:
    """A forked process's clock is its parent's, also after it moved."""
    reader, writer = os.pipe()
    before = now_ns()
    if os.fork() == 0:
        slept_ns(1000)
        os.write(writer, str(now_ns() - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 64)) == now_ns() - before


def differences_ns() -> dict[str, int]:
    """The vDSO's answer less the kernel's."""
    return {
        "monotonic": now_ns() - kernel_ns(time.CLOCK_MONOTONIC),
        "realtime": time.time_ns() - kernel_ns(time.CLOCK_REALTIME),
        "others": sum(abs(time.clock_gettime_ns(clock) - kernel_ns(clock)) for clock in MONOTONIC_RAW_AND_CPU),
    }


def main() -> None:
    assert LIBC.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) == 0
    slept_ns(10_000_000)  # the kernel's timers are exact from its first tick on
    poll = select.poll()
    facts = {
        "resolution_ns": time.clock_getres(time.CLOCK_MONOTONIC) * 1e9,
        "sleeps": {wanted: slept_ns(wanted) for wanted in SLEEPS_NS},
        "cost": {
            "clock": cost_ns(now_ns, 900),
            "time of day": cost_ns(time.time, 900),
            "system call": cost_ns(os.getppid, 10_000),
            "refused read": cost_ns(refused_read(), 1000),
            "computing": cost_ns(lambda: sum(range(1000)), 1000),
        },
        "loops": {
            "clock": loop_on_the_clock(100_000),
            "sched_yield": loop_until_alarm(lambda: os.sched_yield(), 20e-6),
            "refused read": loop_until_alarm(refused_read(), 5e-6),
            "poll": loop_until_alarm(lambda: poll.poll(0), 2e-6),
        },
        "child": child_sees_the_clock_move(),
        "differences": differences_ns(),
    }
    time.clock_settime_ns(time.CLOCK_REALTIME, 2_000_000_000 * 10**9)
    facts["differences after the clock was set"] = differences_ns()
    facts["set to"] = time.time_ns()
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
