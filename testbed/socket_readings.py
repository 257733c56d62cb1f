"""TCP connections over time: raw answers of sock_diag, kept as they came and decoded at the end, thousands at once.

A reading is one dump per host.  Fields are those of struct tcp_info in linux/tcp.h of the guest's kernel (7.3).
"""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from testbed.netlink import NetlinkSocket, attributes
from testbed.tcp_sockets import ESTABLISHED, INFO, NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY
from topologies.errors import MissingFeature

if TYPE_CHECKING:
    from testbed.fabric import Fabric

FIELDS: Final[Mapping[str, tuple[str, int]]] = {
    "srtt_us": ("=u4", 68),
    "cwnd_packets": ("=u4", 80),
    "retransmitted_packets": ("=u4", 100),
    "delivery_rate_Bps": ("=u8", 160),
    "delivered_packets": ("=u4", 192),
    "delivered_ce_packets": ("=u4", 196),
    "timeouts": ("=u2", 240),
}
"""Name -> type and offset in struct tcp_info."""
_INFO_BYTES = 242
_MESSAGE_BYTES = 72
"""struct inet_diag_msg."""
_LOOPBACK = 127
_TCP_INFO: Final = np.dtype(
    {
        "names": list(FIELDS),
        "formats": [kind for kind, _ in FIELDS.values()],
        "offsets": [offset for _, offset in FIELDS.values()],
        "itemsize": _INFO_BYTES,
    }
)


@dataclass(frozen=True, kw_only=True)
class SocketColumns:
    """A row per connection and reading."""

    time_ns: NDArray[np.int64]
    """CLOCK_MONOTONIC."""
    host: NDArray[Any]
    ends: Mapping[str, NDArray[Any]]
    """local_address, local_port, remote_address, remote_port."""
    fields: Mapping[str, NDArray[np.int64]]
    """Those of FIELDS."""


@dataclass(kw_only=True)
class SocketReader:
    """Reads every established IPv4 connection of some hosts."""

    routes: Mapping[str, NetlinkSocket]
    _raw: list[tuple[int, list[tuple[str, bytes]]]] = field(default_factory=list)
    """Instant -> (host, inet_diag_msg with attributes) of each connection."""

    @classmethod
    def of(cls, fabric: "Fabric", hosts: Sequence[str], stack: ExitStack) -> "SocketReader":
        """Opens a socket in each host, which `stack` closes."""
        routes = {}
        for host in hosts:
            with fabric.net.get(host).entered():
                routes[host] = stack.enter_context(NetlinkSocket(NETLINK_SOCK_DIAG))
        return cls(routes=routes)

    def read(self) -> None:
        """One reading.  Raises KernelRefused."""
        body = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, 1 << (INFO - 1), 1 << ESTABLISHED)
        found = [
            (host, payload)
            for host, route in self.routes.items()
            for _kind, payload in route.dump(SOCK_DIAG_BY_FAMILY, body)
            if payload[8] != _LOOPBACK
        ]
        self._raw.append((time.monotonic_ns(), found))

    def thin(self) -> None:
        """Keeps every other reading, the first and the last of an odd number among them."""
        del self._raw[1::2]

    def columns(self) -> SocketColumns:
        """All readings, decoded; a connection's rows are in the order of time."""
        rows = [(time_ns, host, payload) for time_ns, found in self._raw for host, payload in found]
        table = np.frombuffer(b"".join(_info(payload) for *_, payload in rows), dtype=_TCP_INFO)
        ports = [struct.unpack_from("!HH", payload, 4) for *_, payload in rows]
        return SocketColumns(
            time_ns=np.array([time_ns for time_ns, *_ in rows], dtype=np.int64),
            host=np.array([host for _, host, _ in rows], dtype=str),
            ends={
                "local_address": np.array([_address(payload[8:12]) for *_, payload in rows], dtype=str),
                "local_port": np.array([local for local, _ in ports], dtype=np.int64),
                "remote_address": np.array([_address(payload[24:28]) for *_, payload in rows], dtype=str),
                "remote_port": np.array([remote for _, remote in ports], dtype=np.int64),
            },
            fields={name: table[name].astype(np.int64) for name in FIELDS},
        )


def _info(payload: bytes) -> bytes:
    """struct tcp_info, as far as we read it.  Raises MissingFeature for a kernel whose is shorter."""
    info = attributes(payload[_MESSAGE_BYTES:])[INFO][:_INFO_BYTES]
    if len(info) < _INFO_BYTES:
        raise MissingFeature(
            f"this kernel tells {len(info)} B of a socket (struct tcp_info), {_INFO_BYTES} are needed",
            "sample under the virtual clock, or on Linux 6.7 or later; --sample off samples nothing",
        )
    return info


@cache
def _address(octets: bytes) -> str:
    return str(IPv4Address(octets))
