"""From traces to what each rank must do: which nodes meet on other ranks, in which order, and what each costs.  Pure.

    rank 0   [compute]->[all_reduce #0]->...       the k-th collective of a process group, by node id, is the same
    rank 1   [compute]->[all_reduce #0]->...       collective on all its ranks; the k-th send of (from, to, tag) goes
    rank 2   [send 2>3 #0]  ...                    to the k-th receive.  A communicator runs its own in that order.
    rank 3   [receive 2>3 #0] ...

Sizes are read as ASTRA-sim reads them: comm_size is what one rank puts in, so an all-gather leaves ranks x comm_size,
and of a reduce-scatter, a scatter or an all-to-all it is the whole array of one rank.  The members of a group (pg_name)
are the ranks that have a collective of it; without pg_name it is all ranks.  Compute takes duration_micros; where a
trace gives none, the slower of num_ops at the device's rate and tensor_size at its memory's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from experiments.traces.builder import DURATION_NS
from experiments.traces.node import WORLD, CommType, Node, NodeType, Trace
from topologies.errors import UserError

SPLIT = {CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK, CommType.SCATTER, CommType.ALL_TO_ALL}
"""Collectives whose array is cut into a part for every rank."""
DEVICE, HOST = "device", "host"
"""What computes: one node at a time each, the lowest id first, as in ASTRA-sim."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Of the modelled device, for nodes without a duration."""

    flop_per_s: float
    memory_bps: float


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Busy for so long; `unit` is empty for a node that takes no resource."""

    unit: str
    duration_ns: int


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One rank's part of it."""

    kind: CommType
    group: str
    size_bytes: int
    root: int
    """Index within the group."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """One end of a message."""

    sends: bool
    peer: int
    tag: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Action:
    """A node, ready to be played."""

    id: int
    name: str
    parents: tuple[int, ...]
    work: Compute | Collective | Transfer
    channel: str = ""
    """Communication of one channel starts in the order of its nodes' ids."""
    meeting: str = ""
    """Equal on all ranks that take part in the same communication; empty for compute."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole job."""

    actions: tuple[tuple[Action, ...], ...]
    """Per rank, by id."""
    groups: Mapping[str, tuple[int, ...]]
    """Process group -> its ranks in order."""

    @property
    def meetings(self) -> Mapping[str, list[tuple[int, Action]]]:
        """Meeting -> who takes part with what."""
        found: dict[str, list[tuple[int, Action]]] = defaultdict(list)
        for rank, actions in enumerate(self.actions):
            for action in actions:
                if action.meeting:
                    found[action.meeting].append((rank, action))
        return found


def plan_of(traces: Sequence[Trace], rates: Rates) -> Plan:
    """Checks everything.  Raises UserError naming rank and node for what could not be played to its end."""
    groups = _groups(traces)
    plan = Plan(
        actions=tuple(_actions(rank, trace, rates, groups, len(traces)) for rank, trace in enumerate(traces)),
        groups=groups,
    )
    for meeting, members in plan.meetings.items():
        _check_meeting(meeting, members, groups)
    _check_order(plan)
    return plan


def _groups(traces: Sequence[Trace]) -> dict[str, tuple[int, ...]]:
    found: dict[str, dict[int, None]] = {WORLD: dict.fromkeys(range(len(traces)))}
    for rank, trace in enumerate(traces):
        for node in trace:
            if node.type is NodeType.COMM_COLL_NODE:
                found.setdefault(node.text("pg_name", WORLD), {})[rank] = None
    return {name: tuple(found[name]) for name in sorted(found)}


def _actions(
    rank: int, trace: Trace, rates: Rates, groups: Mapping[str, tuple[int, ...]], ranks: int
) -> tuple[Action, ...]:
    known: dict[int, Node] = {}
    for node in trace:
        if node.id in known:
            raise UserError(f"rank {rank}: {node.label}: another node has this id: {known[node.id].label}")
        known[node.id] = node
    counts: dict[str, int] = defaultdict(int)
    found = []
    for node in sorted(trace, key=lambda each: each.id):
        for parent in node.parents:
            if parent not in known:
                raise UserError(f"rank {rank}: {node.label}: depends on node {parent}, which the trace does not have")
        try:
            work = _work(node, rates)
            channel = _channel(rank, work, groups, ranks)
        except UserError as error:
            raise UserError(
                f"rank {rank}: {error}" if node.label in str(error) else f"rank {rank}: {node.label}: {error}"
            ) from None
        meeting = f"{channel} #{counts[channel]}" if channel else ""
        counts[channel] += 1
        found.append(
            Action(id=node.id, name=node.name, parents=node.parents, work=work, channel=channel, meeting=meeting)
        )
    return tuple(found)


def _work(node: Node, rates: Rates) -> Compute | Collective | Transfer:
    match node.type:
        case NodeType.COMM_COLL_NODE:
            return _collective(node)
        case NodeType.COMM_SEND_NODE | NodeType.COMM_RECV_NODE:
            sends = node.type is NodeType.COMM_SEND_NODE
            return Transfer(
                sends=sends,
                peer=node.integer("comm_dst" if sends else "comm_src"),
                tag=node.integer("comm_tag", 0),
                size_bytes=node.integer("comm_size", node.integer("tensor_size", -1)),
            )
        case NodeType.METADATA_NODE:
            return Compute(unit="", duration_ns=0)
        case NodeType.INVALID_NODE:
            raise UserError("has the type INVALID_NODE")
    return Compute(unit=HOST if node.integer("is_cpu_op", 0) else DEVICE, duration_ns=duration_ns(node, rates))


def duration_ns(node: Node, rates: Rates) -> int:
    """How long a node that computes or moves memory keeps its unit busy."""
    exact_ns = node.integer(DURATION_NS, node.duration_us * 1000)
    if exact_ns:
        return exact_ns
    by_compute = node.integer("num_ops", 0) * 1e9 / rates.flop_per_s
    by_memory = node.integer("tensor_size", 0) * 8e9 / rates.memory_bps
    return round(max(by_compute, by_memory))


def _collective(node: Node) -> Collective:
    number = node.integer("comm_type")
    if number not in list(CommType):
        raise UserError(f"comm_type {number} is none of the schema's, 0 to {max(CommType)}")
    for each in node.attributes:
        if each.name == "involved_dim" and isinstance(each.value, tuple) and not all(each.value):
            raise UserError("involved_dim leaves dimensions of a torus out; name the ranks by pg_name instead")
    return Collective(
        kind=CommType(number),
        group=node.text("pg_name", WORLD),
        size_bytes=node.integer("comm_size", 0 if number == CommType.BARRIER else None),
        root=node.integer("root", 0),
    )


def _channel(
    rank: int, work: Compute | Collective | Transfer, groups: Mapping[str, tuple[int, ...]], ranks: int
) -> str:
    """Checked; empty for compute."""
    if isinstance(work, Compute):
        return ""
    if isinstance(work, Collective):
        members = len(groups[work.group])
        if not 0 <= work.root < members:
            raise UserError(f"root {work.root} is not one of the group's {members} ranks, counted from 0")
        if work.kind in SPLIT and work.size_bytes % members:
            raise UserError(f"comm_size {work.size_bytes} does not divide among the group's {members} ranks")
        if work.size_bytes <= 0 and work.kind is not CommType.BARRIER:
            raise UserError(f"comm_size {work.size_bytes}: write at least 1")
        return f"group {work.group}" if work.group != WORLD else "world"
    if work.peer == rank or not 0 <= work.peer < ranks:
        raise UserError(f"its peer {work.peer} is not another of the {ranks} ranks")
    if work.size_bytes <= 0:
        raise UserError("needs comm_size or tensor_size, at least 1")
    ends = (rank, work.peer) if work.sends else (work.peer, rank)
    return f"{ends[0]}>{ends[1]} tag {work.tag}"


def _check_meeting(meeting: str, members: Sequence[tuple[int, Action]], groups: Mapping[str, tuple[int, ...]]) -> None:
    first_rank, first = members[0]
    where = f"rank {first_rank}: node {first.id} '{first.name}'"
    if isinstance(first.work, Collective):
        wanted = groups[first.work.group]
        if missing := [rank for rank in wanted if rank not in {rank for rank, _ in members}]:
            raise UserError(f"{where} is {meeting} there, and rank {missing[0]} has no such collective")
    elif len(members) == 1:
        other = "receives" if isinstance(first.work, Transfer) and first.work.sends else "sends"
        raise UserError(f"{where} is {meeting}, and no node of the other rank {other} it")
    for rank, other_action in members[1:]:
        if _essence(other_action.work) != _essence(first.work):
            raise UserError(
                f"{where} and rank {rank}: node {other_action.id} '{other_action.name}' are both {meeting} and "
                f"must agree: {_essence(first.work)} is not {_essence(other_action.work)}"
            )


def _essence(work: Compute | Collective | Transfer) -> str:
    if isinstance(work, Collective):
        return f"{work.kind.name} of {work.size_bytes} B with root {work.root}"
    return f"{work.size_bytes} B" if isinstance(work, Transfer) else ""


def _check_order(plan: Plan) -> None:
    """No node may wait for itself, on whatever way round the ranks; a send ends when its receiver is there."""
    graph: dict[str, set[str]] = defaultdict(set)
    for vertex, before in _waits(plan):
        graph[vertex].add(before)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
        raise UserError(f"these wait for each other for ever: {' <- '.join(circle[::-1])}") from None


def _waits(plan: Plan) -> Iterator[tuple[str, str]]:
    for rank, actions in enumerate(plan.actions):
        named = {action.id: action.meeting or f"rank {rank} node {action.id} '{action.name}'" for action in actions}
        last: dict[str, str] = {}
        for action in actions:
            vertex = named[action.id]
            yield from ((vertex, named[parent]) for parent in action.parents)
            if action.channel in last and action.channel:
                yield vertex, last[action.channel]
            last[action.channel] = vertex
