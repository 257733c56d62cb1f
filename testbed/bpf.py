"""The little of bpf(2) that a program of two dozen instructions needs: one map, one program, no compiler, no library.

Numbers are from linux/bpf.h.
"""

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Sequence

from topologies.errors import MissingFeature

_SYSCALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _PROG_LOAD = 0, 5
_MAP_ARRAY, _SCHED_CLS = 2, 3
_MAPPABLE = 1 << 10
_LOG_BYTES = 1 << 16
_INSTRUCTION = struct.Struct("=BBhi")
_LIBC = ctypes.CDLL(None, use_errno=True)


def instruction(code: int, *, dst: int = 0, src: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """One instruction of eight bytes."""
    return _INSTRUCTION.pack(code, src << 4 | dst, offset, immediate)


def wide_immediate(register: int, value: int, *, source: int = 0) -> bytes:
    """The one instruction of sixteen bytes: a 64-bit constant, or with `source` 1 a map by its descriptor."""
    low, high = struct.unpack("=ii", (value & (1 << 64) - 1).to_bytes(8, "little"))
    return instruction(0x18, dst=register, src=source, immediate=low) + instruction(0, immediate=high)


class Cell:
    """Memory that a program and we both see: a map of one entry, mapped, so that we change a word and not the rest."""

    def __init__(self, value: bytes) -> None:
        """Raises MissingFeature where the kernel gives none."""
        self.fd = _call(_MAP_CREATE, struct.pack("=IIIII", _MAP_ARRAY, 4, len(value), 1, _MAPPABLE))
        self.memory = mmap.mmap(self.fd, mmap.PAGESIZE)
        self.memory[: len(value)] = value

    def close(self) -> None:
        """Lets go of it."""
        self.memory.close()
        os.close(self.fd)


def load_classifier(instructions: Sequence[bytes]) -> int:
    """The descriptor of a traffic-control program.  Raises MissingFeature with the verifier's words."""
    code = ctypes.create_string_buffer(b"".join(instructions))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(_LOG_BYTES)
    attributes = struct.pack(
        "=IIQQIIQII",
        _SCHED_CLS,
        sum(map(len, instructions)) // _INSTRUCTION.size,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        1,
        _LOG_BYTES,
        ctypes.addressof(log),
        0,
        0,
    )
    return _call(_PROG_LOAD, attributes, log=log)


def _call(command: int, attributes: bytes, *, log: "ctypes.Array[ctypes.c_char] | None" = None) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise MissingFeature(f"bpf(2) on {platform.machine()}", f"use {' or '.join(_SYSCALL)}")
    buffer = ctypes.create_string_buffer(attributes, 128)  # what a kernel does not know must be zero
    answer = int(_LIBC.syscall(number, command, buffer, len(attributes)))
    if answer < 0:
        code = ctypes.get_errno()
        words = log.value.decode(errors="replace").strip().splitlines() if log is not None else []
        why = f"{errno.errorcode.get(code, code)}: {os.strerror(code)}" + "".join(f"\n    {it}" for it in words[-3:])
        raise MissingFeature(f"bpf(2), command {command}: {why}", "run as root on a kernel with CONFIG_BPF_SYSCALL")
    return answer
