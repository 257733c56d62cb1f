"""A small language for what flows when: one line, one pattern.  Pure.

# comment                           seed 7                            draws depend on it; without it on the run's
at 1ms h1 -> h2 10MB                one flow
at 0 permutation 10MB               every host sends to one other, and one other sends to it, drawn by lot
at 0 all_to_all 1MB among h1,h2,h3  every host to every other; `among` also fits permutation
at 2ms incast 8 -> h1 64kB          eight hosts drawn by lot, or named: h2,h3 -> h1; all: everybody else
at 3ms shuffle h1,h2 -> h3,h4 1MB   each of the left to each of the right, as mappers to reducers
repeat 3 every 5ms                  the lines up to `end` three times; their times count from each repetition
    at 0 permutation 1MB
end
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topologies.errors import UnknownName, UserError
from topologies.units import parse_delay, parse_size

MOST = 4096
"""Flows of one schedule: each is a TCP connection and a thread."""
MOST_REPETITIONS = 100_000


@dataclass(frozen=True, kw_only=True)
class Flow:
    """So many bytes from one host to another."""

    start_ns: int
    """From the common start."""
    source: str
    destination: str
    size_bytes: int
    pattern: str
    """The pattern's name; `flow` for a single one."""
    line: int
    """Of the text, from 1."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    number: int
    words: tuple[str, ...]


class _Reader:
    """Turns lines into flows; one source of lots for all of them."""

    def __init__(self, hosts: Sequence[str], seed: int) -> None:
        self.hosts = tuple(hosts)
        self.lots = random.Random(seed)

    def block(self, lines: Sequence[_Line], offset_ns: int) -> Iterator[Flow]:
        """The flows of some lines, which begin at `offset_ns`."""
        at = 0
        while at < len(lines):
            line = lines[at]
            if line.words[0] == "repeat":
                end = _end_of(lines, at)
                count, every_ns = _repetition(line)
                for number in range(count):
                    yield from self.block(lines[at + 1 : end], offset_ns + number * every_ns)
                at = end + 1
                continue
            yield from self._flows(line, offset_ns)
            at += 1

    def _flows(self, line: _Line, offset_ns: int) -> Iterator[Flow]:
        try:
            pattern, ends, size_bytes, start_ns = self._parse(line.words)
        except UserError as error:
            raise UserError(f"line {line.number}: {' '.join(line.words)}: {error}") from None
        for source, destination in ends:
            yield Flow(
                start_ns=offset_ns + start_ns,
                source=source,
                destination=destination,
                size_bytes=size_bytes,
                pattern=pattern,
                line=line.number,
            )

    def _parse(self, words: Sequence[str]) -> tuple[str, list[tuple[str, str]], int, int]:
        if words[0] == "end":
            raise UserError("there is no repeat for it to end")
        if words[0] == "seed":
            raise UserError("seed stands before all other lines, with one whole number")
        if words[0] != "at" or len(words) < 3:
            raise UserError("write `at TIME PATTERN ... SIZE`, `repeat N every TIME`, `end` or `seed N`")
        start_ns, rest = parse_delay(words[1]), list(words[2:])
        if len(rest) > 1 and rest[1] == "->":
            rest.insert(0, "flow")
        pattern, arguments = rest[0], rest[1:]
        if pattern not in PATTERNS:
            raise UnknownName("pattern", pattern, [*PATTERNS, "HOST -> HOST SIZE"])
        ends, size_bytes = PATTERNS[pattern](self, arguments)
        return pattern, ends, size_bytes, start_ns

    def named(self, text: str) -> list[str]:
        """Hosts by name, separated by commas, or all.  Raises UserError."""
        names = list(self.hosts) if text == "all" else text.split(",")
        for name in names:
            if name not in self.hosts:
                raise UnknownName("host", name, self.hosts)
        if len(set(names)) < len(names):
            raise UserError(f"{text} names a host twice")
        return names

    def drawn(self, text: str, beside: Sequence[str]) -> list[str]:
        """Hosts by name, or so many drawn by lot from those that are not in `beside`."""
        others = [host for host in self.hosts if host not in beside]
        if not text.isdecimal():
            return [host for host in self.named(text) if text != "all" or host in others]
        if not 1 <= int(text) <= len(others):
            raise UserError(f"{text} hosts: there are {len(others)} to draw from; write 1 to that")
        return sorted(self.lots.sample(others, int(text)), key=self.hosts.index)


Ends = tuple[list[tuple[str, str]], int]


def _single(reader: _Reader, words: Sequence[str]) -> Ends:
    left, right, size_bytes = _sides(words, "h1 -> h2 10MB")
    (source,), (destination,) = _one(reader, left), _one(reader, right)
    return _apart([(source, destination)]), size_bytes


def _permutation(reader: _Reader, words: Sequence[str]) -> Ends:
    members, size_bytes = _among(reader, words, "permutation 10MB")
    targets = list(members)
    while any(source == target for source, target in zip(members, targets, strict=True)):
        reader.lots.shuffle(targets)
    return list(zip(members, targets, strict=True)), size_bytes


def _all_to_all(reader: _Reader, words: Sequence[str]) -> Ends:
    members, size_bytes = _among(reader, words, "all_to_all 1MB")
    return [(source, target) for source in members for target in members if source != target], size_bytes


def _incast(reader: _Reader, words: Sequence[str]) -> Ends:
    left, right, size_bytes = _sides(words, "incast 8 -> h1 64kB")
    (target,) = _one(reader, right)
    return _apart([(source, target) for source in reader.drawn(left, [target])]), size_bytes


def _shuffle(reader: _Reader, words: Sequence[str]) -> Ends:
    left, right, size_bytes = _sides(words, "shuffle h1,h2 -> h3,h4 1MB")
    targets = reader.drawn(right, [] if left.isdecimal() else reader.named(left))
    sources = reader.drawn(left, targets)
    return _apart([(source, target) for source in sources for target in targets]), size_bytes


PATTERNS: Mapping[str, Callable[[_Reader, Sequence[str]], Ends]] = {
    "flow": _single,
    "permutation": _permutation,
    "all_to_all": _all_to_all,
    "incast": _incast,
    "shuffle": _shuffle,
}


def parse(text: str, hosts: Sequence[str], seed: int) -> tuple[Flow, ...]:
    """Lines, or `;` between them -> flows in the order of their starts.  Raises UserError naming the line."""
    lines = [
        _Line(number=number, words=tuple(words))
        for number, line in enumerate(text.replace(";", "\n").splitlines(), start=1)
        if (words := line.partition("#")[0].split())
    ]
    if lines and lines[0].words[0] == "seed" and len(lines[0].words) == 2 and lines[0].words[1].isdecimal():
        seed = int(lines.pop(0).words[1])
    found: list[Flow] = []
    for flow in _Reader(hosts, seed).block(lines, 0):
        found.append(flow)
        if len(found) > MOST:
            raise UserError(f"line {flow.line}: more than {MOST} flows by here; make the schedule smaller")
    if not found:
        raise UserError("a schedule needs at least one line that begins with `at`")
    return tuple(sorted(found, key=lambda flow: flow.start_ns))


def _end_of(lines: Sequence[_Line], start: int) -> int:
    """Where the block that begins at `start` ends."""
    depth = 0
    for at in range(start, len(lines)):
        depth += {"repeat": 1, "end": -1}.get(lines[at].words[0], 0)
        if depth == 0:
            return at
    raise UserError(f"line {lines[start].number}: this repeat has no end")


def _repetition(line: _Line) -> tuple[int, int]:
    words = line.words
    if len(words) != 4 or words[2] != "every" or not words[1].isdecimal():
        raise UserError(f"line {line.number}: {' '.join(words)}: write `repeat N every TIME`, for instance every 5ms")
    if not 1 <= int(words[1]) <= MOST_REPETITIONS:
        raise UserError(f"line {line.number}: {words[1]} repetitions are not in 1 to {MOST_REPETITIONS}")
    try:
        return int(words[1]), parse_delay(words[3])
    except UserError as error:
        raise UserError(f"line {line.number}: {error}") from None


def _sides(words: Sequence[str], example: str) -> tuple[str, str, int]:
    if len(words) != 4 or words[1] != "->":
        raise UserError(f"write it as `{example}`")
    return words[0], words[2], _size(words[3])


def _among(reader: _Reader, words: Sequence[str], example: str) -> tuple[list[str], int]:
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "among"):
        raise UserError(f"write it as `{example}` or `{example} among h1,h2,h3`")
    members = reader.named(words[2] if len(words) == 3 else "all")
    if len(members) < 2:
        raise UserError("needs at least two hosts")
    return members, _size(words[0])


def _size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes < 1:
        raise UserError("a flow has at least 1 byte")
    return size_bytes


def _one(reader: _Reader, text: str) -> list[str]:
    names = reader.named(text)
    if len(names) != 1:
        raise UserError(f"{text} are {len(names)} hosts where one is wanted")
    return names


def _apart(ends: list[tuple[str, str]]) -> list[tuple[str, str]]:
    for source, destination in ends:
        if source == destination:
            raise UserError(f"{source} cannot send to itself")
    return ends
