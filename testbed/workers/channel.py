"""Messages between a rank and its supervisor: length-prefixed pickles over a Unix socket, never over the fabric.

rank -> supervisor   Arrived, Began, Returned, Raised
supervisor -> rank   Go, Leave
"""

import pickle
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_LENGTH = struct.Struct("=Q")


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """The rank stands at a line-up and waits for Go."""

    label: str


@dataclass(frozen=True, kw_only=True)
class Began:
    """The rank's first operation begins."""

    at_ns: int


@dataclass(frozen=True, kw_only=True)
class Returned:
    """The program returned `value`; the rank keeps its connections open until Leave."""

    value: object


@dataclass(frozen=True, kw_only=True)
class Raised:
    """The program raised."""

    error: str
    """`RuntimeError: ...`, one paragraph."""
    at_ns: int


@dataclass(frozen=True, kw_only=True)
class Go:
    """Everybody has arrived: start when the monotonic clock reads `at_ns`."""

    at_ns: int


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Everybody has returned: exit now."""


Message = Arrived | Began | Returned | Raised | Go | Leave


def encode(message: Message) -> bytes:
    """A frame.  Raises what pickle raises when a program's result cannot be pickled."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Collects bytes as they come and gives whole messages."""

    def __init__(self) -> None:
        """Empty."""
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes."""
        self._pending += data
        while len(self._pending) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending)
            end = _LENGTH.size + length
            if len(self._pending) < end:
                return
            message: Message = pickle.loads(bytes(self._pending[_LENGTH.size : end]))
            del self._pending[:end]
            yield message


def receive(connection: socket.socket) -> Message:
    """Waits for one message.  Raises EOFError when the other side is gone."""
    decoder = Decoder()
    while True:
        data = connection.recv(65536)
        if not data:
            raise EOFError("the supervisor is gone")
        for message in decoder.feed(data):
            return message
