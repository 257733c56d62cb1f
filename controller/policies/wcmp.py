"""Weighted-cost multi-path: ECMP whose paths get shares of the flows by weight.

    uplinks   100G 100G 100G  25G       a path weighs what its slowest link carries
    weights     4    4    4    1        13 places for the hash: the slow path gets a thirteenth of the flows

By default a path's weight is the rate of its slowest link.  `weights=4/4/4/1` gives them by uplink of every leaf, in
port order (WCMP, EuroSys 2014).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from controller.policies.base import Policy, Situation, parameter, whole
from controller.selector.flow_hash import derive_seeds
from controller.selector.selection import MOST_PLACES, Choice, Route, Selection
from topologies.errors import UserError
from topologies.graph import next_hops
from topologies.parameters import count

LARGEST = 100


def _weights(name: str, text: str) -> tuple[int, ...]:
    found = tuple(count(name, part, least=0, most=LARGEST) for part in text.split("/"))
    if not any(found):
        raise UserError(f"{name}: '{text}' gives no path any weight")
    return found


@dataclass(frozen=True, kw_only=True)
class Wcmp(Policy):
    """Hashes the 5-tuple over weighted paths."""

    name: ClassVar[str] = "wcmp"
    summary: ClassVar[str] = "ecmp with weights: by default a path's share is the rate of its slowest link"

    weights: tuple[int, ...] | None = parameter(
        None, _weights, "of a leaf's uplinks in port order, 4/4/4/1; or by rate"
    )
    seed: int | None = parameter(None, whole, "of the hash; by default the run's seed")

    def selection(self, situation: Situation) -> Selection:
        """Every route stands as often as it weighs.  Raises UserError for weights that fit no leaf."""
        routes = {}
        for pair, ways in situation.routes.items():
            weights = self._by_uplink(situation, pair, ways) if self.weights else _by_rate(situation, ways)
            routes[pair] = tuple(way for way, weight in zip(ways, weights, strict=True) for _ in range(weight))
        return Selection(
            seeds=derive_seeds(self.name, situation.seed if self.seed is None else self.seed),
            widths=situation.widths,
            choice=Choice.WEIGHTED,
            routes=routes,
        )

    def _by_uplink(self, situation: Situation, pair: tuple[str, str], ways: Sequence[Route]) -> list[int]:
        weights = self.weights or ()
        uplinks = [hop.name for hop in next_hops(situation.topology, *pair)]
        if len(weights) != len(uplinks):
            raise UserError(
                f"policy wcmp: weights: {len(weights)} weights for the {len(uplinks)} uplinks "
                f"from {pair[0]} to {pair[1]}; write one for each"
            )
        found = [weights[uplinks.index(way.links[0])] for way in ways]
        if sum(found) > MOST_PLACES:
            raise UserError(
                f"policy wcmp: weights: all paths together weigh {sum(found)}; at most {MOST_PLACES} can be"
            )
        return found if any(found) else [1] * len(found)


def _by_rate(situation: Situation, ways: Sequence[Route]) -> list[int]:
    rates = [min(situation.rate_bps[name] for name in way.links) for way in ways]
    shares = [rate // gcd(*rates) for rate in rates]
    if sum(shares) <= MOST_PLACES:
        return shares
    if len(rates) > MOST_PLACES // 2:
        raise UserError(f"policy wcmp: {len(rates)} paths between two leaves are too many to weigh; use ecmp")
    return [max(1, rate * (MOST_PLACES - len(rates)) // sum(rates)) for rate in rates]
