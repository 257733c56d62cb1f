"""Read a running guest's virtual clock from outside, without the guest's noticing: it is a variable of its kernel."""

import os
import struct
from pathlib import Path

_SYMBOL = b"time_travel_time"


def symbol_address(binary: Path, symbol: bytes = _SYMBOL) -> int | None:
    """The address of `symbol` in a 64-bit little-endian ELF file's symbol table; None when it is not there.

    The layout is that of the ELF-64 object file format: header, section headers, 24-byte symbols.
    """
    data = binary.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (table_offset,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, entries = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", data, table_offset + i * entry_size) for i in range(entries)]
    for _, kind, _, _, offset, size, link, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names_offset, names_size = sections[link][4:6]
        name_at = data.find(b"\0" + symbol + b"\0", names_offset, names_offset + names_size)
        if name_at < 0:
            continue
        wanted = name_at + 1 - names_offset
        for name, _, _, _, value, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + size]):
            if name == wanted:
                return int(value)
    return None


class VirtualClock:
    """The virtual clock of the guest that process `pid` is."""

    def __init__(self, pid: int, binary: Path) -> None:
        """`binary` is the kernel that runs; one stripped of the symbol gives a clock that reads None."""
        self._memory = Path(f"/proc/{pid}/mem")
        self._address = symbol_address(binary)

    def read_ns(self) -> int | None:
        """Virtual nanoseconds since boot; None where the kernel has no symbol, or the machine forbids reading it."""
        if self._address is None:
            return None
        try:
            descriptor = os.open(self._memory, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return int.from_bytes(os.pread(descriptor, 8, self._address), "little")
        except OSError:
            return None
        finally:
            os.close(descriptor)
