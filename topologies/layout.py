"""Where everything goes in the picture of a fabric: pure geometry, in pixels.

LEFT     row of the highest tier       switches spread evenly, in the topology's order
         ...
         row of the leaves             each above the middle of its hosts
         hosts                         side by side, or in a column under their leaf when there are many
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topologies.capacity import levels
from topologies.graph import hosts_below, leaves
from topologies.model import Topology

LEFT = 210
"""Margin for the names of the rows."""
RIGHT = 24
TOP = 30
SWITCH_HEIGHT = 28
HOST_HEIGHT = 20
CHARACTER = 7.4
"""Widest mean advance of a character at 12 px in common sans-serif fonts."""
MOST_HOSTS_IN_A_ROW = 24
STACK_STEP = 24
"""From one host of a column to the next."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A node: its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The finished plan."""

    width: float
    height: float
    boxes: Mapping[str, Box]
    """Node name -> box."""
    rows: tuple[tuple[str, ...], ...]
    """Switch names from the top row to the leaves."""
    stacked: bool
    """Hosts are in columns under their leaves."""


def plan(topology: Topology) -> Layout:
    """Positions for every node; nothing overlaps."""
    rows = _rows(topology)
    columns = {leaf.name: [end.node for end in hosts_below(topology, leaf.name)] for leaf in leaves(topology)}
    single = sum(len(column) for column in columns.values()) == len(topology.hosts)
    stacked = single and len(topology.hosts) > MOST_HOSTS_IN_A_ROW
    names = [host.name for host in topology.hosts]
    slot = max(_width(name) for name in names) + 8
    if single:
        groups = [max(_width(leaf) + 10, (1 if stacked else len(column)) * slot) for leaf, column in columns.items()]
        needed = sum(groups)
    else:
        groups, needed = [], len(names) * slot
    room = max(needed, 420, *(len(row) * (max(_width(name) for name in row) + 12) for row in rows))
    gap = min(max(room / 8, 90), 220)
    boxes = {name: box for number, row in enumerate(rows) for name, box in _even(row, room, TOP + 20 + number * gap)}
    under = TOP + 20 + (len(rows) - 1) * gap
    if single:
        left: float = LEFT
        for (leaf, column), group in zip(columns.items(), groups, strict=True):
            share = group * room / needed
            boxes[leaf] = _box(leaf, left + share / 2, under, SWITCH_HEIGHT)
            for number, name in enumerate(column):
                x = left + share / 2 + 5 if stacked else left + (number + 0.5) * share / len(column)
                y = under + 44 + number * STACK_STEP if stacked else under + 90
                widest = max(column, key=len)  # one width, so that a column hangs on one straight trunk
                boxes[name] = _box(widest if stacked else name, x, y, HOST_HEIGHT)
            left += share
    else:
        boxes.update(_even(names, room, under + gap, height=HOST_HEIGHT))
    return Layout(
        width=LEFT + room + RIGHT,
        height=max(box.bottom for box in boxes.values()) + 22,
        boxes=boxes,
        rows=rows,
        stacked=stacked,
    )


def _rows(topology: Topology) -> tuple[tuple[str, ...], ...]:
    """Switches by level, the highest first; what no host can reach goes on top."""
    level = levels(topology)
    top = max(level.values(), default=0) + 1
    found: dict[int, list[str]] = {}
    for switch in topology.switches:
        found.setdefault(level.get(switch.name, top), []).append(switch.name)
    return tuple(tuple(found[number]) for number in sorted(found, reverse=True))


def _even(names: Sequence[str], room: float, y: float, height: float = SWITCH_HEIGHT) -> list[tuple[str, Box]]:
    step = room / len(names)
    return [(name, _box(name, LEFT + (number + 0.5) * step, y, height)) for number, name in enumerate(names)]


def _box(name: str, x: float, y: float, height: float) -> Box:
    return Box(x=x, y=y, width=_width(name), height=height)


def _width(name: str) -> float:
    return len(name) * CHARACTER + 12
