"""Long flows into one host over plain TCP sockets: what a queue looks like once everything has settled.  No torch.

All start at one instant and send until `end_ns`; what arrives from `begin_ns` on counts.
"""

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from testbed.workers.counters import HostCounters
from testbed.workers.rank import Rank

PORT = 5301
CHUNK_BYTES = 256 << 10
"""Handed to a socket at once, and the most that it holds unsent: the flow ends soon after `end_ns`."""
_TCP_NOTSENT_LOWAT = 25


@dataclass(frozen=True, kw_only=True)
class Window:
    """From the common start on."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one rank saw."""

    start_ns: int
    """CLOCK_MONOTONIC, as all of them: the common start."""
    end_ns: int
    """The receiver's: when the last byte of all had come."""
    begin_ns: int = 0
    """The receiver's window, as it kept it."""
    until_ns: int = 0
    in_window_bytes: tuple[int, ...] = ()
    """Of each sender, in rank order."""
    received_bytes: int = 0
    """From start to end."""
    counters: HostCounters


def program(rank: Rank, window: Window) -> Seen:
    """Rank 0 receives, all others send."""
    with ExitStack() as stack:
        connections = [stack.enter_context(each) for each in _connect(rank, stack)]
        rank.line_up("before the flows")
        before = rank.counters()
        rank.line_up("start of the flows")
        with rank.operation("long_flows") as span:
            if rank.rank == 0:
                taken = _receive(connections, span.start_ns, window)
            else:
                _send(connections[0], span.start_ns + window.end_ns)
        rank.line_up("end of the flows")
        seen = Seen(start_ns=span.start_ns, end_ns=span.end_ns, counters=rank.counters() - before)
        return seen if rank.rank else _with_window(seen, *taken)


def _connect(rank: Rank, stack: ExitStack) -> list[socket.socket]:
    """The receiver's connections in rank order, or the sender's one.  Each announces itself with two bytes."""
    if rank.rank:
        rank.line_up("server listens")
        connection = socket.create_connection((rank.addresses[0], PORT))
        connection.sendall(rank.rank.to_bytes(2, "big"))
        return [connection]
    listener = stack.enter_context(socket.create_server((rank.addresses[0], PORT), backlog=rank.size))
    rank.line_up("server listens")
    found: dict[int, socket.socket] = {}
    while len(found) < rank.size - 1:
        connection, _ = listener.accept()
        found[int.from_bytes(connection.recv(2, socket.MSG_WAITALL), "big")] = connection
    return [found[sender] for sender in sorted(found)]


def _send(connection: socket.socket, until_ns: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, CHUNK_BYTES)
    connection.setblocking(False)
    data = bytes(CHUNK_BYTES)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_WRITE)
        while (left_ns := until_ns - time.monotonic_ns()) > 0:
            if selector.select(left_ns / 1e9):
                connection.send(data)
    connection.shutdown(socket.SHUT_WR)


def _receive(connections: Sequence[socket.socket], start_ns: int, window: Window) -> list[tuple[int, tuple[int, ...]]]:
    """Takes everything in; (time, bytes of each so far) at the arrivals next to the window's edges, and at the end."""
    counts, buffer = [0] * len(connections), bytearray(1 << 20)
    marks: list[tuple[int, tuple[int, ...]]] = []
    edges_ns = [start_ns + window.begin_ns, start_ns + window.end_ns]
    with selectors.DefaultSelector() as selector:
        for index, connection in enumerate(connections):
            selector.register(connection, selectors.EVENT_READ, index)
        while selector.get_map():
            for key, _ in selector.select():
                now_ns = time.monotonic_ns()
                if len(marks) < len(edges_ns) and now_ns >= edges_ns[len(marks)]:
                    marks.append((now_ns, tuple(counts)))
                count = connections[key.data].recv_into(buffer)
                counts[key.data] += count
                if not count:
                    selector.unregister(connections[key.data])
    return [*marks, (time.monotonic_ns(), tuple(counts))]


def _with_window(
    seen: Seen, begin: tuple[int, tuple[int, ...]], end: tuple[int, tuple[int, ...]], last: tuple[int, tuple[int, ...]]
) -> Seen:
    return replace(
        seen,
        begin_ns=begin[0],
        until_ns=end[0],
        in_window_bytes=tuple(after - before for before, after in zip(begin[1], end[1], strict=True)),
        received_bytes=sum(last[1]),
    )
