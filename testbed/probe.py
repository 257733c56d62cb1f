"""Does every host reach every other?  Asked once, before anything is measured (pitfall P19).

One datagram from each NIC address to each address of every other host, all sockets in one process: a socket stays in
the network namespace in which it was opened.
"""

import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from testbed.namespace import Namespace
from topologies.errors import RunFailed

PORT = 9  # the discard service: nobody else listens there
TIMEOUT_S = 2.0
"""After the last datagram was sent.  The longest path of a fabric takes microseconds; a WAN link tenths of a second."""
_NAMED = 8
"""How many unreachable pairs an error names."""

Address = str


def probe(hosts: Mapping[str, tuple[Namespace, Sequence[Address]]], *, timeout_s: float = TIMEOUT_S) -> int:
    """Returns how many ordered pairs of addresses were proved.  Raises RunFailed naming the pairs that were not."""
    with ExitStack() as stack:
        sockets = {
            address: (host, stack.enter_context(_open(namespace, address)))
            for host, (namespace, addresses) in hosts.items()
            for address in addresses
        }
        poll = select.epoll()
        stack.callback(poll.close)
        by_fd = {}
        for address, (_, listener) in sockets.items():
            poll.register(listener.fileno(), select.EPOLLIN)
            by_fd[listener.fileno()] = (address, listener)
        expected, seen = set(), set[tuple[Address, Address]]()
        for source, (host, sender) in sockets.items():
            for target, (other, _) in sockets.items():
                if other != host:
                    expected.add((source, target))
                    sender.sendto(target.encode(), (target, PORT))
            seen |= _drain(poll, by_fd, 0.0)
        deadline = time.monotonic() + timeout_s
        while seen < expected and (left := deadline - time.monotonic()) > 0:
            seen |= _drain(poll, by_fd, left)
    missing = sorted(expected - seen)
    if missing:
        named = ", ".join(f"{source} -> {target}" for source, target in missing[:_NAMED])
        raise RunFailed(f"{len(missing)} of {len(expected)} pairs of hosts do not reach each other: {named}")
    return len(expected)


def _open(namespace: Namespace, address: Address) -> socket.socket:
    with namespace.entered():
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    listener.bind((address, PORT))
    return listener


def _drain(
    poll: select.epoll, by_fd: Mapping[int, tuple[Address, socket.socket]], timeout_s: float
) -> set[tuple[Address, Address]]:
    """What has arrived, as (source, target); a datagram at the wrong host counts for nobody."""
    found = set()
    for fd, _ in poll.poll(timeout_s):
        address, listener = by_fd[fd]
        while True:
            try:
                data, (source, _) = listener.recvfrom(64)
            except BlockingIOError:
                break
            if data.decode() == address:
                found.add((source, address))
    return found
