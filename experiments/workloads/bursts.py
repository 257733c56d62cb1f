"""Bursts with pauses between them, as steps of a job make them: every sender of a pair over one TCP connection.

    sender    ====burst====         (pause)  ====burst====
    receiver               reply ->                       reply ->

A burst begins `pause_ns` after the reply to the one before, so a flow that waits for nobody still pauses.
"""

import socket
import time
from dataclasses import dataclass

from experiments.tcp_events import TcpEvents
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

PORT = 5401
SENDERS_PORT = 15401
"""Of rank 0, and so on: with ports of its own choice a hash decides by the policy's seed alone, in every checkout."""
REPLY = b"."


@dataclass(frozen=True, kw_only=True)
class Bursts:
    """What every pair does: rank r of the first half sends to rank r of the second."""

    size_bytes: int
    count: int
    pause_ns: int
    labels: tuple[str, ...]
    """A series each; ranks line up under this label first."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One sender's or receiver's part of a series."""

    label: str
    start_ns: int
    end_ns: int
    """When the last burst was replied to; at a receiver when it had arrived."""
    burst_ns: tuple[int, ...]
    """Of each burst, from its first byte to its reply; empty at receivers."""
    reordered: int
    """Packets that came before one that was sent earlier (TcpExt TCPOFOQueue)."""
    retransmitted: int
    """Tcp RetransSegs."""
    spurious: int
    """Of these, told by the receiver to have been needless (TcpExt TCPDSACKRecv)."""


def program(rank: Rank, bursts: Bursts) -> list[Series]:
    """What every host runs."""
    half = rank.size // 2
    sends = rank.rank < half
    rank.line_up("begin")
    listener = None if sends else socket.create_server((rank.addresses[rank.rank], PORT))
    rank.line_up("listening")
    if listener is None:
        here = (rank.addresses[rank.rank], SENDERS_PORT + rank.rank)
        connection = socket.create_connection((rank.addresses[rank.rank + half], PORT), source_address=here)
    else:
        connection, _ = listener.accept()
        listener.close()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return [_series(rank, bursts, connection, label, sends=sends) for label in bursts.labels]


def _series(rank: Rank, bursts: Bursts, connection: socket.socket, label: str, *, sends: bool) -> Series:
    rank.line_up(label)
    rank.line_up(f"start {label}")
    before, start_ns, each = TcpEvents.here(), time.monotonic_ns(), []
    content = memoryview(bytearray(bursts.size_bytes))
    for _ in range(bursts.count):
        with rank.operation("burst", bursts.size_bytes) as span:
            if sends:
                connection.sendall(content)
                if connection.recv(1) != REPLY:
                    raise RunFailed(f"{rank.host}: the receiver's end of the connection is gone")
            else:
                _take(connection, content)
                connection.sendall(REPLY)
        if sends:
            each.append(span.end_ns - span.start_ns)
            time.sleep(bursts.pause_ns / 1e9)
    end_ns = time.monotonic_ns()
    rank.line_up(f"end {label}")
    seen = TcpEvents.here() - before
    return Series(
        label=label,
        start_ns=start_ns,
        end_ns=end_ns,
        burst_ns=tuple(each),
        reordered=seen.out_of_order,
        retransmitted=seen.retransmitted,
        spurious=seen.needless,
    )


def _take(connection: socket.socket, into: memoryview) -> None:
    at = 0
    while at < len(into):
        count = connection.recv_into(into[at:])
        if count == 0:
            raise RunFailed(f"a burst ended after {at} of {len(into)} bytes")
        at += count
