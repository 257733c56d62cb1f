"""The same bytes in few or many transfers over TCP, each answered with one byte before the next begins.

rank 1..n   [transfer]  [transfer]  ...  -> rank 0, which answers        fresh: a connection for each transfer
                      \\1 B/                                              persistent: one connection, back to back
                                                                         idle: one connection, a pause before each
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from testbed.workers.counters import parse_protocols
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

PORT = 29900
REPLY = b"."
MODES = ("fresh", "persistent", "idle")
FIRST_BYTES = 1024
"""Of a transfer, in a call of their own: after it TCP has already shrunk the window of a connection that was idle."""
_BUFFER_BYTES = 1 << 20
_MSS_OFFSET, _RTT_OFFSET, _CWND_OFFSET, _RETRANSMISSIONS_OFFSET, _SND_WND_OFFSET = 16, 68, 80, 100, 228
"""In struct tcp_info of linux/tcp.h."""
_TCP_INFO_BYTES = 232
COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "hystart_exits": ("TCPHystartTrainDetect", "TCPHystartDelayDetect"),
    "timeouts": ("TCPTimeouts",),
    "slow_start_retransmissions": ("TCPSlowStartRetrans",),
    "kept_by_own_queue": ("TCPSpuriousRtxHostQueues",),
}
"""What it is called here -> counters of TcpExt: slow starts that ended at the first signs of a queue; timers that fired
and what they sent again; retransmissions called off because the first copy was still in the sender's own queue."""
_AUTOCORKING = Path("/proc/sys/net/ipv4/tcp_autocorking")


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """What each sender does."""

    mode: str
    transfers: int
    size_bytes: int
    """Of each transfer."""
    gap_ns: int
    """Before each transfer in the mode `idle`."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """One transfer as its sender and its socket saw it; a fresh connection's handshake belongs to it."""

    start_ns: int
    end_ns: int
    cwnd_before: int
    """Segments, as the transfer before left them; on a fresh connection the initial window."""
    cwnd_start: int
    """Segments, once the first bytes were handed over."""
    cwnd_end: int
    mss_bytes: int
    retransmitted: int
    rtt_us: int
    """TCP's smoothed round-trip time at the end: a train of segments takes longer than one byte."""
    rwnd_start_bytes: int = 1 << 30
    """The receiver's window, once the first bytes were handed over."""

    @property
    def is_cut(self) -> bool:
        """Whether the receiver's window was too small for the first flight."""
        return self.rwnd_start_bytes < self.cwnd_start * self.mss_bytes


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a sender brings back."""

    transfers: tuple[Transfer, ...]
    counted: Mapping[str, int]
    """COUNTED, of its host, over all transfers."""


def program(rank: Rank, plan: Repeated, senders: int) -> Sent | None:
    """What every rank runs: rank 0 receives, ranks 1 to `senders` send at once, the others stand by (None)."""
    if rank.rank == 0:
        _receive(rank, plan, senders)
        return None
    rank.line_up("listening")
    if rank.rank > senders:
        rank.line_up("transfers")
        rank.line_up("end of the transfers")
        return None
    before = count()
    with uncorked():
        transfers = tuple(_send(rank, plan))
    after = count()
    rank.line_up("end of the transfers")
    return Sent(transfers=transfers, counted={name: after[name] - before[name] for name in COUNTED})


def count(proc_net: Path = Path("/proc/thread-self/net")) -> dict[str, int]:
    """COUNTED, of the calling thread's network namespace, so far."""
    extensions = parse_protocols((proc_net / "netstat").read_text())["TcpExt"]
    return {name: sum(extensions[counter] for counter in counters) for name, counters in COUNTED.items()}


@contextmanager
def uncorked(setting: Path = _AUTOCORKING) -> Iterator[None]:
    """This host's TCP sends the last, short segment of a transfer at once.

    With tcp_autocorking it waits until an earlier packet has left the NIC.  In this testbed a packet belongs to its NIC
    until it has crossed the cable, so that the wait would last for the cable's delay as well, which no NIC does.
    (Found: 3 us per transfer of 20 kB at 100 Gb/s and 5 us.)
    """
    before = setting.read_text()
    setting.write_text("0")
    try:
        yield
    finally:
        setting.write_text(before)


def _send(rank: Rank, plan: Repeated) -> Iterator[Transfer]:
    content = np.full(plan.size_bytes, rank.rank, dtype=np.uint8).tobytes()
    address = (rank.addresses[0], PORT + rank.rank)
    kept = None if plan.mode == "fresh" else _connected(address)
    rank.line_up("transfers")
    try:
        for _ in range(plan.transfers):
            if plan.mode == "idle":
                time.sleep(plan.gap_ns / 1e9)
            with rank.operation(f"transfer, {plan.mode}", plan.size_bytes) as span:
                connection = kept or _connected(address)
                before = _numbers(connection)
                connection.sendall(content[:FIRST_BYTES])
                start = _numbers(connection)
                connection.sendall(content[FIRST_BYTES:])
                if connection.recv(1) != REPLY:
                    raise RunFailed(f"{rank.host}: the receiver did not answer a transfer")
            end = _numbers(connection)
            yield Transfer(
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                cwnd_before=before[0],
                cwnd_start=start[0],
                cwnd_end=end[0],
                mss_bytes=start[1],
                retransmitted=end[2] - before[2],
                rtt_us=end[3],
                rwnd_start_bytes=start[4],
            )
            if kept is None:
                connection.close()
    finally:
        if kept is not None:
            kept.close()


def _connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _numbers(connection: socket.socket) -> tuple[int, int, int, int, int]:
    """Congestion window in segments, MSS in bytes, segments sent again, smoothed round-trip time in us, and the
    receiver's window in bytes."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    cwnd, mss, again, rtt_us = (
        struct.unpack_from("=I", info, at)[0]
        for at in (_CWND_OFFSET, _MSS_OFFSET, _RETRANSMISSIONS_OFFSET, _RTT_OFFSET)
    )
    return cwnd, mss, again, rtt_us, struct.unpack_from("=I", info, _SND_WND_OFFSET)[0]


def _receive(rank: Rank, plan: Repeated, senders: int) -> None:
    faults: list[str] = []
    listeners = [socket.create_server((rank.addresses[0], PORT + number)) for number in range(1, senders + 1)]
    threads = [
        threading.Thread(target=_serve, args=(listener, plan, number + 1, faults), daemon=True)
        for number, listener in enumerate(listeners)
    ]
    rank.line_up("listening")
    for thread in threads:
        thread.start()
    rank.line_up("transfers")
    for thread in threads:
        while thread.is_alive():
            with rank.operation("receiving"):
                thread.join(1)
    if faults:
        raise RunFailed("; ".join(faults))
    rank.line_up("end of the transfers")


def _serve(listener: socket.socket, plan: Repeated, sender: int, faults: list[str]) -> None:
    try:
        with listener:
            for _ in range(plan.transfers if plan.mode == "fresh" else 1):
                with _accepted(listener) as connection:
                    for _ in range(1 if plan.mode == "fresh" else plan.transfers):
                        _take(connection, plan.size_bytes, sender)
                        connection.sendall(REPLY)
    except (OSError, RunFailed) as error:
        faults.append(f"from rank {sender}: {error}")


@contextmanager
def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        yield connection


def _take(connection: socket.socket, size_bytes: int, sender: int) -> None:
    buffer = bytearray(min(size_bytes, _BUFFER_BYTES))
    left = size_bytes
    while left:
        count = connection.recv_into(memoryview(buffer)[: min(left, len(buffer))])
        if count == 0:
            raise RunFailed(f"a transfer ended {left} bytes early")
        if np.any(np.frombuffer(buffer, dtype=np.uint8, count=count) != sender):
            raise RunFailed("bytes arrived that were not sent")
        left -= count
