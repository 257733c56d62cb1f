"""Netlink in batches: many requests in one system call, and the kernel's own words when it refuses one.

A library that asks and waits once per object costs more wall time in the guest than the fabric itself: 128 hosts need
16,000 neighbour entries.  Here a request is bytes and a sentence; a batch is answered once, or once per refusal.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from topologies.errors import RunFailed

NLM_F_REQUEST, NLM_F_ACK, NLM_F_ECHO, NLM_F_DUMP = 0x1, 0x4, 0x8, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
NLM_F_ACK_TLVS = 0x200
NLMSG_ERROR, NLMSG_DONE = 2, 3
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
NLA_TYPE_MASK = 0x3FFF
BATCH_BYTES = 65536
"""Well below the default send buffer (212,992 B), which bounds one send."""
RECEIVE_BUFFER_BYTES = 4 << 20
"""Room for a dump's answers between two reads."""

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One change asked of the kernel."""

    kind: int
    """RTM_NEWLINK and its like."""
    flags: int = 0
    """Beyond NLM_F_REQUEST and NLM_F_ACK, which the socket sets."""
    body: bytes
    what: str
    """What it does, as a verb phrase for the error message: `create link h1-leaf1`."""


class KernelRefused(RunFailed):
    """The kernel would not do what was asked; carries the errno, what was asked and the kernel's explanation."""

    def __init__(self, *, code: int, what: str, explanation: str = "") -> None:
        """`code` is a positive errno."""
        self.code, self.what, self.explanation = code, what, explanation
        detail = f" ({explanation})" if explanation else ""
        super().__init__(f"cannot {what}: {os.strerror(code)}{detail}")


def attribute(kind: int, payload: bytes) -> bytes:
    """One type-length-value, padded to four bytes."""
    length = 4 + len(payload)
    return _ATTRIBUTE.pack(length, kind) + payload + b"\0" * (-length % 4)


def text_attribute(kind: int, text: str) -> bytes:
    """A zero-terminated string."""
    return attribute(kind, text.encode() + b"\0")


def u32_attribute(kind: int, value: int) -> bytes:
    """An unsigned 32-bit number in the machine's byte order."""
    return attribute(kind, struct.pack("=I", value))


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in `data` by type; a type that repeats keeps its last value."""
    return dict(attribute_list(data))


def attribute_list(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes in `data` in order."""
    offset = 0
    while offset + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < 4:
            return
        yield kind & NLA_TYPE_MASK, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


class NetlinkSocket:
    """A socket of one netlink protocol in the network namespace that the calling thread is in when it is made."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        """Opens it; raises OSError where the protocol is not in the kernel."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, 33, RECEIVE_BUFFER_BYTES)  # SO_RCVBUFFORCE
        self._sequence = 0
        # Made once: in the guest, a new megabyte for every answer costs more than the answer.
        self._received = memoryview(bytearray(1 << 20))

    def __enter__(self) -> "NetlinkSocket":
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Frees the descriptor; twice is harmless."""
        self._socket.close()

    def execute(self, requests: Sequence[Request]) -> None:
        """Does all of it in order.  Raises KernelRefused for the first refusal, after the batch it is in."""
        start = 0
        while start < len(requests):
            end, size = start, 0
            while end < len(requests) and (end == start or size + len(requests[end].body) + 20 <= BATCH_BYTES):
                size += len(requests[end].body) + 20
                end += 1
            refusals = self._send(requests[start:end])
            if refusals:
                raise refusals[0]
            start = end

    def refusals(self, requests: Sequence[Request]) -> list[KernelRefused]:
        """Does all of it that can be done and returns what could not: for probes and for clean-up."""
        return [refusal for request in requests for refusal in self._send([request])]

    def ask(self, requests: Sequence[Request]) -> list[bytes]:
        """The one answer of each request that reads, in order, in one batch.  Raises KernelRefused.

        The answers of a whole batch must fit into the receive buffer: a thousand or so.
        """
        first = self._sequence + 1
        self._sequence += len(requests)
        parts = [
            _HEADER.pack(16 + len(it.body), it.kind, NLM_F_REQUEST | NLM_F_ECHO, first + number, 0) + it.body
            for number, it in enumerate(requests)
        ]
        self._socket.send(b"".join(parts))
        answers: list[bytes] = []
        while len(answers) < len(requests):
            for kind, flags, sequence, payload in self._receive():
                if sequence != first + len(answers):
                    continue
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    what = requests[len(answers)].what
                    raise KernelRefused(code=code, what=what, explanation=_explanation(flags, payload))
                answers.append(payload)
        return answers

    def _send(self, requests: Sequence[Request]) -> list[KernelRefused]:
        # Only the last message asks for an answer: an answer per message would overflow the receive buffer, because
        # the kernel works the whole batch off inside the one send.  Refusals are always answered.
        first = self._sequence + 1
        parts = []
        for number, request in enumerate(requests):
            flags = NLM_F_REQUEST | request.flags | (NLM_F_ACK if number == len(requests) - 1 else 0)
            parts.append(_HEADER.pack(16 + len(request.body), request.kind, flags, first + number, 0))
            parts.append(request.body + b"\0" * (-len(request.body) % 4))
        self._sequence = last = first + len(requests) - 1
        self._socket.send(b"".join(parts))
        found = []
        while True:
            for kind, flags, sequence, payload in self._receive():
                if kind != NLMSG_ERROR or not first <= sequence <= last:
                    continue
                code = -struct.unpack_from("=i", payload)[0]
                if code:
                    what = requests[sequence - first].what
                    found.append(KernelRefused(code=code, what=what, explanation=_explanation(flags, payload)))
                if sequence == last:
                    return found

    def dump(self, kind: int, body: bytes) -> list[tuple[int, bytes]]:
        """Every (message type, payload) of a dump request.  Raises KernelRefused."""
        while True:
            self._sequence += 1
            length = 16 + len(body)
            self._socket.send(_HEADER.pack(length, kind, NLM_F_REQUEST | NLM_F_DUMP, self._sequence, 0) + body)
            answers, interrupted = self._collect(kind)
            if not interrupted:
                return answers

    def _collect(self, asked: int) -> tuple[list[tuple[int, bytes]], bool]:
        answers: list[tuple[int, bytes]] = []
        interrupted = False
        while True:
            for kind, flags, sequence, payload in self._receive():
                if sequence != self._sequence:
                    continue
                interrupted |= bool(flags & 0x10)  # NLM_F_DUMP_INTR: the table changed meanwhile
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    code = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
                    if code > 0:
                        raise KernelRefused(code=code, what=f"dump of netlink type {asked}")
                    return answers, interrupted
                answers.append((kind, payload))

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        try:
            length = self._socket.recv_into(self._received)
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                raise RunFailed("netlink lost answers: its receive buffer overflowed") from error
            raise
        data = self._received[:length].tobytes()
        offset = 0
        while offset + 16 <= len(data):
            length, kind, flags, sequence, _port = _HEADER.unpack_from(data, offset)
            yield kind, flags, sequence, data[offset + 16 : offset + length]
            offset += (length + 3) & ~3


def _explanation(flags: int, payload: bytes) -> str:
    if not flags & NLM_F_ACK_TLVS:
        return ""
    return attributes(payload[20:]).get(1, b"").rstrip(b"\0").decode(errors="replace")
