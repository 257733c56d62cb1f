"""The few functions of libbpf.so.1 that we need, by ctypes, with errors as exceptions.  Knows nothing of selectors."""

import ctypes
import errno
import os
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from topologies.errors import MissingFeature, RunFailed

BATCH = 4096
"""Entries read by one system call."""
_LOG_LINES = 20


class _TestRun(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf 1.x."""

    _fields_ = (
        ("size", c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", c_void_p),
        ("ctx_out", c_void_p),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


_PRINT = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
_log: list[str] = []


def _keep(_level: int, text: bytes, arguments: int) -> int:
    buffer = ctypes.create_string_buffer(4096)
    ctypes.CDLL(None).vsnprintf(buffer, len(buffer), text, c_void_p(arguments))
    _log.append(buffer.value.decode(errors="replace").rstrip())
    del _log[:-_LOG_LINES]
    return 0


_keep_callback = _PRINT(_keep)
"""ctypes keeps no reference to a callback; this one must live as long as the library."""


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise MissingFeature("libbpf.so.1 is not installed", "apt install libbpf1") from None
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
        "bpf_object__load": (c_int, (c_void_p,)),
        "bpf_object__close": (None, (c_void_p,)),
        "bpf_object__find_program_by_name": (c_void_p, (c_void_p, c_char_p)),
        "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
        "bpf_program__fd": (c_int, (c_void_p,)),
        "bpf_map__fd": (c_int, (c_void_p,)),
        "bpf_map__set_max_entries": (c_int, (c_void_p, c_uint32)),
        "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
        "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
        "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
        "bpf_map_lookup_batch": (
            c_int,
            (c_int, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_uint32), c_void_p),
        ),
        "bpf_prog_test_run_opts": (c_int, (c_int, POINTER(_TestRun))),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.libbpf_set_print(_keep_callback)
    return library


class Object:
    """A compiled BPF object: opened, sized, loaded, closed."""

    def __init__(self, path: Path) -> None:
        """Raises MissingFeature where it cannot be read."""
        self._handle = _library().bpf_object__open_file(str(path).encode(), None)
        if not self._handle:
            raise MissingFeature(f"{path} is not a BPF object: {_why()}", "delete it, it will be built again")

    def resize(self, name: str, entries: int) -> None:
        """Sets how many entries a table can hold; before `load` only."""
        _check(_library().bpf_map__set_max_entries(self._map(name), entries), f"size of table {name}")

    def load(self) -> None:
        """Puts programs and tables into the kernel.  Raises MissingFeature where it or our rights do not suffice."""
        if _library().bpf_object__load(self._handle) != 0:
            reason = _why()
            remedy = "run as root" if ctypes.get_errno() in (errno.EPERM, errno.EACCES) else "see what the kernel said"
            raise MissingFeature(f"the kernel did not take the path selector: {reason}", remedy)

    def program(self, name: str) -> int:
        """The descriptor of a program."""
        handle = _library().bpf_object__find_program_by_name(self._handle, name.encode())
        if not handle:
            raise MissingFeature(f"the BPF object has no program {name}", "build it from the same source")
        return int(_library().bpf_program__fd(handle))

    def table(self, name: str) -> int:
        """The descriptor of a table."""
        return int(_library().bpf_map__fd(self._map(name)))

    def close(self) -> None:
        """Lets go of everything; what is attached stays in force until it is detached."""
        if self._handle:
            _library().bpf_object__close(self._handle)
            self._handle = None

    def _map(self, name: str) -> Any:
        handle = _library().bpf_object__find_map_by_name(self._handle, name.encode())
        if not handle:
            raise MissingFeature(f"the BPF object has no table {name}", "build it from the same source")
        return handle


def update(table: int, key: bytes, value: bytes) -> None:
    """Sets one entry.  Raises RunFailed, for instance where the table is full."""
    _check(_library().bpf_map_update_elem(table, key, value, 0), "writing a BPF table")


def lookup(table: int, key: bytes, value_bytes: int) -> bytes | None:
    """One entry, or None."""
    value = ctypes.create_string_buffer(value_bytes)
    if _library().bpf_map_lookup_elem(table, key, value) == 0:
        return value.raw
    if ctypes.get_errno() == errno.ENOENT:
        return None
    _check(-1, "reading a BPF table")
    return None


def delete(table: int, key: bytes) -> None:
    """Removes one entry.  Raises RunFailed where it is absent."""
    _check(_library().bpf_map_delete_elem(table, key), "deleting from a BPF table")


def entries(table: int, key_bytes: int, value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """All entries of a hash table, by batches; those that come or go meanwhile may or may not be among them."""
    keys = ctypes.create_string_buffer(BATCH * key_bytes)
    values = ctypes.create_string_buffer(BATCH * value_bytes)
    cursor, position = c_uint32(), None
    while True:
        count = c_uint32(BATCH)
        outcome = _library().bpf_map_lookup_batch(table, position, byref(cursor), keys, values, byref(count), None)
        ended = outcome != 0 and ctypes.get_errno() == errno.ENOENT
        if not ended:
            _check(outcome, "reading a BPF table")
        for at in range(count.value):
            yield (
                keys.raw[at * key_bytes : (at + 1) * key_bytes],
                values.raw[at * value_bytes : (at + 1) * value_bytes],
            )
        if ended:
            return
        position = byref(cursor)


def run_on_frame(program: int, frame: bytes, context: bytes, repeat: int = 1) -> tuple[int, bytes, int]:
    """Runs a program on a frame without any interface: its verdict, the context afterwards, nanoseconds per run."""
    after = ctypes.create_string_buffer(len(context))
    data, before = ctypes.create_string_buffer(frame, len(frame)), ctypes.create_string_buffer(context, len(context))
    options = _TestRun(
        size=ctypes.sizeof(_TestRun),
        data_in=ctypes.addressof(data),
        data_size_in=len(frame),
        ctx_in=ctypes.addressof(before),
        ctx_size_in=len(context),
        ctx_out=ctypes.addressof(after),
        ctx_size_out=len(context),
        repeat=repeat,
    )
    _check(_library().bpf_prog_test_run_opts(program, byref(options)), "running a BPF program on a test frame")
    return options.retval, after.raw, options.duration


def _check(outcome: int, what: str) -> None:
    if outcome != 0:
        raise RunFailed(f"{what}: {os.strerror(ctypes.get_errno())}")


def _why() -> str:
    return " | ".join([os.strerror(ctypes.get_errno()), *_log])
