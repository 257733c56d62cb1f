"""A queue held at a known depth, open loop: what a port does at that depth, in exact counts.  No torch.

    h2 ==line rate==>\\              h2 sends as fast as its NIC, which is as fast as the port empties;
                      [s1]===> h1    h3 adds `depth` bytes at the start, and they stay until h2 ends
    h3 --one burst-->/

Datagrams that take part in ECN (ECT), so that nothing answers to what the port does.
"""

import socket
from dataclasses import dataclass
from typing import cast

import numpy as np

from experiments.lab import Lab
from testbed.sampler import Sampler, Series
from testbed.workers.rank import Rank
from topologies.errors import RunFailed, UserError

PORT = 5401
ECT_0 = 2
HEADER_BYTES = 42
"""Ethernet, IPv4, UDP."""
LEAST_SAMPLES = 10
_ROOM_BYTES = 64 << 20
_SO_RCVBUFFORCE = 33
_QUIET_S = 0.001
"""No datagram for so long: all have come or will not."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the port did while the queue stood still."""

    queue_bytes: float
    """Mean of the samples."""
    sent: int
    marked: int
    dropped: int
    """From first to last, not only meanwhile."""

    @property
    def share(self) -> float:
        """Of the packets sent meanwhile."""
        return self.marked / self.sent


def held_queue(lab: Lab, *, depth_bytes: int, packets: int, frame_bytes: int, period_ns: int) -> Held:
    """Holds about `depth_bytes` (whole frames) in the port to the first host while `packets` leave it.

    Raises UserError without three hosts, RunFailed when the queue did not stand still for ten samples.
    """
    hosts = [host.name for host in lab.topology.hosts][:3]
    if len(hosts) < 3:
        raise UserError("holding a queue takes three hosts: a receiver, a stream and a burst")
    nic = lab.topology.interfaces_of[hosts[0]][0]
    hot = lab.topology.peer_of[nic.name].name
    before = lab.sample()[hot].port.dropped_packets
    counts = (0, packets + depth_bytes // frame_bytes, depth_bytes // frame_bytes)
    with Sampler(lab.fabric, interfaces=[hot], period_ns=period_ns) as sampler:
        took_ns = cast("list[int]", lab.job(program, counts, frame_bytes, hosts=hosts, process_group=False))
    lab.add_busy_ns(took_ns[0])
    dropped = lab.sample()[hot].port.dropped_packets - before
    return plateau(sampler.series()[hot], depth_bytes=depth_bytes, frame_bytes=frame_bytes, dropped=dropped)


def program(rank: Rank, counts: tuple[int, ...], frame_bytes: int) -> int:
    """This rank's datagrams; how long it took, in nanoseconds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT_0)
        if rank.rank == 0:
            udp.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM_BYTES)
            udp.bind((rank.addresses[0], PORT))
        rank.line_up("socket is bound")
        with rank.operation("held_queue") as span:
            if rank.rank == 0:
                _receive(udp, sum(counts))
            payload = bytes(frame_bytes - HEADER_BYTES)
            for _ in range(counts[rank.rank]):
                udp.sendto(payload, (rank.addresses[0], PORT))
        return span.duration_ns


def _receive(udp: socket.socket, expected: int) -> None:
    """Until all have come, or nothing more does: the port dropped the rest, and its counters say so."""
    udp.settimeout(_QUIET_S)
    try:
        for _ in range(expected):
            udp.recv(1 << 16)
    except TimeoutError:
        return


def plateau(series: Series, *, depth_bytes: int, frame_bytes: int, dropped: int) -> Held:
    """Between the first and the last sample within a frame of the depth.  Raises RunFailed for less than ten."""
    at_depth = np.abs(series["queue_bytes"] - depth_bytes // frame_bytes * frame_bytes) <= 2 * frame_bytes
    held = np.flatnonzero(at_depth)
    if len(held) < LEAST_SAMPLES or len(held) != held[-1] - held[0] + 1:
        raise RunFailed(
            f"the queue did not stand still at {depth_bytes} B: {len(held)} samples there, {dropped} packets dropped; "
            "the port needs room for it (a larger buffer), and the stream more packets"
        )
    first, last = int(held[0]), int(held[-1])
    sent, marked = series.total("sent_packets"), series.total("marked")
    return Held(
        queue_bytes=float(np.mean(series["queue_bytes"][first : last + 1])),
        sent=int(sent[last] - sent[first]),
        marked=int(marked[last] - marked[first]),
        dropped=dropped,
    )
