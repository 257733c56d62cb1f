"""An alarm clock as a descriptor: rings at an instant to the nanosecond, where the hub's own sleep counts milliseconds.

timerfd_create(2), which Python has from 3.13 on only.
"""

import ctypes
import os
from types import TracebackType
from typing import Self

from topologies.errors import MissingFeature

_CLOCK_MONOTONIC, _NONBLOCK, _ABSOLUTE = 1, 0o4000, 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """A context manager; readable once its instant has come, until `take`."""

    def __init__(self) -> None:
        """Raises MissingFeature where the kernel has no such timers."""
        self._fd = int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK))
        if self._fd < 0:
            raise MissingFeature(f"timerfd_create: {os.strerror(ctypes.get_errno())}", "run on Linux")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Never rings again."""
        os.close(self._fd)

    def fileno(self) -> int:
        """For select and its like."""
        return self._fd

    def ring_at(self, when_ns: int | None) -> None:
        """On the monotonic clock; None is never.  A time that has passed rings at once."""
        value = _Timespec(0, 0) if when_ns is None else _Timespec(*divmod(max(when_ns, 1), 10**9))
        timer = _Timer(_Timespec(0, 0), value)
        if _LIBC.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(timer), None) != 0:
            raise MissingFeature(f"timerfd_settime: {os.strerror(ctypes.get_errno())}", "run on Linux")

    def take(self) -> bool:
        """Whether it has rung; it is quiet again."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return False
        return True
