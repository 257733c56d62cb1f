"""Payload between every pair of hosts, as their sockets count it: each byte once, whatever was sent again.

    with PairBytes(lab, hosts, between=("first step", "last step")) as pairs:
        lab.job(program, ..., hosts=hosts, at_line_up=pairs.look)
    pairs.counted()[0, 1]        # bytes from rank 0's host to rank 1's between line-ups of these labels

Read at line-ups, where all ranks stand.  A host may acknowledge as late as 40 ms after (Linux' delayed
acknowledgement), so sockets are read until nothing has changed for longer than that: free under the virtual clock.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from experiments.lab import SETTLE_STEP_S, SETTLE_TIMEOUT_S, Lab
from experiments.workloads.messages import Message, wire_bytes
from testbed.netlink import NetlinkSocket
from testbed.tcp_sockets import NETLINK_SOCK_DIAG, established
from topologies.errors import RunFailed

Pairs = Mapping[tuple[int, int], int]
"""(rank that sent, rank that received) -> bytes."""


class PairBytes:
    """A context manager: it holds a netlink socket per host."""

    def __init__(self, lab: Lab, hosts: Sequence[str], *, between: tuple[str, str]) -> None:
        """`hosts` in rank order."""
        self._lab, self._hosts, self._labels = lab, hosts, between
        self._rank_of = {
            str(nic.ip): rank for rank, host in enumerate(hosts) for nic in lab.topology.interfaces_of[host]
        }
        self._routes: list[NetlinkSocket] = []
        self._looks: dict[str, Pairs] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "PairBytes":
        """Opens its sockets."""
        for host in self._hosts:
            with self._lab.fabric.net.get(host).entered():
                self._routes.append(self._stack.enter_context(NetlinkSocket(NETLINK_SOCK_DIAG)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes them."""
        self._stack.close()

    def look(self, label: str) -> None:
        """Reads every connection that stands, at one of the two line-ups.  Raises RunFailed when they never rest."""
        if label not in self._labels:
            return
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        before = self._read()
        while True:
            time.sleep(SETTLE_STEP_S)  # what is awaited is that nothing is acknowledged for this long
            now = self._read()
            if now == before:
                break
            if time.monotonic() > deadline:
                raise RunFailed(f"at line-up '{label}' bytes are still being acknowledged after {SETTLE_TIMEOUT_S:g} s")
            before = now
        self._looks[label] = now

    def _read(self) -> Pairs:
        found: dict[tuple[int, int], int] = defaultdict(int)
        for rank, route in enumerate(self._routes):
            for each in established(route):
                peer = self._rank_of.get(each.destination)
                if peer is not None:
                    found[rank, peer] += each.acked_bytes
        return found

    def counted(self) -> Pairs:
        """What each pair sent between the two line-ups; pairs that sent nothing are not in it.

        Connections that opened or closed in between would be counted wrongly: process groups open theirs before.
        """
        before, after = (self._looks[label] for label in self._labels)
        return {pair: count - before.get(pair, 0) for pair, count in after.items() if count != before.get(pair, 0)}


def expected(messages: Sequence[Message]) -> Pairs:
    """What gloo's messages put on the wire for each pair, its headers included."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    for message in messages:
        one, other = wire_bytes([Message(0, 1, message.size_bytes)], ranks=2)
        found[message.src, message.dst] += one.tx
        found[message.dst, message.src] += other.tx
    return dict(found)
