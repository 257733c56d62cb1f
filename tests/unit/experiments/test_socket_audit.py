"""Sockets as the kernel reports them, byte by byte, and what the audit makes of them."""

import socket
import struct

from experiments.socket_audit import Asked, SocketAudit
from testbed.netlink import attribute
from testbed.tcp_sockets import TcpSocket, decode


def reading(cc: str = "dctcp", *, ecn: bool = True, sport: int = 5001) -> TcpSocket:
    """struct inet_diag_msg with TCP_INFO and the congestion control's name, as Linux lays them out."""
    info = bytearray(232)
    info[5] = 8 | 16 if ecn else 2
    struct.pack_into("=I", info, 100, 17)
    struct.pack_into("=Q", info, 120, 1 << 40)
    addresses = socket.inet_aton("10.0.1.1").ljust(16, b"\0") + socket.inet_aton("10.0.2.5").ljust(16, b"\0")
    head = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + struct.pack("!HH", sport, 40_000) + addresses
    head = head.ljust(72, b"\0")
    return decode(head + attribute(2, bytes(info)) + attribute(4, cc.encode() + b"\0"))


def test_a_reading_is_decoded() -> None:
    found = reading()
    assert found.name == "10.0.1.1:5001-10.0.2.5:40000"
    assert (found.cc, found.ecn, found.ect_seen, found.retransmissions) == ("dctcp", True, True, 17)
    assert found.acked_bytes == 1 << 40
    assert not reading(ecn=False).ecn


def test_sockets_as_asked_are_counted() -> None:
    audit = SocketAudit()
    for job in (1, 2):
        audit.note([reading(sport=1), reading(sport=2)], job=job, asked=Asked(cc="dctcp", ecn=True))
    audit.note([reading(sport=1)], job=2, asked=Asked(cc="dctcp", ecn=True))
    assert audit.faults() == []
    assert audit.section() == {"seen": 4, "cc": {"dctcp": 4}, "ecn_negotiated": 4, "ect_seen": 4, "as_asked": True}


def test_a_socket_that_runs_something_else_is_named() -> None:
    audit = SocketAudit()
    audit.note([reading("cubic", ecn=False)], job=1, asked=Asked(cc="dctcp", ecn=True))
    assert audit.faults() == [
        "job 1, socket 10.0.1.1:5001-10.0.2.5:40000: runs cubic, dctcp was asked for",
        "job 1, socket 10.0.1.1:5001-10.0.2.5:40000: ECN not negotiated, the opposite was asked for",
    ]
    assert audit.section()["as_asked"] is False


def test_ecn_that_nobody_asked_for_is_a_fault_too() -> None:
    audit = SocketAudit()
    audit.note([reading("cubic", ecn=True)], job=1, asked=Asked(cc="cubic", ecn=False))
    assert len(audit.faults()) == 1


def test_many_faults_are_summed_up() -> None:
    audit = SocketAudit()
    audit.note([reading("reno", sport=n) for n in range(20)], job=1, asked=Asked(cc="dctcp", ecn=True))
    assert audit.faults()[-1] == "and 15 more sockets like it"
