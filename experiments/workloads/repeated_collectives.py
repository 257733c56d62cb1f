"""Equal bytes in few or many gloo all-reduces, and whether a pause before each lets TCP take its windows back.

gloo        [all-reduce][all-reduce][all-reduce] ...          one after the other, on gloo's own connections
gloo_idle   pause [all-reduce] pause [all-reduce] ...         each after a pause

An all-reduce sends its chunks over one connection, to rank - 1.  TCP shrinks that connection's window when the first of
them is handed over, which torch does not show: so a rank looks at the socket time and again while an all-reduce begins.
"""

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from experiments.workloads.repeated import count, uncorked
from testbed.netlink import NetlinkSocket, attributes
from testbed.tcp_sockets import ESTABLISHED, INFO, NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY
from testbed.workers.rank import Rank
from topologies.errors import RunFailed

MODES = ("gloo", "gloo_idle")
ELEMENT_BYTES = 4
LOOKS = 16
"""At the socket, while an all-reduce begins."""
_REMOTE_OFFSET, _MESSAGE_BYTES = 24, 72
"""In struct inet_diag_msg."""
_CWND_OFFSET, _RETRANSMISSIONS_OFFSET, _ACKED_OFFSET = 80, 100, 120
"""In struct tcp_info."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every rank does."""

    count: int
    size_bytes: int
    """Of each all-reduce."""
    gap_ns: int
    """Before each; 0 is none."""
    look_ns: int
    """Between two looks at the socket."""


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """One all-reduce as a rank and its connection to rank - 1 saw it."""

    start_ns: int
    end_ns: int
    cwnd_before: int
    """Segments, as the all-reduce before left them."""
    cwnd_least: int
    """Segments, the least that was seen while it began."""
    cwnd_end: int


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """What a rank brings back."""

    reduced: tuple[Reduced, ...]
    counted: Mapping[str, int]
    """repeated.COUNTED, of its host, over all of them."""
    retransmitted: int


def program(rank: Rank, plan: Plan) -> Exchanged:
    """What every rank runs; one more all-reduce before those that count opens the windows of fresh connections."""
    import torch
    import torch.distributed as dist

    values = torch.ones(plan.size_bytes // ELEMENT_BYTES)
    found = []
    with NetlinkSocket(NETLINK_SOCK_DIAG) as diagnosis, uncorked():
        dist.all_reduce(values)
        rank.line_up("all-reduces")
        counted, (_, again) = count(), _socket(diagnosis, rank)
        for _ in range(plan.count):
            values.fill_(1.0)
            if plan.gap_ns:
                time.sleep(plan.gap_ns / 1e9)
            before, _ = _socket(diagnosis, rank)
            with rank.operation("all_reduce", plan.size_bytes) as span:
                work = dist.all_reduce(values, async_op=True)
                least = _least(diagnosis, rank, plan.look_ns, before) if plan.gap_ns else before
                work.wait()
            if not bool((values == rank.size).all()):
                raise RunFailed(f"{rank.host}: an all-reduce gave wrong sums, expected {rank.size} everywhere")
            end, _ = _socket(diagnosis, rank)
            found.append(
                Reduced(start_ns=span.start_ns, end_ns=span.end_ns, cwnd_before=before, cwnd_least=least, cwnd_end=end)
            )
        after, (_, again_after) = count(), _socket(diagnosis, rank)
    return Exchanged(
        reduced=tuple(found),
        counted={name: after[name] - counted[name] for name in after},
        retransmitted=again_after - again,
    )


def _least(diagnosis: NetlinkSocket, rank: Rank, look_ns: int, before: int) -> int:
    """The smallest window seen; gloo's threads go on sending meanwhile."""
    least = before
    for _ in range(LOOKS):
        time.sleep(look_ns / 1e9)
        least = min(least, _socket(diagnosis, rank)[0])
    return least


def _socket(diagnosis: NetlinkSocket, rank: Rank) -> tuple[int, int]:
    """Congestion window in segments and segments sent again, of the connection to rank - 1 that has carried most."""
    peer = int(IPv4Address(rank.addresses[rank.rank - 1])).to_bytes(4, "big")
    # struct inet_diag_req_v2: family, protocol, extensions, pad, states, and an id that a dump ignores
    body = struct.pack("=BBBxI48x", 2, 6, 1 << (INFO - 1), 1 << ESTABLISHED)
    infos = [
        attributes(answer[_MESSAGE_BYTES:])[INFO]
        for _kind, answer in diagnosis.dump(SOCK_DIAG_BY_FAMILY, body)
        if answer[_REMOTE_OFFSET : _REMOTE_OFFSET + 4] == peer
    ]
    if not infos:
        raise RunFailed(f"{rank.host} has no connection to rank {(rank.rank - 1) % rank.size}")
    info = max(infos, key=lambda each: int(struct.unpack_from("=Q", each, _ACKED_OFFSET)[0]))
    cwnd, again = (struct.unpack_from("=I", info, at)[0] for at in (_CWND_OFFSET, _RETRANSMISSIONS_OFFSET))
    return cwnd, again
