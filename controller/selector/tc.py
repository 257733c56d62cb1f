"""Hangs a BPF program on the ingress of an interface, by four netlink messages (rtnetlink(7), tc-bpf(8)).

By hand, because importing a whole netlink library costs every run most of a second of guest time.
"""

import errno
import os
import socket
from struct import Struct

from topologies.errors import MissingFeature

CLSACT_PARENT, INGRESS_PARENT = 0xFFFFFFF1, 0xFFFFFFF2
"""TC_H_CLSACT, and TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS), of linux/pkt_sched.h."""
RTM_NEWQDISC, RTM_DELQDISC, RTM_NEWTFILTER, RTM_DELTFILTER = 36, 37, 44, 45
RTMGRP_TC = 0x8
HEADER, TCMSG = Struct("=IHHII"), Struct("=B3xiIII")
"""struct nlmsghdr, struct tcmsg."""
_ATTRIBUTE, _ERROR, _NUMBER = Struct("=HH"), Struct("=i"), Struct("=I")
_CLSACT_HANDLE = 0xFFFF0000
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_KIND, _OPTIONS = 1, 2
_BPF_FD, _BPF_NAME, _BPF_FLAGS = 6, 7, 8
"""TCA_BPF_* of linux/pkt_cls.h."""
_DIRECT_ACTION = 1
_NLMSG_ERROR = 2
PREFERENCE, FILTER_HANDLE = 1, 1
"""Our filter comes first on its port; with a fixed handle a new controller replaces the filter of a killed one."""
_ETH_P_ALL = 0x0003


class TrafficControl(socket.socket):
    """A netlink socket that sets clsact and BPF filters in this network namespace."""

    def __init__(self) -> None:
        """Opens it."""
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._sequence = 0

    def add_clsact(self, index: int) -> bool:
        """Whether it was added: False where there was one.  Raises OSError."""
        body = TCMSG.pack(0, index, _CLSACT_HANDLE, CLSACT_PARENT, 0) + _text(_KIND, "clsact")
        return self._ask(RTM_NEWQDISC, _CREATE | _EXCLUSIVE, body, tolerated=errno.EEXIST)

    def delete_clsact(self, index: int) -> bool:
        """With everything on it.  Whether there was one.  Raises OSError."""
        body = TCMSG.pack(0, index, _CLSACT_HANDLE, CLSACT_PARENT, 0) + _text(_KIND, "clsact")
        return self._ask(RTM_DELQDISC, 0, body, tolerated=errno.EINVAL)

    def set_filter(self, index: int, program: int, name: str) -> None:
        """Puts a program of the kernel, by its descriptor, in place of ours.  Raises OSError."""
        options = _attribute(_BPF_FD, _NUMBER.pack(program)) + _text(_BPF_NAME, name)
        options += _attribute(_BPF_FLAGS, _NUMBER.pack(_DIRECT_ACTION))
        body = _filter(index, FILTER_HANDLE) + _text(_KIND, "bpf") + _attribute(_OPTIONS, options)
        self._ask(RTM_NEWTFILTER, _CREATE | _REPLACE, body)

    def delete_filter(self, index: int) -> bool:
        """Only ours.  Whether there was one.  Raises OSError."""
        body = _filter(index, FILTER_HANDLE) + _text(_KIND, "bpf")
        return self._ask(RTM_DELTFILTER, 0, body, tolerated=errno.ENOENT)

    def _ask(self, kind: int, flags: int, body: bytes, *, tolerated: int = 0) -> bool:
        self._sequence += 1
        size = HEADER.size + len(body)
        self.send(HEADER.pack(size, kind, _REQUEST | _ACK | flags, self._sequence, 0) + body)
        reply = self.recv(1 << 16)
        if HEADER.unpack_from(reply)[1] != _NLMSG_ERROR:
            raise OSError(errno.EPROTO, "no acknowledgement from netlink")
        code = -_ERROR.unpack_from(reply, HEADER.size)[0]
        if code == errno.EPERM:
            raise MissingFeature("no right to change traffic control here", "run the controller as root")
        if code not in (0, tolerated):
            raise OSError(code, os.strerror(code))
        return bool(code == 0)


def _filter(index: int, handle: int) -> bytes:
    return TCMSG.pack(0, index, handle, INGRESS_PARENT, PREFERENCE << 16 | socket.htons(_ETH_P_ALL))


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")
