"""Captures as Wireshark's own tools read them."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FIELDS = ("frame.time_epoch", "frame.len", "frame.packet_flags_direction", "ip.src", "ip.dst", "tcp.srcport")
OUTBOUND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One frame of a capture."""

    time_ns: int
    size_bytes: int
    """On the wire, not what was kept of it."""
    outbound: bool
    src: str
    dst: str
    sport: str

    @property
    def flow(self) -> tuple[str, str, str]:
        """Enough to tell the connections of a host apart, one way each."""
        return self.src, self.dst, self.sport


def read_capture(path: Path) -> list[Seen]:
    """Every frame, in the file's order."""
    command = ["tshark", "-r", str(path), "-T", "fields", *(word for name in _FIELDS for word in ("-e", name))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
    return list(_frames(lines))


def _frames(lines: list[str]) -> Iterator[Seen]:
    for line in lines:
        epoch, size, direction, src, dst, sport = line.split("\t")
        seconds, _, fraction = epoch.partition(".")
        yield Seen(
            time_ns=int(seconds) * 10**9 + int(fraction.ljust(9, "0")),
            size_bytes=int(size),
            outbound=int(direction, 0) == OUTBOUND,
            src=src,
            dst=dst,
            sport=sport,
        )
