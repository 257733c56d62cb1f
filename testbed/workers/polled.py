"""How many arrivals a veth took in through its NAPI poll, from its own statistics (`ethtool -S`).

A veth counts such an arrival after the Ethernet header was taken off, and every other one before (drivers/net/veth.c,
veth_xdp_rcv and veth_xmit).  Which way a packet goes depends on GRO here and TSO at the far end, so it is counted, not
guessed.
"""

import array
import errno
import fcntl
import socket
import struct
from functools import cached_property

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATISTICS = 1
"""ETH_SS_STATS."""
_NAME_BYTES = 32
"""ETH_GSTRING_LEN."""


class PolledArrivals:
    """Of one interface of the network namespace that the thread is in when this is made."""

    def __init__(self, interface: str) -> None:
        """Opens the socket that requests go through; it lives as long as this object."""
        self._interface = interface
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def read(self) -> int:
        """Packets so far; 0 for a NIC that keeps no such statistic.  Raises OSError."""
        if not self._places:
            return 0
        values = bytearray(struct.pack("=II", _GSTATS, self._length) + bytes(8 * self._length))
        self._ask(values)
        return sum(struct.unpack_from("=Q", values, 8 + 8 * place)[0] for place in self._places)

    @cached_property
    def _length(self) -> int:
        request = bytearray(struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATISTICS, 0))
        try:
            self._ask(request)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return 0
            raise
        _, _, known, length = struct.unpack("=IIQI", request)
        return int(length) if known else 0

    @cached_property
    def _places(self) -> tuple[int, ...]:
        """Where rx_queue_N_xdp_packets stand in the list."""
        if not self._length:
            return ()
        names = bytearray(struct.pack("=III", _GSTRINGS, _STATISTICS, self._length) + bytes(_NAME_BYTES * self._length))
        self._ask(names)
        found = (names[12 + i * _NAME_BYTES : 12 + (i + 1) * _NAME_BYTES].split(b"\0")[0] for i in range(self._length))
        return tuple(
            i for i, name in enumerate(found) if name.startswith(b"rx_queue_") and name.endswith(b"_xdp_packets")
        )

    def _ask(self, request: bytearray) -> None:
        buffer = array.array("B", request)
        fcntl.ioctl(
            self._socket, _SIOCETHTOOL, struct.pack("16sP8x", self._interface.encode(), buffer.buffer_info()[0])
        )
        request[:] = buffer.tobytes()
