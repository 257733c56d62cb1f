"""What a policy tells the selector, as a value: everything that decides about paths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from controller.path_marks import LEVELS, Widths, encode
from controller.selector.flow_hash import Flow, choose, flow_hash

NO_CHOICE: Widths = (1, 1, 1, 1)


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

    def mark(self, flow: Flow, leaf_of: Mapping[IPv4Address, str]) -> int:
        """The mark that the BPF program gives this flow: its twin in Python, equal bit for bit."""
        if flow in self.exact:
            return self.exact[flow]
        if (flow.src, flow.dst) in self.assigned:
            return self.assigned[flow.src, flow.dst]
        if flow.src not in leaf_of or flow.dst not in leaf_of:
            return 0
        widths = self.widths.get((leaf_of[flow.src], leaf_of[flow.dst]), NO_CHOICE)
        return encode([choose(flow_hash(flow, self.seeds[level]), widths[level]) for level in range(LEVELS)])
