"""What a policy tells the selector, as a value: everything that decides about paths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address

from controller.path_marks import LEVELS, Widths, encode
from controller.selector.flow_hash import MASK, Flow, choose, flow_hash, scramble
from topologies.errors import InternalError, UserError

NO_CHOICE: Widths = (1, 1, 1, 1)
MOST_SLOTS = 1 << 14
"""Of the flowlet table."""
MOST_ROUTES = 16
"""Between two leaves, for a choice that compares their loads."""
MOST_PLACES = 64
"""Between two leaves, for a choice by hash: a route takes as many as it weighs."""
MOST_LINKS = (1 << 13) - 1
LINKS_OF_A_ROUTE = 4


class Choice(IntEnum):
    """How a path is chosen where no entry says it: `enum choice` of spreading.h."""

    HASH = 0
    """A hash per level, over `widths`."""
    WEIGHTED = 1
    """A hash over `routes`, where a route may stand several times."""
    ROUND_ROBIN = 2
    LOCAL = 3
    """The route whose first link is least loaded."""
    CONGESTION = 4
    """The route whose busiest link is least loaded."""
    DRILL = 5
    """The least loaded first link of two drawn ones and the one chosen last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One way from leaf to leaf."""

    mark: int
    links: tuple[str, ...]
    """The egress interfaces between the two leaves, the first leaf's uplink first."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Seeds, widths and exact entries; the twin of the BPF program's tables."""

    seeds: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Of the hashes at levels 1 to 4."""
    widths: Mapping[tuple[str, str], Widths]
    """(leaf of the source, leaf of the destination) -> choices per level; a pair that is absent has choice 0 only."""
    assigned: Mapping[tuple[IPv4Address, IPv4Address], int] = field(default_factory=dict)
    """(source, destination) -> mark, before any hash."""
    exact: Mapping[Flow, int] = field(default_factory=dict)
    """Flow -> mark, before its pair's."""
    choice: Choice = Choice.HASH
    routes: Mapping[tuple[str, str], tuple[Route, ...]] = field(default_factory=dict)
    """(leaf of the source, leaf of the destination) -> what every other choice than HASH chooses among."""
    cost_ps: Mapping[str, int] = field(default_factory=dict)
    """Egress interface -> wire time of a byte, for choices by load."""
    gap_ns: int | None = None
    """A flow that paused so long chooses again, at 0 with every packet; None: it keeps its path."""
    slots: int = MOST_SLOTS
    """Entries of the flowlet table; flows that meet in one evict each other."""

    def __post_init__(self) -> None:
        """Raises InternalError for what contradicts itself, UserError for more paths than can be compared."""
        if self.by_flowlet and (self.exact or self.assigned):
            raise InternalError("a selection has either flowlets or exact entries")
        if not 1 <= self.slots <= MOST_SLOTS:
            raise InternalError(f"{self.slots} slots are not 1 to {MOST_SLOTS}")
        if self.by_load and max(map(len, self.routes.values()), default=0) > MOST_ROUTES:
            raise UserError(
                f"at most {MOST_ROUTES} paths between two leaves can be compared by load; use choice=random"
            )

    @property
    def by_load(self) -> bool:
        """Whether the choice looks at links."""
        return self.choice >= Choice.LOCAL

    @property
    def by_flowlet(self) -> bool:
        """Whether the flowlet table is in use: flows choose again, or their bytes count as load."""
        return self.gap_ns is not None or self.by_load

    def mark(self, flow: Flow, leaf_of: Mapping[IPv4Address, str], number: int = 0) -> int:
        """The mark that the BPF program gives this flow: its twin in Python, equal bit for bit.

        `number` counts its flowlets from 0.  Raises InternalError for choices by load: they depend on other flows.
        """
        if flow in self.exact:
            return self.exact[flow]
        if (flow.src, flow.dst) in self.assigned:
            return self.assigned[flow.src, flow.dst]
        if flow.src not in leaf_of or flow.dst not in leaf_of:
            return 0
        pair = leaf_of[flow.src], leaf_of[flow.dst]
        if self.choice == Choice.HASH:
            widths = self.widths.get(pair, NO_CHOICE)
            return encode([choose(self._draw(flow, level, number), widths[level]) for level in range(LEVELS)])
        if pair not in self.routes:
            return 0
        return self._routed(flow, self.routes[pair], number).mark

    def _routed(self, flow: Flow, routes: tuple[Route, ...], number: int) -> Route:
        if self.choice == Choice.WEIGHTED:
            return routes[choose(self._draw(flow, 0, number), len(routes))]
        if self.choice == Choice.ROUND_ROBIN:
            first = choose(self._draw(flow, 0, 0), len(routes))
            return routes[((first + number) & MASK) % len(routes)]
        raise InternalError(f"{self.choice.name} depends on what other flows sent")

    def _draw(self, flow: Flow, level: int, number: int) -> int:
        return flow_hash(flow, self.seeds[level] ^ scramble(number & MASK))
