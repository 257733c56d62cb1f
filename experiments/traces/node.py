"""A trace as values: nodes with their dependencies and attributes, as Chakra's schema has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from topologies.errors import UserError

Value = bool | int | float | str | bytes | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
WORLD = ""
"""The process group of all ranks."""


class NodeType(IntEnum):
    """What a node does."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


class CommType(IntEnum):
    """Which collective."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """A named value of one of the schema's thirty types."""

    name: str
    field: str
    """Of the schema: `int64_val`, `string_list`; empty for none."""
    value: Value | None = None
    doc: str = ""


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """What a node reads or writes, as the schema has it: three texts."""

    values: str = ""
    shapes: str = ""
    types: str = ""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operation of one rank."""

    id: int
    name: str
    type: NodeType
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    inputs: Tensors | None = None
    outputs: Tensors | None = None
    attributes: tuple[Attribute, ...] = ()

    @property
    def parents(self) -> tuple[int, ...]:
        """All that must end before it starts, each once."""
        return tuple(dict.fromkeys((*self.ctrl_deps, *self.data_deps)))

    @property
    def label(self) -> str:
        """For messages."""
        return f"node {self.id} '{self.name}'"

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number.  Raises UserError where it is something else, or absent and needed."""
        for each in self.attributes:
            if each.name == name:
                if isinstance(each.value, int):
                    return int(each.value)
                raise UserError(f"{self.label}: attribute {name} is {each.value!r}, not a whole number")
        if default is None:
            raise UserError(f"{self.label}: a {self.type.name} needs the attribute {name}")
        return default

    def text(self, name: str, default: str) -> str:
        """An attribute that is text; numbers are taken as written."""
        for each in self.attributes:
            if each.name == name and each.value is not None:
                return str(each.value)
        return default


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one rank does."""

    nodes: tuple[Node, ...]
    version: str = "1.0.0"
    attributes: tuple[Attribute, ...] = ()

    def __iter__(self) -> Iterator[Node]:
        """Over its nodes, in the order of the file."""
        return iter(self.nodes)
