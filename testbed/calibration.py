"""For the real clock: how fast is every cable really?  A burst over each alone, stamped by the kernel at its far end.

    port |>> n frames, back to back >>| far end        (n - 1) frames' bits / (last stamp - first stamp)

The frames are of a kind that nobody forwards or answers.  Under the virtual clock rates are exact, and tests hold them
to it; on a machine's own clock they are as good as its timers, which the burst shows before a run rests on them.
"""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

from testbed.fabric import Fabric
from testbed.port.fabric_port import FabricPort
from topologies.errors import RunFailed

FRAMES = 16
WAIT_S = 5.0
"""Beyond the burst's own time; a cable that is slower than that does not work."""
_ETHERTYPE = b"\x88\xb5"
"""The first of the two that IEEE 802 leaves to local experiments."""
_ETH_P_ALL, _SO_TIMESTAMPNS, _PACKET_OUTGOING = 3, 35, 4
_HEADER = b"\x02\0\0\0\0\x01" + b"\x02\0\0\0\0\x02" + _ETHERTYPE
_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """One direction of a cable."""

    interface: str
    """Whose port sent."""
    asked_bps: int
    measured_bps: float
    frames: int


def calibrate(fabric: Fabric) -> list[Calibrated]:
    """Every direction of every cable, one after the other.  Raises RunFailed where frames do not arrive."""
    return [
        _measure(fabric, sender.name, receiver.name)
        for link in fabric.topology.links
        for sender, receiver in link.ends()
    ]


def rate_bps(stamps_ns: Sequence[int], *, wire_bytes: int) -> float:
    """Of frames of that many bytes that arrived then."""
    return (len(stamps_ns) - 1) * wire_bytes * 8e9 / max(1, stamps_ns[-1] - stamps_ns[0])


def _measure(fabric: Fabric, sender: str, receiver: str) -> Calibrated:
    egress = fabric.plan.egresses[sender]
    frame = _HEADER + bytes(fabric.topology.mtu)
    port = fabric.port.config(egress) if isinstance(fabric.port, FabricPort) else fabric.port
    overhead = getattr(port, "overhead_bytes", 0)
    count = max(2, min(FRAMES, egress.buffer_bytes // (2 * len(frame))))
    burst_s = count * len(frame) * 8 / egress.rate_bps + egress.delay_ns / 1e9
    with ExitStack() as stack:
        with _where(fabric, receiver):
            listening = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listening.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        with _where(fabric, receiver):
            listening.bind((receiver, _ETH_P_ALL))
        with _where(fabric, sender):
            sending = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            sending.bind((sender, 0))
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        for _ in range(count):
            sending.send(frame)
        stamps_ns = list(_arrivals(listening, count, deadline_s=time.monotonic() + burst_s + WAIT_S))
    if len(stamps_ns) < count:
        raise RunFailed(f"{sender}: {len(stamps_ns)} of {count} frames crossed its cable in {burst_s + WAIT_S:.0f} s")
    measured_bps = rate_bps(stamps_ns, wire_bytes=len(frame) + overhead)
    return Calibrated(interface=sender, asked_bps=egress.rate_bps, measured_bps=measured_bps, frames=count)


def _where(fabric: Fabric, interface: str) -> AbstractContextManager[None]:
    """The network namespace of an interface; switches are where we are."""
    host = fabric.plan.placed[interface].host
    return nullcontext() if host is None else fabric.net.get(host).namespace.entered()


def _arrivals(listening: socket.socket, count: int, *, deadline_s: float) -> Iterator[int]:
    """The kernel's stamps of `count` frames of ours, or of fewer when time is over."""
    while count and (left_s := deadline_s - time.monotonic()) > 0:
        listening.settimeout(left_s)
        try:
            data, ancillary, _flags, address = listening.recvmsg(64, socket.CMSG_SPACE(16))
        except TimeoutError:
            return
        if data[12:14] == _ETHERTYPE and address[2] != _PACKET_OUTGOING:
            seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
            count -= 1
            yield seconds * 10**9 + nanoseconds
