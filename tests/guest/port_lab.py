"""One small switch of fabric ports inside the guest, and what comes out of it to the nanosecond.

    h0 === s0 --+              hN are the ends of cables: frames are sent and captured there
    h1 === s1 --+-- switch     sN are the ports of one switch: by destination MAC, clsact redirects from port to port
    h2 === s2 --+

The virtual clock stands still while a program runs, so a frame is sent exactly at the time that is read before.
"""

import ctypes
import ctypes.util
import errno
import mmap
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.netlink import NetlinkSocket, Request
from testbed.port.config import PortConfig
from testbed.port.netlink import HANDLE, change, decode, decode_stats, make
from testbed.port.stats import PortStats
from testbed.traffic_control import TC_H_ROOT, read_traffic_control, tcmsg

ETH_P_ALL, ETH_P_PAUSE = 0x0003, 0x8808
_SOL_PACKET, _RX_RING, _VERSION, _IGNORE_OUTGOING = 263, 5, 10, 23
_SO_SNDBUFFORCE = 32
_FRAME, _BLOCK, _BLOCKS = 256, 1 << 16, 64
_TP2 = struct.Struct("=IIIHHII")  # status, len, snaplen, mac, net, sec, nsec
_libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


def sleep_until(when_ns: int) -> None:
    """Until CLOCK_MONOTONIC shows `when_ns`, exactly, if the caller runs under SCHED_FIFO (no timer slack)."""
    wanted = _Timespec(when_ns // 10**9, when_ns % 10**9)
    code = _libc.clock_nanosleep(1, 1, ctypes.byref(wanted), None)
    if code:
        raise OSError(code, os.strerror(code))


def mac(port: int) -> bytes:
    """Of the host end hN."""
    return bytes((2, 0, 10, 0, 0, port + 1))


def frame(*, source: int, to: int, size: int, dscp: int = 0, ecn: int = 0, serial: int = 0) -> bytes:
    """An IPv4 UDP frame of `size` bytes whose identification field is `serial`."""
    header = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        dscp << 2 | ecn,
        size - 14,
        serial,
        0,
        64,
        17,
        0,
        bytes((10, 0, 0, source + 1)),
        bytes((10, 0, 0, to + 1)),
    )
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + header[12:]
    return (mac(to) + mac(source) + b"\x08\x00" + header).ljust(size, b"\0")


def pfc_frame(*, source: int, index: int, quanta: int) -> bytes:
    """An 802.1Qbb frame for one class, as the host end `source` would send it."""
    times = [quanta if each == index else 0 for each in range(8)]
    return (
        bytes.fromhex("0180c2000001") + mac(source) + struct.pack("!HHH8H", ETH_P_PAUSE, 0x0101, 1 << index, *times)
    ).ljust(60, b"\0")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame that a host end received."""

    time_ns: int
    """CLOCK_MONOTONIC."""
    size: int
    data: bytes
    """The first 128 bytes or so."""

    @property
    def is_pfc(self) -> bool:
        """A MAC control frame."""
        return self.data[12:14] == b"\x88\x08"

    @property
    def pause(self) -> tuple[int, int]:
        """(class, quanta) of a PFC frame for one class."""
        enable, *quanta = struct.unpack_from("!H8H", self.data, 16)
        index = enable.bit_length() - 1
        return index, quanta[index]

    @property
    def serial(self) -> int:
        """What `frame` put into it."""
        return int.from_bytes(self.data[18:20], "big")

    @property
    def ecn(self) -> int:
        """Of its IP header."""
        return self.data[15] & 3


class Tap:
    """Everything that one interface receives, through a memory-mapped ring: no system call per frame."""

    def __init__(self, interface: str) -> None:
        """Opens it."""
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(_SOL_PACKET, _VERSION, 1)
        self.socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        frames = _BLOCK // _FRAME * _BLOCKS
        self.socket.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("=IIII", _BLOCK, _BLOCKS, _FRAME, frames))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 64 << 20)
        self.socket.bind((interface, ETH_P_ALL))
        self._ring = mmap.mmap(self.socket.fileno(), _BLOCK * _BLOCKS, mmap.MAP_SHARED)
        self._next, self._frames = 0, frames
        self._epoch = time.time_ns() - time.monotonic_ns()

    def arrivals(self) -> Iterator[Arrival]:
        """What came since the last call."""
        while True:
            offset = self._next * _FRAME
            status, size, snap, start, _net, sec, nsec = _TP2.unpack_from(self._ring, offset)
            if not status & 1:
                return
            if status & 4:
                raise RuntimeError("the ring lost frames")
            yield Arrival(
                sec * 10**9 + nsec - self._epoch, size, self._ring[offset + start : offset + start + min(snap, 128)]
            )
            self._ring[offset : offset + 4] = bytes(4)
            self._next = (self._next + 1) % self._frames


@dataclass
class Lab:
    """The switch; a context manager would be of no use, the guest ends with the test."""

    ports: int
    destinations: Sequence[int] = ()
    """Host ends that the switch can reach; empty for all."""
    taps: list[Tap] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    _made: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Lays the cables and sets up the switch."""
        for path in ("all", "default"):
            knob = Path(f"/proc/sys/net/ipv6/conf/{path}/disable_ipv6")
            if knob.exists():
                knob.write_text("1")
        for port in range(self.ports):
            host, switch = f"h{port}", f"s{port}"
            _run("ip", "link", "add", host, "numrxqueues", "1", "numtxqueues", "1", "type", "veth",
                 "peer", "name", switch, "numrxqueues", "1", "numtxqueues", "1")  # fmt: skip
            _run("ip", "link", "set", host, "address", mac(port).hex(":"), "mtu", "9000")
            for name in (host, switch):
                _run("ip", "link", "set", name, "mtu", "9000", "up")
                self.index[name] = socket.if_nametoindex(name)
        for port in range(self.ports):
            _run("tc", "qdisc", "add", "dev", f"s{port}", "clsact")
            for to in self.destinations or range(self.ports):
                match = ("flower", "dst_mac", mac(to).hex(":"))
                redirect = ("action", "mirred", "egress", "redirect", "dev", f"s{to}")
                _run("tc", "filter", "add", "dev", f"s{port}", "ingress", "protocol", "all", *match, *redirect)
            self.taps.append(Tap(f"h{port}"))
        self.netlink = NetlinkSocket()
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

    def make(self, configs: Mapping[str, PortConfig]) -> None:
        """New ports with fresh counters, in the order given: that is the order of their slots in the buffer."""
        removals = [_removal(self.index[name], name) for name in self._made]
        self.netlink.execute(removals)
        self._made = ()
        for name, config in configs.items():
            self.netlink.execute([make(self.index[name], config, where=name)])
            self._made = (*self._made, name)

    def change(self, name: str, config: PortConfig) -> None:
        """At run time."""
        self.netlink.execute([change(self.index[name], config, where=name)])

    def config(self, name: str) -> PortConfig:
        """In force."""
        root = read_traffic_control(self.netlink, policers=False).root(self.index[name])
        if root is None:
            raise RuntimeError(f"{name} has no root qdisc")
        return decode(root.options)

    def stats(self) -> dict[str, PortStats]:
        """Of all ports."""
        found = read_traffic_control(self.netlink, policers=False)
        roots = {name: found.root(index) for name, index in self.index.items()}
        return {name: decode_stats(root.extra) for name, root in roots.items() if root and root.kind == "fabric"}

    def send(self, train: Sequence[tuple[int, int, bytes | Request]]) -> list[int]:
        """Sends (time from now, host end, frame), ordered by time; returns the times at which they were sent.

        A request for the kernel in place of a frame is put to it at its time.
        """
        base = time.monotonic_ns() + 1000
        sent = []
        last = -1
        for offset, port, data in train:
            if offset != last:
                sleep_until(base + offset)
                last = offset
            sent.append(time.monotonic_ns())
            if isinstance(data, Request):
                self.netlink.execute([data])
                continue
            try:
                self.taps[port].socket.send(data)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # its own port dropped it: counted there
                    raise
        return sent

    def rest(self, duration_ns: int) -> None:
        """Lets everything arrive."""
        sleep_until(time.monotonic_ns() + duration_ns)

    def rest_until(self, when_ns: int) -> None:
        """Until CLOCK_MONOTONIC shows that, if it does not already."""
        sleep_until(max(when_ns, time.monotonic_ns()))

    def arrivals(self) -> dict[int, list[Arrival]]:
        """By host end, since the last call."""
        return {port: list(tap.arrivals()) for port, tap in enumerate(self.taps)}


def _removal(index: int, name: str) -> Request:
    return Request(kind=37, body=tcmsg(index=index, handle=HANDLE, parent=TC_H_ROOT), what=f"remove the port of {name}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
