"""Settings of ports that change while a run is under way, as a file of `--policy-file` says.

    - at: 5ms                      at 5ms: ecn.kmin=100kB, ecn.kmax=400kB
      set:                         at 8ms on spine*: kmin=off
        ecn.kmin: 100kB
        ecn.kmax: 400kB            The two forms say the same; every line of the second is one change.
    - at: 8ms
      set: {ecn.kmin: "off"}
      where: spine*                a node or an interface, with * for any; without it: every switch

Times count from the start of the experiment's `run`.  Pure: `plan_changes` gives, for each instant, the ports that get
new settings, each with all that was changed before.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import yaml

from controller.port_policies.decision import PortDecision, decide
from controller.port_policies.settings import PortPolicy, parameters, parse_values, plain
from topologies.errors import UnknownName, UserError
from topologies.model import Topology
from topologies.units import parse_delay

_LINE = re.compile(r"at\s+(?P<at>\S+)(?:\s+on\s+(?P<where>\S+))?\s*:\s*(?P<set>.+)")
_KEYS = ("at", "set", "where")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One line of the file."""

    at_ns: int
    settings: Mapping[str, str]
    where: str | None = None
    """Pattern of nodes or interfaces; None is every switch."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change made concrete."""

    change: Change
    ports: Mapping[str, PortDecision] = field(repr=False)
    """Interface -> what it is told, for every port that the change is for."""


def parse_changes(text: str) -> tuple[Change, ...]:
    """Either form; in order of time.  Raises UserError naming the change at fault."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if lines and all(re.match(r"at\s+\S", line) for line in lines):
        found = [_from_line(line) for line in lines]
    else:
        found = list(_from_yaml(text))
    for number, change in enumerate(found, 1):
        parse_values(change.settings, where=f"policy file, change {number}")
        for key in change.settings:
            if parameters()[plain(key)].metadata["fixed"]:
                raise UserError(f"policy file, change {number}: {key} cannot change while a run is under way")
    return tuple(sorted(found, key=lambda change: change.at_ns))


def _from_line(line: str) -> Change:
    match = _LINE.fullmatch(line)
    if match is None:
        raise UserError(f"policy file: '{line}' is not `at TIME [on WHERE]: key=value, ...`")
    settings = {}
    for part in match["set"].split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise UserError(f"policy file: '{line}': '{part.strip()}' is not key=value")
        settings[key] = value
    return _change(line, match["at"], settings, match["where"])


def _from_yaml(text: str) -> Iterator[Change]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"policy file: {error}") from None
    if not isinstance(found, list):
        raise UserError("policy file: write a list of changes, each with `at`, `set` and, if you like, `where`")
    for number, entry in enumerate(found, 1):
        what = f"change {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("set"), dict) or "at" not in entry:
            raise UserError(f"policy file: {what}: a change needs `at` (a time) and `set` (keys and values)")
        for key in entry:
            if key not in _KEYS:
                raise UnknownName(f"field of {what} of the policy file", str(key), _KEYS)
        settings = {str(key): _text(value) for key, value in entry["set"].items()}
        where = entry.get("where")
        yield _change(what, str(entry["at"]), settings, None if where is None else str(where))


def _text(value: object) -> str:
    """YAML reads a bare `off` as false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _change(what: str, at: str, settings: Mapping[str, str], where: str | None) -> Change:
    try:
        at_ns = parse_delay(at)
    except UserError as error:
        raise UserError(f"policy file: {what}: {error}") from None
    return Change(at_ns=at_ns, settings=settings, where=where)


def plan_changes(policy: PortPolicy, topology: Topology, changes: Sequence[Change]) -> tuple[Step, ...]:
    """What every change does to which port.  Raises UserError for a pattern that fits nothing or what cannot be."""
    current: dict[str, PortPolicy] = {end.name: policy for end in topology.interfaces()}
    steps = []
    for change in changes:
        names = _matching(topology, change)
        for name in names:
            current[name] = current[name].changed(change.settings, where=f"policy file, at {change.at_ns} ns")
        decided = decide(policy, topology, current)
        steps.append(Step(change=change, ports={name: decided[name] for name in names}))
    return tuple(steps)


def _matching(topology: Topology, change: Change) -> list[str]:
    ends = list(topology.interfaces())
    if change.where is None:
        return [end.name for end in ends if end.node in topology.switch_named]
    found = [end.name for end in ends if fnmatchcase(end.name, change.where) or fnmatchcase(end.node, change.where)]
    if not found:
        raise UserError(
            f"policy file: where: '{change.where}' fits no node and no interface; nodes: "
            f"{', '.join(node.name for node in topology.nodes)}"
        )
    return found
