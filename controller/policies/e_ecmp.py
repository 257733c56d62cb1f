"""E-ECMP: the hash takes the one field more that tells the connections of a pair of hosts apart.

RoCE's queue pairs between two hosts share addresses and ports; Meta's switches therefore hash the destination queue
pair as well, and the library spreads messages over many pairs (facts.md 1.3).  TCP's analogue of a queue pair is a
connection, and its port is the field.  With `field=no` the hash sees addresses only: what a fabric does to queue pairs
that look alike, however many there are.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from controller.path_marks import Widths, encode
from controller.policies.base import Policy, Situation, parameter, whole, yes_no
from controller.selector.flow_hash import TCP, Flow, choose, derive_seeds, flow_hash
from controller.selector.selection import NO_CHOICE, Selection
from topologies.errors import UserError
from topologies.graph import hosts_below

MOST_PAIRS = 1 << 16
"""Exact entries that the selector's table holds."""


@dataclass(frozen=True, kw_only=True)
class EEcmp(Policy):
    """Hashes addresses, and ports unless told otherwise."""

    name: ClassVar[str] = "e_ecmp"
    summary: ClassVar[str] = "a hash per connection; field=no hashes addresses only, so all of a pair's go one way"

    seed: int | None = parameter(None, whole, "of the hashes; by default the run's seed")
    field: bool = parameter(True, yes_no, "no: the hash does not see the ports")

    def selection(self, situation: Situation) -> Selection:
        """With the field the data path hashes; without it every pair has an exact entry.  Raises UserError."""
        seeds = derive_seeds(self.name, situation.seed if self.seed is None else self.seed)
        if self.field:
            return Selection(seeds=seeds, widths=situation.widths)
        assigned = {}
        for (here, there), widths in situation.widths.items():
            for source in hosts_below(situation.topology, here):
                for destination in hosts_below(situation.topology, there):
                    if source.ip is not None and destination.ip is not None:
                        assigned[source.ip, destination.ip] = _mark(source.ip, destination.ip, seeds, widths)
        if len(assigned) > MOST_PAIRS:
            raise UserError(
                f"policy e_ecmp: field=no needs {len(assigned)} entries, the selector holds {MOST_PAIRS}; "
                "use fewer hosts"
            )
        return Selection(seeds=seeds, widths=dict.fromkeys(situation.widths, NO_CHOICE), assigned=assigned)


def _mark(source: IPv4Address, destination: IPv4Address, seeds: tuple[int, int, int, int], widths: Widths) -> int:
    flow = Flow(src=source, dst=destination, proto=TCP, sport=0, dport=0)
    return encode([choose(flow_hash(flow, seed), width) for seed, width in zip(seeds, widths, strict=True)])
