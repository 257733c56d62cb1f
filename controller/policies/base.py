"""What a load-balancing policy is: parameters that a human wrote, and what they make of the selector.

A policy is a frozen dataclass in a file of its own.  Its fields are its parameters; `selection` is its decision.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

from controller.path_marks import Widths, encode, path, widths
from controller.selector.flow_hash import Flow
from controller.selector.selection import Route, Selection
from topologies.errors import UnknownName, UserError
from topologies.graph import NOTHING, distances, hosts_below, leaves
from topologies.model import Topology
from topologies.parameters import count


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a policy may look at."""

    topology: Topology
    seed: int
    """The run's: a policy that draws lots draws them from this."""
    down: frozenset[str] = NOTHING
    """Links or interfaces that are out of order."""
    slowed: Mapping[str, int] = field(default_factory=dict)
    """Link -> bit/s, of links that do not run at the topology's rate."""
    demand: Mapping[Flow, int] = field(default_factory=dict)
    """Flow -> bytes in a period, where the policy has one and something was measured."""
    before: Mapping[Flow, int] = field(default_factory=dict)
    """The exact entries that are in force and were made for the links that are up now: what may be kept."""

    @cached_property
    def widths(self) -> Mapping[tuple[str, str], Widths]:
        """(leaf of the source, leaf of the destination) -> choices at the levels 1 to 4."""
        names = [leaf.name for leaf in leaves(self.topology)]
        return {
            (source, destination): widths(self.topology, source, destination, self.down)
            for destination in names
            for source in names
            if source != destination and source in distances(self.topology, destination, self.down)
        }

    @cached_property
    def routes(self) -> Mapping[tuple[str, str], tuple[Route, ...]]:
        """(leaf of the source, leaf of the destination) -> every shortest way, once each."""
        nic = {leaf.name: hosts_below(self.topology, leaf.name)[0] for leaf in leaves(self.topology)}
        found = {}
        for (source, destination), choices in self.widths.items():
            ways: dict[tuple[str, ...], int] = {}
            for digits in product(*map(range, choices)):
                mark = encode(digits)
                egress = path(self.topology, nic[source], nic[destination], mark, self.down)
                ways.setdefault(egress[1:-1], mark)
            found[source, destination] = tuple(Route(mark=mark, links=links) for links, mark in ways.items())
        return found

    @cached_property
    def rate_bps(self) -> Mapping[str, int]:
        """Egress interface -> the rate that it runs at, between switches."""
        return {
            sender.name: self.slowed.get(link.name, link.rate_bps)
            for link in self.topology.links
            for sender, receiver in link.ends()
            if {sender.node, receiver.node} <= self.topology.switch_named.keys()
        }

    @cached_property
    def cost_ps(self) -> Mapping[str, int]:
        """Egress interface -> picoseconds of its wire per byte, between switches."""
        return {name: 8 * 10**12 // rate for name, rate in self.rate_bps.items()}


class Policy(ABC):
    """How a path is chosen.  Subclasses are frozen dataclasses whose fields are made by `parameter`."""

    name: ClassVar[str]
    """On the command line, in manifests and in plots."""
    summary: ClassVar[str]
    """One line for `./run list`."""

    @property
    def measures_every_ns(self) -> int | None:
        """The period at which it wants to be asked again with the demand of the period; None is never."""
        return None

    @abstractmethod
    def selection(self, situation: Situation) -> Selection:
        """What the selector does from now on.  Pure: the same situation gives the same selection."""

    @classmethod
    def parameters(cls) -> Mapping[str, str]:
        """Parameter -> what it means and what it is by default, for the help."""
        found = {}
        for each in fields(cls):  # type: ignore[arg-type]  # a subclass is a dataclass, the base is not
            default = "" if each.default is MISSING or each.default is None else f" (default {_shown(each.default)})"
            found[each.name] = f"{each.metadata['help']}{default}"
        return found

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """The policy with these parameters.  Raises UnknownName or UserError."""
        known = {each.name: each for each in fields(cls)}  # type: ignore[arg-type]
        values = {}
        for key, text in given.items():
            if key not in known:
                raise UnknownName(f"parameter of policy {cls.name}", key, known)
            values[key] = known[key].metadata["parse"](f"policy {cls.name}: {key}", text)
        return cls(**values)


def parameter(default: Any, parse: Callable[[str, str], Any], explanation: str) -> Any:
    """A field of a policy: `parse` gets the name for its message and the text, and raises UserError."""
    return field(default=default, metadata={"parse": parse, "help": explanation})


def whole(name: str, text: str) -> int:
    """A whole number from 0 to 2**32 - 1.  Raises UserError."""
    return count(name, text, least=0, most=2**32 - 1)


def one_of(*words: str) -> Callable[[str, str], str]:
    """A parser that takes these words and raises UserError for others."""

    def parse(name: str, text: str) -> str:
        if text not in words:
            raise UserError(f"{name}: '{text}' is none of {', '.join(words)}")
        return text

    return parse


def yes_no(name: str, text: str) -> bool:
    """`yes` or `no`.  Raises UserError."""
    answers = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in answers:
        raise UserError(f"{name}: '{text}' is neither yes nor no")
    return answers[text.lower()]


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
