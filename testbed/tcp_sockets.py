"""TCP sockets as the kernel itself sees them (sock_diag): congestion control and what was negotiated, per socket."""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.netlink import NetlinkSocket, attributes

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
ESTABLISHED = 1
INFO, _CONG = 2, 4
"""INET_DIAG_INFO and INET_DIAG_CONG of linux/inet_diag.h."""
_OPTIONS_OFFSET, _RETRANSMISSIONS_OFFSET, _ACKED_OFFSET = 5, 100, 120
"""In struct tcp_info: tcpi_options, tcpi_total_retrans and tcpi_bytes_acked."""
_OPT_ECN, _OPT_ECN_SEEN = 8, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TcpSocket:
    """One end of an established connection."""

    source: str
    sport: int
    destination: str
    dport: int
    cc: str
    ecn: bool
    """Both ends agreed on ECN."""
    ect_seen: bool
    """At least one packet came in that could have been marked."""
    retransmissions: int
    """Segments sent again so far."""
    acked_bytes: int
    """Payload that has arrived at the other end so far, each byte once; the SYN counts as one."""

    @property
    def name(self) -> str:
        """`10.0.1.1:5001-10.0.2.5:40000`."""
        return f"{self.source}:{self.sport}-{self.destination}:{self.dport}"


def established(diagnosis: NetlinkSocket) -> Iterator[TcpSocket]:
    """Every established IPv4 connection of the namespace that `diagnosis` (NETLINK_SOCK_DIAG) was made in."""
    extensions = 1 << (INFO - 1) | 1 << (_CONG - 1)
    # struct inet_diag_req_v2: family, protocol, extensions, pad, states, and an id that a dump ignores
    body = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, extensions, 1 << ESTABLISHED)
    for _kind, payload in diagnosis.dump(SOCK_DIAG_BY_FAMILY, body):
        yield decode(payload)


def decode(payload: bytes) -> TcpSocket:
    """struct inet_diag_msg and its attributes."""
    sport, dport = struct.unpack_from("!HH", payload, 4)
    found = attributes(payload[72:])
    info = found[INFO]
    return TcpSocket(
        source=str(IPv4Address(payload[8:12])),
        sport=sport,
        destination=str(IPv4Address(payload[24:28])),
        dport=dport,
        cc=found[_CONG].rstrip(b"\0").decode(),
        ecn=bool(info[_OPTIONS_OFFSET] & _OPT_ECN),
        ect_seen=bool(info[_OPTIONS_OFFSET] & _OPT_ECN_SEEN),
        retransmissions=struct.unpack_from("=I", info, _RETRANSMISSIONS_OFFSET)[0],
        acked_bytes=struct.unpack_from("=Q", info, _ACKED_OFFSET)[0],
    )
