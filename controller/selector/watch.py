"""Tells when somebody takes the selector away from a port.

Open vSwitch deletes the ingress disciplines of a port whenever it configures it anew (its ingress policing is off, and
"off" is enforced by deleting): after a restart, after a cable came back, with the next change of its database.
"""

import errno
import socket
from struct import Struct

RTMGRP_TC = 0x8
"""linux/rtnetlink.h; also the message kinds below."""
_RTM_DELQDISC, _RTM_DELTFILTER = 37, 45
_CLSACT_PARENT, _INGRESS_PARENT = 0xFFFFFFF1, 0xFFFFFFF2
_HEADER = Struct("=IHHII")
_TCMSG = Struct("=B3xiIII")
_LARGEST = 1 << 16


class Removals(socket.socket):
    """A netlink socket that hears of every change of traffic control in this network namespace."""

    def __init__(self) -> None:
        """Listens at once."""
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self.bind((0, RTMGRP_TC))

    def take(self) -> set[int] | None:
        """Indices of interfaces that lost something on their ingress; None when too much happened to be told."""
        found: set[int] = set()
        while True:
            try:
                found |= removed(self.recv(_LARGEST))
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                return None


def removed(messages: bytes) -> set[int]:
    """The interfaces of netlink messages that say that a clsact, or a filter on its ingress, was deleted."""
    found, at = set(), 0
    while at + _HEADER.size <= len(messages):
        length, kind, *_ = _HEADER.unpack_from(messages, at)
        if kind in (_RTM_DELQDISC, _RTM_DELTFILTER):
            _, index, _, parent, _ = _TCMSG.unpack_from(messages, at + _HEADER.size)
            if parent in (_CLSACT_PARENT, _INGRESS_PARENT):
                found.add(index)
        at += max(length + 3 & ~3, _HEADER.size)
    return found
