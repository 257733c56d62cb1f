"""Plays one rank's part of a plan: compute by sleeping, collectives and messages by torch on gloo.

A node starts when its parents have ended, its unit is free (compute) and it is next in its channel (communication).
Every node under way has a thread that waits for its end; the main thread starts the others.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import torch
import torch.distributed as dist

from experiments.traces.node import CommType
from experiments.traces.plan import Action, Collective, Compute, Plan, Transfer
from experiments.traces.timing import Event, Played
from testbed.workers.counters import read_header_bytes
from testbed.workers.rank import Rank

LOOK_S = 1.0
"""Between two looks whether compute is under way: the job would otherwise take a long node for a rank that is stuck."""


class Work(Protocol):
    """Torch's handle of a communication under way."""

    def wait(self) -> Any:
        """Until this rank's part is complete."""


def play(rank: Rank, plan: Plan) -> Played:
    """What every rank runs.  Times count from the instant at which all ranks set out."""
    groups = {name: _group(plan, members) for name, members in plan.groups.items()}
    rank.line_up("process groups stand")
    before = rank.counters()
    rank.line_up("first node")
    began_ns = time.monotonic_ns()
    threads = ThreadPoolExecutor(max_workers=len(plan.actions[rank.rank]) + 1)
    try:
        events = _Player(rank, plan, groups, threads).play()
    finally:
        threads.shutdown(wait=False)  # after a failure others wait for peers that never come, and would hide it
    rank.line_up("last node")
    counters = rank.counters() - before
    header_bytes = read_header_bytes()
    return Played(
        events=tuple(
            Event(node=node, start_ns=start - began_ns, end_ns=end - began_ns) for node, (start, end) in events.items()
        ),
        tx_bytes=counters.tx_payload_bytes(header_bytes),
        rx_bytes=counters.rx_payload_bytes(header_bytes),
        tx_packets=counters.tx_packets,
        rx_packets=counters.rx_packets,
        retransmissions=counters.retransmitted_segments,
    )


def _group(plan: Plan, members: tuple[int, ...]) -> Any:
    """All ranks make all groups, members or not: torch demands it."""
    return dist.group.WORLD if len(members) == len(plan.actions) else dist.new_group(list(members))


@dataclass(kw_only=True)
class _UnderWay:
    action: Action
    start_ns: int


class _Player:
    def __init__(self, rank: Rank, plan: Plan, groups: Mapping[str, Any], threads: ThreadPoolExecutor) -> None:
        self._rank, self._plan, self._groups, self._threads = rank, plan, groups, threads
        actions = plan.actions[rank.rank]
        self._waiting = {action.id: len(action.parents) for action in actions}
        self._children: dict[int, list[int]] = defaultdict(list)
        self._todo = {action.id: action for action in actions}
        self._turn: dict[str, list[int]] = defaultdict(list)
        for action in actions:
            if action.channel:
                self._turn[action.channel].append(action.id)
            for parent in action.parents:
                self._children[parent].append(action.id)
        self._ready = sorted(node for node, count in self._waiting.items() if count == 0)
        self._busy: set[str] = set()
        self._ended: SimpleQueue[tuple[_UnderWay, Future[int]]] = SimpleQueue()

    def play(self) -> dict[int, tuple[int, int]]:
        """Node -> start and end."""
        found: dict[int, tuple[int, int]] = {}
        while len(found) < len(self._todo):
            while (node := self._startable()) is not None:
                self._ready.remove(node)
                self._start(self._todo[node])
            with self._rank.operation("nodes of the trace"):
                try:
                    under_way, future = self._ended.get(timeout=LOOK_S if self._busy else None)
                except Empty:
                    continue
            found[under_way.action.id] = (under_way.start_ns, future.result())
            self._finish(under_way.action)
        return found

    def _startable(self) -> int | None:
        """The lowest id of those that may start now."""
        for node in self._ready:
            action = self._todo[node]
            if isinstance(action.work, Compute):
                if action.work.unit not in self._busy:
                    return node
            elif self._turn[action.channel][0] == node:
                return node
        return None

    def _start(self, action: Action) -> None:
        under_way = _UnderWay(action=action, start_ns=time.monotonic_ns())
        end: Callable[[], object]
        if isinstance(action.work, Compute):
            if action.work.unit:
                self._busy.add(action.work.unit)
            end = partial(time.sleep, action.work.duration_ns / 1e9) if action.work.duration_ns else _nothing
        else:
            self._turn[action.channel].pop(0)
            buffers, work = self._communicate(action.work)
            end = partial(_wait, buffers, work)
        self._threads.submit(_ended_ns, end).add_done_callback(lambda future: self._ended.put((under_way, future)))

    def _finish(self, action: Action) -> None:
        if isinstance(action.work, Compute):
            self._busy.discard(action.work.unit)
        for child in self._children[action.id]:
            self._waiting[child] -= 1
            if self._waiting[child] == 0:
                self._ready = sorted([*self._ready, child])

    def _communicate(self, work: Collective | Transfer) -> tuple[object, Work | None]:
        """Starts it.  The buffers must live until it ends."""
        if isinstance(work, Transfer):
            array = _array(work.size_bytes)
            started = (
                dist.isend(array, work.peer, tag=work.tag) if work.sends else dist.irecv(array, work.peer, tag=work.tag)
            )
            return array, started
        members = self._plan.groups[work.group]
        return COLLECTIVES[work.kind](
            _Call(
                size_bytes=work.size_bytes,
                ranks=len(members),
                root=members[work.root],
                is_root=members[work.root] == self._rank.rank,
                group=self._groups[work.group],
            )
        )


def _nothing() -> None:
    pass


def _wait(_buffers: object, work: Work | None) -> None:
    if work is not None:
        work.wait()


def _ended_ns(end: Callable[[], object]) -> int:
    end()
    return time.monotonic_ns()


def _array(size_bytes: int) -> torch.Tensor:
    """float32 where the size allows it, bytes where not."""
    return torch.zeros(size_bytes // 4) if size_bytes % 4 == 0 else torch.zeros(size_bytes, dtype=torch.uint8)


@dataclass(frozen=True, kw_only=True)
class _Call:
    size_bytes: int
    ranks: int
    root: int
    is_root: bool
    group: Any

    def array(self, size_bytes: int) -> torch.Tensor:
        """float32 where the whole array and its parts are multiples of it, bytes where not."""
        if self.size_bytes % (4 * self.ranks) == 0:
            return torch.zeros(size_bytes // 4)
        return torch.zeros(size_bytes, dtype=torch.uint8)


Started = tuple[object, Work | None]


def _all_reduce(call: _Call) -> Started:
    array = _array(call.size_bytes)
    return array, dist.all_reduce(array, group=call.group, async_op=True)


def _reduce(call: _Call) -> Started:
    array = _array(call.size_bytes)
    return array, dist.reduce(array, dst=call.root, group=call.group, async_op=True)


def _broadcast(call: _Call) -> Started:
    array = _array(call.size_bytes)
    return array, dist.broadcast(array, src=call.root, group=call.group, async_op=True)


def _all_gather(call: _Call) -> Started:
    mine, whole = call.array(call.size_bytes), call.array(call.size_bytes * call.ranks)
    return (mine, whole), dist.all_gather_into_tensor(whole, mine, group=call.group, async_op=True)


def _reduce_scatter(call: _Call) -> Started:
    whole, mine = call.array(call.size_bytes), call.array(call.size_bytes // call.ranks)
    return (mine, whole), dist.reduce_scatter_tensor(mine, whole, group=call.group, async_op=True)


def _all_to_all(call: _Call) -> Started:
    outgoing, incoming = call.array(call.size_bytes), call.array(call.size_bytes)
    return (outgoing, incoming), dist.all_to_all_single(incoming, outgoing, group=call.group, async_op=True)


def _gather(call: _Call) -> Started:
    mine = call.array(call.size_bytes)
    parts = [call.array(call.size_bytes) for _ in range(call.ranks)] if call.is_root else None
    return (mine, parts), dist.gather(mine, parts, dst=call.root, group=call.group, async_op=True)


def _scatter(call: _Call) -> Started:
    mine = call.array(call.size_bytes // call.ranks)
    parts = [call.array(call.size_bytes // call.ranks) for _ in range(call.ranks)] if call.is_root else None
    return (mine, parts), dist.scatter(mine, parts, src=call.root, group=call.group, async_op=True)


def _barrier(call: _Call) -> Started:
    return None, dist.barrier(group=call.group, async_op=True)


COLLECTIVES: Mapping[CommType, Callable[[_Call], Started]] = {
    CommType.ALL_REDUCE: _all_reduce,
    CommType.REDUCE: _reduce,
    CommType.BROADCAST: _broadcast,
    CommType.ALL_GATHER: _all_gather,
    CommType.REDUCE_SCATTER: _reduce_scatter,
    CommType.REDUCE_SCATTER_BLOCK: _reduce_scatter,
    CommType.ALL_TO_ALL: _all_to_all,
    CommType.GATHER: _gather,
    CommType.SCATTER: _scatter,
    CommType.BARRIER: _barrier,
}
