"""Datagrams at line rate: senders that only their own NIC can hold back, receivers that note when how much came.

RoCE without congestion control is what PFC was made for, and this is the nearest thing that a kernel's own stack does:
a UDP socket sends until its NIC has no room for it, and a paused NIC has none.  So every byte that is lost was lost by
a port, and every byte that is missing in time was held back by a pause.  No torch.
"""

import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.port.config import MAX_PAUSE_QUANTA
from testbed.port.pfc_frame import ETH_P_PAUSE, duration_ns, pfc_frame
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

LEAD_NS = 100_000_000
"""Between the order to start and the start: every rank is forked and listens by then."""
_PORT = 4791
"""RoCEv2's; a stream's number is added to it."""
_IP_UDP_BYTES = 28
_ETHERNET_BYTES = 14
_SEND_ROOM_BYTES = 64 << 10
"""As the kernel accounts for it: four to eight full frames, so that the NIC never runs dry and is never far ahead."""
_RECEIVE_ROOM_BYTES = 64 << 20
_SO_RCVBUFFORCE = 33
_SERIAL = struct.Struct("!Q")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One sender, one receiver, as fast as the sender's NIC takes it."""

    name: str
    source: str
    """A host."""
    destination: str
    dscp: int = 0
    start_ns: int = 0
    """After the job's common start."""
    stop_ns: int
    """Nothing is handed to the NIC from then on."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """When it all happens."""

    start_ns: int
    """Of the monotonic clock: the common start."""
    end_ns: int
    """After the start: when receivers stop to listen."""
    bin_ns: int
    payload_bytes: int
    """Of every datagram."""

    @classmethod
    def from_now(cls, *, end_ns: int, bin_ns: int, mtu: int) -> "Window":
        """Starts LEAD_NS from now, with datagrams that fill `mtu`."""
        start_ns = time.monotonic_ns() + LEAD_NS
        return cls(start_ns=start_ns, end_ns=end_ns, bin_ns=bin_ns, payload_bytes=mtu - _IP_UDP_BYTES)


@dataclass(frozen=True, kw_only=True)
class Received:
    """What one stream brought, by its receiver."""

    packets: int
    bytes: int
    """Of frames, Ethernet header included."""
    bins: tuple[int, ...]
    """Bytes in each interval since the common start."""
    lasts_ns: tuple[int, ...]
    """When the last packet of each came; -1 for an interval in which none did."""
    out_of_order: int
    first_ns: int
    """After the common start: when the first came, and the last."""
    last_ns: int

    @classmethod
    def together(cls, several: Sequence["Received"]) -> "Received":
        """What streams brought that share a port; order is a matter of each alone."""
        return cls(
            packets=sum(each.packets for each in several),
            bytes=sum(each.bytes for each in several),
            bins=tuple(map(sum, zip(*(each.bins for each in several), strict=True))),
            lasts_ns=tuple(map(max, zip(*(each.lasts_ns for each in several), strict=True))),
            out_of_order=sum(each.out_of_order for each in several),
            first_ns=min((each.first_ns for each in several if each.packets), default=0),
            last_ns=max(each.last_ns for each in several),
        )

    def between(self, begin_ns: int, end_ns: int, bin_ns: int) -> float:
        """Bits per second over the bins that lie inside, from arrival to arrival, so that no part of a packet is off.

        Where none came in the bin before, or in the last one, its end counts instead.
        """
        first, after = -(-begin_ns // bin_ns), end_ns // bin_ns
        since_ns, until_ns = (
            self.lasts_ns[edge - 1] if edge and self.lasts_ns[edge - 1] >= 0 else edge * bin_ns
            for edge in (first, after)
        )
        return sum(self.bins[first:after]) * 8e9 / (until_ns - since_ns)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What one stream handed to its NIC."""

    packets: int
    last_ns: int
    """After the common start: when the NIC last took one."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One rank's streams, by number."""

    sent: dict[int, Sent]
    received: dict[int, Received]


def udp_port(number: int) -> int:
    """Of a stream, at both ends."""
    return _PORT + number


class _Sender:
    """One stream's socket at its source."""

    def __init__(self, rank: Rank, number: int, stream: Stream, to: str, payload_bytes: int) -> None:
        self.stream, self.packets, self.last_ns = stream, 0, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, stream.dscp << 2)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_ROOM_BYTES)
        self.socket.bind((rank.addresses[rank.rank], udp_port(number)))
        self.socket.connect((to, udp_port(number)))
        self.socket.setblocking(False)
        self._rest = bytes(payload_bytes - _SERIAL.size)

    def fill(self, now_ns: int) -> None:
        """Until the NIC has no room."""
        try:
            while True:
                self.socket.send(_SERIAL.pack(self.packets) + self._rest)
                self.packets += 1
                self.last_ns = now_ns
        except BlockingIOError:
            return


class _Receiver:
    """One stream's socket at its destination."""

    def __init__(self, rank: Rank, number: int, window: Window) -> None:
        self._packets = self._bytes = self._out_of_order = self._next = self._first_ns = self._last_ns = 0
        self._bins, self._bin_ns = [0] * (window.end_ns // window.bin_ns + 1), window.bin_ns
        self._lasts_ns = [-1] * len(self._bins)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_ROOM_BYTES)
        self.socket.bind((rank.addresses[rank.rank], udp_port(number)))
        self.socket.setblocking(False)

    def drain(self, now_ns: int) -> None:
        """All that waits."""
        try:
            while True:
                data = self.socket.recv(1 << 16)
                size = len(data) + _IP_UDP_BYTES + _ETHERNET_BYTES
                (serial,) = _SERIAL.unpack_from(data)
                self._out_of_order += serial < self._next
                self._next = max(self._next, serial + 1)
                self._first_ns, self._last_ns = self._first_ns or now_ns, now_ns
                self._packets += 1
                self._bytes += size
                self._bins[now_ns // self._bin_ns] += size
                self._lasts_ns[now_ns // self._bin_ns] = now_ns
        except BlockingIOError:
            return

    def outcome(self) -> Received:
        """So far."""
        return Received(
            packets=self._packets,
            bytes=self._bytes,
            bins=tuple(self._bins),
            lasts_ns=tuple(self._lasts_ns),
            out_of_order=self._out_of_order,
            first_ns=self._first_ns,
            last_ns=self._last_ns,
        )


@dataclass(frozen=True, kw_only=True)
class Storm:
    """A broken NIC: it tells its switch to stop a class, again and again before the pause runs out."""

    host: str
    index: int
    """The class."""
    quanta: int = MAX_PAUSE_QUANTA
    rate_bps: int
    """Of its link: a quantum is 512 bit times."""
    start_ns: int
    """After the job's common start."""
    stop_ns: int
    """No frame leaves from then on; the last pause runs out by itself."""

    @property
    def pause_ns(self) -> int:
        """What one frame asks for."""
        return duration_ns(self.quanta, self.rate_bps)

    @property
    def period_ns(self) -> int:
        """Half a pause, as a sound port refreshes."""
        return self.pause_ns // 2

    @property
    def over_ns(self) -> int:
        """After the start, on the sender's side of the cable: when the last pause runs out."""
        frames = -(-(self.stop_ns - self.start_ns) // self.period_ns)
        return self.start_ns + (frames - 1) * self.period_ns + self.pause_ns


class _BrokenNic:
    """The storm's raw socket in its host."""

    def __init__(self, interface: str, storm: Storm) -> None:
        self._storm, self._next_ns = storm, storm.start_ns
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, ETH_P_PAUSE))
        self._frame = pfc_frame(source=self._socket.getsockname()[4], quanta={storm.index: storm.quanta})

    def act(self, now_ns: int) -> None:
        """Sends if it is time."""
        if self._next_ns <= now_ns and self._next_ns < self._storm.stop_ns:
            self._socket.send(self._frame)
            self._next_ns += self._storm.period_ns

    def next_ns(self, end_ns: int) -> int:
        """When it acts again."""
        return self._next_ns if self._next_ns < self._storm.stop_ns else end_ns


def program(
    rank: Rank, hosts: Sequence[str], streams: Sequence[Stream], storms: Sequence[Storm], window: Window
) -> Outcome:
    """This host's part of it all.  Raises RunFailed where the start had passed before everybody was ready."""
    address = dict(zip(hosts, rank.addresses, strict=True))
    senders = {
        number: _Sender(rank, number, stream, address[stream.destination], window.payload_bytes)
        for number, stream in enumerate(streams)
        if stream.source == rank.host
    }
    receivers = {
        number: _Receiver(rank, number, window)
        for number, stream in enumerate(streams)
        if stream.destination == rank.host
    }
    broken = [_BrokenNic(rank.interfaces[0], storm) for storm in storms if storm.host == rank.host]
    rank.line_up("sockets are bound")
    if time.monotonic_ns() > window.start_ns:
        raise RunFailed(f"the ranks were not ready {LEAD_NS / 1e6:g} ms after the order: this machine is too slow")
    with rank.operation("streams"):
        _run(list(senders.values()), list(receivers.values()), broken, window)
    return Outcome(
        sent={number: Sent(packets=each.packets, last_ns=each.last_ns) for number, each in senders.items()},
        received={number: each.outcome() for number, each in receivers.items()},
    )


def _run(
    senders: Sequence[_Sender], receivers: Sequence[_Receiver], broken: Sequence[_BrokenNic], window: Window
) -> None:
    reading = {each.socket: each for each in receivers}
    ready: list[socket.socket] = []
    while (now_ns := time.monotonic_ns() - window.start_ns) < window.end_ns:
        if now_ns < 0:
            time.sleep(-now_ns / 1e9)
            continue
        for nic in broken:
            nic.act(now_ns)
        for one in ready:
            reading[one].drain(now_ns)
        active = [each for each in senders if each.stream.start_ns <= now_ns < each.stream.stop_ns]
        for each in active:
            each.fill(now_ns)
        times = [time_ns for each in senders for time_ns in (each.stream.start_ns, each.stream.stop_ns)]
        times += [nic.next_ns(window.end_ns) for nic in broken]
        until_ns = min((time_ns for time_ns in times if time_ns > now_ns), default=window.end_ns)
        wait_s = max(0, min(until_ns, window.end_ns) - now_ns) / 1e9
        ready, _, _ = select.select(list(reading), [each.socket for each in active], [], wait_s)
    for receiver in receivers:
        receiver.drain(window.end_ns - 1)
