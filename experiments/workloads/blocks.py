"""Synchronised reads over plain TCP sockets: N senders answer one receiver at the same instant.  No torch.

The oldest incast workload there is (Vasudevan et al., SIGCOMM 2009): a client asks N servers for a block each and goes
on when the last byte of the last one has arrived.
"""

import selectors
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from experiments.workloads.samples import Sample
from testbed.workers.counters import read_header_bytes
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

PORT = 5201


def program(rank: Rank, sizes_bytes: Sequence[int], repetitions: int, warmup: int) -> list[list[Sample]]:
    """Rank 0 receives, all others send; [size][repetition].  Every repetition has connections of its own."""
    with ExitStack() as stack:
        listener = (
            stack.enter_context(socket.create_server((rank.addresses[0], PORT), backlog=rank.size))
            if rank.rank == 0
            else None
        )
        rank.line_up("server listens")
        return [
            [_repetition(rank, listener, size_bytes, number) for number in range(-warmup, repetitions)]
            for size_bytes in sizes_bytes
        ]


def _repetition(rank: Rank, listener: socket.socket | None, size_bytes: int, number: int) -> Sample:
    with ExitStack() as stack:
        connections = [stack.enter_context(connection) for connection in _connect(rank, listener)]
        rank.line_up("before the blocks")
        before = rank.counters()
        rank.line_up("start of the blocks")
        with rank.operation("incast", size_bytes) as span:
            wrong = (
                _receive(connections, size_bytes, number)
                if listener is not None
                else _send(rank, connections, size_bytes, number)
            )
        rank.line_up("end of the blocks")
        return Sample(
            iteration=number,
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            wrong=wrong,
            counters=rank.counters() - before,
            header_bytes=read_header_bytes(),
        )


def _connect(rank: Rank, listener: socket.socket | None) -> list[socket.socket]:
    """The receiver's connections in rank order, or the sender's one.  Each announces itself with two bytes."""
    if listener is None:
        connection = socket.create_connection((rank.addresses[0], PORT))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(rank.rank.to_bytes(2, "big"))
        return [connection]
    found: dict[int, socket.socket] = {}
    while len(found) < rank.size - 1:
        connection, _ = listener.accept()
        found[int.from_bytes(connection.recv(2, socket.MSG_WAITALL), "big")] = connection
    return [found[sender] for sender in sorted(found)]


def block(sender: int, number: int, size_bytes: int) -> bytes:
    """What rank `sender` sends in repetition `number`: no two senders and no two repetitions in a row alike."""
    period = bytes((17 * sender + 29 * (number % 101) + i) % 251 for i in range(251))
    return (period * (size_bytes // 251 + 1))[:size_bytes]


def _send(rank: Rank, connections: Sequence[socket.socket], size_bytes: int, number: int) -> int:
    connections[0].sendall(block(rank.rank, number, size_bytes))
    return 0


def _receive(connections: Sequence[socket.socket], size_bytes: int, number: int) -> int:
    """Takes every block in as it comes; returns how many bytes are not what they must be.  Raises RunFailed."""
    arrived = [bytearray(size_bytes) for _ in connections]
    filled = [0] * len(connections)
    with selectors.DefaultSelector() as selector:
        for index, connection in enumerate(connections):
            selector.register(connection, selectors.EVENT_READ, index)
        while any(count < size_bytes for count in filled):
            for key, _ in selector.select():
                index = key.data
                count = connections[index].recv_into(memoryview(arrived[index])[filled[index] :])
                if count == 0:
                    raise RunFailed(
                        f"rank {index + 1} closed its connection after {filled[index]} of {size_bytes} bytes"
                    )
                filled[index] += count
                if filled[index] == size_bytes:
                    selector.unregister(connections[index])
    return sum(differing_bytes(got, block(sender, number, size_bytes)) for sender, got in enumerate(arrived, start=1))


def differing_bytes(got: bytes | bytearray, expected: bytes) -> int:
    """How many bytes differ, in two buffers of one length."""
    if got == expected:
        return 0
    return sum(one != other for one, other in zip(got, expected, strict=True))
