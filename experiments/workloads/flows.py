"""Flows over plain TCP, each at its instant, each on a connection of its own that was opened before.  No torch.

line-up | connect all | line-up | accept, read counters | line-up ----- start -----> last byte | line-up | counters
                                                            | at its time: sendall, in a thread per flow
"""

import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from experiments.workloads.patterns import Flow
from testbed.workers.counters import HostCounters, read_header_bytes
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

PORT = 5301
PERIOD = 251
"""Bytes after which the content repeats: prime, so that no segment begins like another."""
CHUNK_BYTES = 1024 * PERIOD
_CONTENT = bytes(i % PERIOD for i in range(CHUNK_BYTES + PERIOD))
_NUMBER = struct.Struct("!I")
_RETRANSMISSIONS_OFFSET = 100
"""Of tcpi_total_retrans in struct tcp_info."""
LOOK_S = 1.0
"""Between looks whether bytes still come: a job in which nothing begins or ends for some seconds counts as stuck."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One flow at its sender."""

    number: int
    start_ns: int
    """Of the shared clock, when the first byte was handed to TCP."""
    retransmissions: int


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """One flow at its receiver."""

    number: int
    end_ns: int
    """When its last byte was read."""
    size_bytes: int
    wrong: int
    """Pieces that were not what was sent."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a host brings back."""

    begin_ns: int
    """The common start."""
    sent: tuple[Sent, ...]
    arrived: tuple[Arrived, ...]
    counters: HostCounters
    header_bytes: int


def program(rank: Rank, flows: Sequence[Flow], hosts: Sequence[str]) -> Report:
    """What every host runs; `hosts` are in rank order."""
    outgoing = {number: flow for number, flow in enumerate(flows) if flow.source == rank.host}
    incoming = {number: flow for number, flow in enumerate(flows) if flow.destination == rank.host}
    with ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server((rank.addresses[rank.rank], PORT), backlog=max(1, len(incoming)))
        )
        rank.line_up("listening")
        senders = {
            number: stack.enter_context(_connected(rank.addresses[hosts.index(flow.destination)], number))
            for number, flow in outgoing.items()
        }
        rank.line_up("connected")
        receivers = dict(_accepted(listener, len(incoming), stack))
        rank.line_up("before the flows")
        before = rank.counters()
        rank.line_up("start of the flows")
        begin_ns = time.monotonic_ns()
        started = [_Sender(senders[number], flow, number, begin_ns) for number, flow in outgoing.items()]
        last_start_ns = begin_ns + max(flow.start_ns for flow in flows)
        arrived = _Receiver(rank, receivers, incoming, last_start_ns).receive()
        for sender in started:
            sender.join()
        rank.line_up("end of the flows")
        return Report(
            begin_ns=begin_ns,
            sent=tuple(sender.report() for sender in started),
            arrived=arrived,
            counters=rank.counters() - before,
            header_bytes=read_header_bytes(),
        )


def _connected(address: str, number: int) -> socket.socket:
    """A connection that has said which flow it is."""
    connection = socket.create_connection((address, PORT))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_NUMBER.pack(number))
    return connection


def _accepted(listener: socket.socket, count: int, stack: ExitStack) -> Iterator[tuple[int, socket.socket]]:
    for _ in range(count):
        connection, _address = listener.accept()
        stack.enter_context(connection)
        (number,) = _NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))
        yield number, connection


class _Sender:
    """Sends one flow when its time has come."""

    def __init__(self, connection: socket.socket, flow: Flow, number: int, begin_ns: int) -> None:
        self._connection, self._flow, self._number = connection, flow, number
        self._at_ns, self._start_ns = begin_ns + flow.start_ns, 0
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"flow {number}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(max(0, self._at_ns - time.monotonic_ns()) / 1e9)
        self._start_ns = time.monotonic_ns()
        content = memoryview(_CONTENT)[self._number % PERIOD :]
        try:
            for at in range(0, self._flow.size_bytes, CHUNK_BYTES):
                self._connection.sendall(content[: min(CHUNK_BYTES, self._flow.size_bytes - at)])
        except OSError as error:
            self._error = error

    def join(self) -> None:
        """Waits for the last byte to be with TCP.  Raises RunFailed."""
        self._thread.join()
        if self._error is not None:
            raise RunFailed(f"flow {self._number} from {self._flow.source}: {self._error}")

    def report(self) -> Sent:
        """Once everything was acknowledged."""
        info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RETRANSMISSIONS_OFFSET + 4)
        (again,) = struct.unpack_from("=I", info, _RETRANSMISSIONS_OFFSET)
        return Sent(number=self._number, start_ns=self._start_ns, retransmissions=again)


class _Receiver:
    """Takes all incoming flows of a host as they come."""

    def __init__(
        self, rank: Rank, connections: Mapping[int, socket.socket], flows: Mapping[int, Flow], last_start_ns: int
    ) -> None:
        self._rank, self._connections, self._flows, self._last_start_ns = rank, connections, flows, last_start_ns
        self._got, self._wrong = dict.fromkeys(flows, 0), dict.fromkeys(flows, 0)
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._arrived: list[Arrived] = []

    def receive(self) -> tuple[Arrived, ...]:
        """Until the last byte of the last flow, in the order in which flows ended.  Raises RunFailed."""
        with selectors.DefaultSelector() as selector:
            for number, connection in self._connections.items():
                selector.register(connection, selectors.EVENT_READ, number)
            while len(self._arrived) < len(self._flows):
                with self._rank.operation("flows"):
                    self._serve(selector)
        return tuple(self._arrived)

    def _serve(self, selector: selectors.BaseSelector) -> None:
        """Until a flow ends, or for a while in which bytes come or a flow has yet to start."""
        ended, until_ns = len(self._arrived), time.monotonic_ns() + round(LOOK_S * 1e9)
        while len(self._arrived) == ended:
            ready = selector.select(LOOK_S)
            for key, _ in ready:
                if self._take(key.data):
                    selector.unregister(self._connections[key.data])
            now_ns = time.monotonic_ns()
            if now_ns >= until_ns and (ready or now_ns < self._last_start_ns):
                return

    def _take(self, number: int) -> bool:
        """Reads what is there; whether the flow is complete."""
        count = self._connections[number].recv_into(self._buffer)
        flow, at = self._flows[number], self._got[number]
        if count == 0:
            raise RunFailed(f"flow {number} from {flow.source} ended after {at} of {flow.size_bytes} bytes")
        begin = (at + number) % PERIOD
        self._wrong[number] += self._buffer[:count] != _CONTENT[begin : begin + count]
        self._got[number] = at + count
        if self._got[number] < flow.size_bytes:
            return False
        self._arrived.append(
            Arrived(
                number=number,
                end_ns=time.monotonic_ns(),
                size_bytes=self._got[number],
                wrong=self._wrong[number],
            )
        )
        return True
