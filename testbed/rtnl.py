"""The requests of rtnetlink that a fabric is made of, as pure functions from values to bytes.

Numbers are from the kernel's uapi headers: linux/rtnetlink.h, if_link.h, veth.h, fib_rules.h, neighbour.h.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from testbed.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Request, attribute, text_attribute, u32_attribute

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH, RTM_GETNEIGH, RTM_NEWRULE, RTM_GETSTATS = 20, 24, 28, 30, 32, 94
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINKINFO, IFLA_IFALIAS, IFLA_STATS64 = 1, 3, 4, 18, 20, 23
IFLA_NET_NS_FD, IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES, IFLA_GSO_MAX_SEGS = 28, 31, 32, 40
IFF_UP = 1
NUD_PERMANENT = 0x80
IFA_F_NOPREFIXROUTE = 0x200
RTAX_RTO_MIN, RTAX_INITCWND, RTAX_QUICKACK = 13, 11, 15
MAIN_TABLE = 254


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of a veth pair to be made."""

    name: str
    index: int
    """The interface index it shall have: chosen by us, so that later requests of the batch can name it."""
    mac: str
    mtu: int
    namespace: int | None = None
    """A descriptor of the network namespace it goes to; None: where the socket is."""


def ethernet(mac: str) -> bytes:
    """`02:00:0a:00:01:01` -> six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


def _link_header(index: int, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _end(end: End) -> bytes:
    parts = [
        text_attribute(IFLA_IFNAME, end.name),
        attribute(IFLA_ADDRESS, ethernet(end.mac)),
        u32_attribute(IFLA_MTU, end.mtu),
        u32_attribute(IFLA_NUM_TX_QUEUES, 1),
        u32_attribute(IFLA_NUM_RX_QUEUES, 1),
    ]
    if end.namespace is not None:
        parts.append(u32_attribute(IFLA_NET_NS_FD, end.namespace))
    return b"".join(parts)


def new_veth(one: End, other: End) -> Request:
    """Makes both ends of a cable, each in its namespace with the index it was promised."""
    peer = attribute(1, _link_header(other.index) + _end(other))  # VETH_INFO_PEER
    info = attribute(IFLA_LINKINFO, text_attribute(1, "veth") + attribute(2, peer))
    return Request(
        kind=RTM_NEWLINK,
        flags=NLM_F_CREATE | NLM_F_EXCL,
        body=_link_header(one.index) + _end(one) + info,
        what=f"create veth {one.name} - {other.name}",
    )


def set_link(*, index: int, name: str, gso_max_segs: int, alias: str) -> Request:
    """Forbids super-packets on an interface and says whose it is."""
    body = _link_header(index) + u32_attribute(IFLA_GSO_MAX_SEGS, gso_max_segs) + text_attribute(IFLA_IFALIAS, alias)
    return Request(kind=RTM_SETLINK, body=body, what=f"set gso_max_segs {gso_max_segs} and the tag of {name}")


def set_up(*, index: int, name: str, up: bool = True) -> Request:
    """Administratively up or down."""
    body = _link_header(index, IFF_UP if up else 0, IFF_UP)
    return Request(kind=RTM_NEWLINK, body=body, what=f"set {name} {'up' if up else 'down'}")


def set_address(*, index: int, name: str, mac: str) -> Request:
    """Another MAC address."""
    return Request(
        kind=RTM_SETLINK,
        body=_link_header(index) + attribute(IFLA_ADDRESS, ethernet(mac)),
        what=f"set the MAC address of {name} to {mac}",
    )


def rename_link(*, index: int, name: str, new: str) -> Request:
    """Another name; the interface must be down."""
    return Request(
        kind=RTM_SETLINK,
        body=_link_header(index) + text_attribute(IFLA_IFNAME, new),
        what=f"rename {name} to {new}",
    )


def delete_link(*, index: int, name: str) -> Request:
    """Removes an interface (and the other end of its pair)."""
    return Request(kind=RTM_DELLINK, body=_link_header(index), what=f"delete {name}")


def new_ipv4(*, index: int, name: str, ip: IPv4Address, prefix: int, prefix_route: bool) -> Request:
    """An address; with `prefix_route` the kernel also makes the route to its network."""
    flags = 0 if prefix_route else IFA_F_NOPREFIXROUTE
    body = struct.pack("=BBBBi", socket.AF_INET, prefix, 0, 0, index)
    body += attribute(1, ip.packed) + attribute(2, ip.packed) + u32_attribute(8, flags)  # IFA_ADDRESS, LOCAL, FLAGS
    return Request(
        kind=RTM_NEWADDR, flags=NLM_F_CREATE | NLM_F_REPLACE, body=body, what=f"give {name} the address {ip}/{prefix}"
    )


def new_route(
    *,
    to: IPv4Network,
    index: int,
    name: str,
    source: IPv4Address,
    table: int = MAIN_TABLE,
    metrics: Mapping[int, int],
) -> Request:
    """A route on a link; `metrics` are RTAX_* numbers (rto_min in ms, initcwnd in packets, quickack 0 or 1)."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, to.prefixlen, 0, 0, min(table, 255), 4, 253, 1, 0)
    body = header + attribute(1, to.network_address.packed) + u32_attribute(4, index) + u32_attribute(15, table)
    body += attribute(7, source.packed)
    if metrics:
        body += attribute(8, b"".join(u32_attribute(kind, value) for kind, value in metrics.items()))
    return Request(kind=RTM_NEWROUTE, flags=NLM_F_CREATE | NLM_F_REPLACE, body=body, what=f"route {to} through {name}")


def new_rule(*, source: IPv4Address, table: int, priority: int) -> Request:
    """Traffic from `source` looks its route up in `table` (source policy of a host with several NICs)."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 32, 0, min(table, 255), 0, 0, 1, 0)  # FR_ACT_TO_TBL
    body = header + attribute(2, source.packed) + u32_attribute(6, priority) + u32_attribute(15, table)
    return Request(
        kind=RTM_NEWRULE,
        flags=NLM_F_CREATE | NLM_F_EXCL,
        body=body,
        what=f"send traffic from {source} by table {table}",
    )


def new_neighbour(*, index: int, name: str, ip: IPv4Address, mac: str) -> Request:
    """A permanent ARP entry, so that nobody ever asks."""
    header = struct.pack("=BxxxiHBB", socket.AF_INET, index, NUD_PERMANENT, 0, 0)
    return Request(
        kind=RTM_NEWNEIGH,
        flags=NLM_F_CREATE | NLM_F_REPLACE,
        body=header + attribute(1, ip.packed) + attribute(2, ethernet(mac)),
        what=f"tell {name} that {ip} is {mac}",
    )
