"""Writes down one rank's trace node by node: for the examples, and for runs that are recorded."""

from collections.abc import Iterable

from experiments.traces.node import WORLD, Attribute, CommType, Node, NodeType, Trace

DURATION_NS = "duration_ns"
"""Our own attribute beside duration_micros, whose resolution is too coarse for a fabric; others ignore it."""


class Builder:
    """Nodes are numbered in the order in which they are added; every method returns the new node's id."""

    def __init__(self) -> None:
        """An empty trace."""
        self._nodes: list[Node] = []

    def trace(self) -> Trace:
        """What was added so far."""
        return Trace(nodes=tuple(self._nodes))

    def compute(
        self, name: str, duration_ns: int, *, after: Iterable[int] = (), start_ns: int = 0, on_host: bool = False
    ) -> int:
        """The device is busy, or the host."""
        return self._add(name, NodeType.COMP_NODE, after, (), duration_ns, start_ns, on_host=on_host)

    def collective(
        self,
        name: str,
        kind: CommType,
        size_bytes: int,
        *,
        after: Iterable[int] = (),
        group: str = WORLD,
        duration_ns: int = 0,
        start_ns: int = 0,
    ) -> int:
        """`size_bytes` is what one rank puts in (see plan.py)."""
        own = [
            Attribute(name="comm_type", field="int64_val", value=int(kind)),
            Attribute(name="comm_size", field="int64_val", value=size_bytes),
        ]
        if group != WORLD:
            own.append(Attribute(name="pg_name", field="string_val", value=group))
        return self._add(name, NodeType.COMM_COLL_NODE, after, own, duration_ns, start_ns)

    def send(self, name: str, size_bytes: int, *, to: int, tag: int = 0, after: Iterable[int] = ()) -> int:
        """To a rank; `name` may differ from the receiver's."""
        return self._add(name, NodeType.COMM_SEND_NODE, after, _transfer(size_bytes, "comm_dst", to, tag), 0, 0)

    def receive(self, name: str, size_bytes: int, *, source: int, tag: int = 0, after: Iterable[int] = ()) -> int:
        """From a rank."""
        return self._add(name, NodeType.COMM_RECV_NODE, after, _transfer(size_bytes, "comm_src", source, tag), 0, 0)

    def _add(
        self,
        name: str,
        kind: NodeType,
        after: Iterable[int],
        own: Iterable[Attribute],
        duration_ns: int,
        start_ns: int,
        *,
        on_host: bool = False,
    ) -> int:
        number = len(self._nodes)
        attributes = [Attribute(name="is_cpu_op", field="bool_val", value=on_host), *own]
        if duration_ns % 1000:
            attributes.append(Attribute(name=DURATION_NS, field="uint64_val", value=duration_ns))
        self._nodes.append(
            Node(
                id=number,
                name=name,
                type=kind,
                data_deps=tuple(sorted(set(after))),
                start_us=start_ns // 1000,
                duration_us=duration_ns // 1000,
                attributes=tuple(attributes),
            )
        )
        return number


def _transfer(size_bytes: int, way: str, peer: int, tag: int) -> list[Attribute]:
    return [
        Attribute(name="comm_size", field="int64_val", value=size_bytes),
        Attribute(name=way, field="int32_val", value=peer),
        Attribute(name="comm_tag", field="int32_val", value=tag),
    ]
