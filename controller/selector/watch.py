"""Tells when somebody takes the selector away from a port.

Open vSwitch deletes the ingress disciplines of a port whenever it configures it anew (its ingress policing is off, and
"off" is enforced by deleting): after a restart, after a cable came back, with the next change of its database.
"""

import errno
import socket

from controller.selector.tc import CLSACT_PARENT, HEADER, INGRESS_PARENT, RTM_DELQDISC, RTM_DELTFILTER, RTMGRP_TC, TCMSG

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
    while at + HEADER.size <= len(messages):
        length, kind, *_ = HEADER.unpack_from(messages, at)
        complete = at + HEADER.size + TCMSG.size <= len(messages)
        if kind in (RTM_DELQDISC, RTM_DELTFILTER) and complete:
            _, index, _, parent, _ = TCMSG.unpack_from(messages, at + HEADER.size)
            if parent in (CLSACT_PARENT, INGRESS_PARENT):
                found.add(index)
        at += max(length + 3 & ~3, HEADER.size)
    return found
