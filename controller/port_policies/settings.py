"""What may be said about the ports of a fabric: one frozen dataclass, a field per key of `--policy PRESET:key=value`.

`PortPolicy` is what was asked; `decision.py` makes bytes of it for every port.  A key may carry the name of its group,
`ecn.kmin` or `pfc.xon`, as it does in files of changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Self

from controller.port_policies.threshold import Threshold, parse_threshold
from topologies.errors import UnknownName, UserError
from topologies.parameters import count
from topologies.units import format_delay, parse_delay

CLASSES = 8
DSCPS = 64
DATA_CLASS = 3
"""Where everything goes that no map sends elsewhere: the usual lossless priority (SONiC: 3 and 4; HPCC's runs: 3)."""


@dataclass(frozen=True, kw_only=True)
class Watchdog:
    """What ends a pause that lasts too long."""

    limit_ns: int
    forward: bool = False
    """True ignores the pause, False drops the class."""

    def __str__(self) -> str:
        return f"{format_delay(self.limit_ns).replace(' ', '')}/{'forward' if self.forward else 'drop'}"


def _threshold_or(word: str) -> Callable[[str, str], Threshold | None]:
    return lambda name, text: None if text.lower() == word else parse_threshold(name, text)


def _alpha(name: str, text: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"{name}: '{text}' is no factor; write for instance 1, 0.5 or 1/8") from None
    if not 0 < value <= 2**16 or (value * 256).denominator != 1:
        raise UserError(f"{name}: {text} is not a multiple of 1/256 in 1/256..65536")
    return value


def _alpha_or(word: str) -> Callable[[str, str], Fraction | None]:
    return lambda name, text: None if text.lower() == word else _alpha(name, text)


def _probability(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(f"{name}: '{text}' is no probability; write a number from 0 to 1")
    return value


def _on_off(name: str, text: str) -> bool:
    if text.lower() not in ("on", "off"):
        raise UserError(f"{name}: '{text}' is neither on nor off")
    return text.lower() == "on"


def _watchdog(name: str, text: str) -> Watchdog | None:
    if text.lower() == "off":
        return None
    limit, _, action = text.partition("/")
    if action not in ("", "drop", "forward"):
        raise UserError(f"{name}: '{action}' is neither drop nor forward; write for instance 200ms/drop")
    try:
        limit_ns = parse_delay(limit)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if not 0 < limit_ns <= 1000 * 10**9:
        raise UserError(f"{name}: '{limit}' is not in 1ns..1000s; write off for none")
    return Watchdog(limit_ns=limit_ns, forward=action == "forward")


def _limit(name: str, text: str) -> Threshold | str | None:
    words: dict[str, str | None] = {"none": None, "link": "link"}
    return words[text.lower()] if text.lower() in words else parse_threshold(name, text)


def _classes(name: str, text: str) -> tuple[tuple[int, int], ...]:
    found = []
    for part in text.split("/"):
        dscp, colon, index = part.partition(":")
        if not colon:
            raise UserError(f"{name}: '{part}' is not DSCP:CLASS; write for instance 46:6/8:1")
        where = f"{name}: {part}"
        found.append(
            (count(where, dscp, least=0, most=DSCPS - 1), count(where, index, least=0, most=CLASSES - 1)),
        )
    return tuple(found)


def _quanta(name: str, text: str) -> int:
    return count(name, text, least=32, most=65535)


def _word(_name: str, text: str) -> str:
    return text


def _about(group: str, parse: Callable[[str, str], Any], meaning: str, *, fixed: bool = False) -> dict[str, Any]:
    """What is known of a key beside its default; a `fixed` one cannot change while a run is under way."""
    return {"group": group, "parse": parse, "help": meaning, "fixed": fixed}


@dataclass(frozen=True, kw_only=True)
class PortPolicy:
    """Everything about the ports of a fabric.  The defaults are those of `lossy`."""

    cc: str = field(
        default="cubic",
        metadata=_about("host", _word, "TCP congestion control of the hosts; --set host.cc wins over it", fixed=True),
    )
    kmin: Threshold | None = field(
        default=None,
        metadata=_about(
            "ecn", _threshold_or("off"), "mark nothing while the queue is at most this; off marks nothing at all"
        ),
    )
    kmax: Threshold | None = field(
        default=None,
        metadata=_about("ecn", _threshold_or("kmin"), "mark everything above this; kmin (or kmax=kmin) is a step"),
    )
    pmax: float = field(
        default=1.0, metadata=_about("ecn", _probability, "probability of a mark at kmax, linear from 0 at kmin")
    )
    pfc: bool = field(
        default=False,
        metadata=_about("pfc", _on_off, "on: the data class is lossless, by 802.1Qbb pauses", fixed=True),
    )
    alpha: Fraction | None = field(
        default=None,
        metadata=_about(
            "pfc",
            _alpha_or("auto"),
            "an ingress may use alpha x free bytes of the pool, then XOFF (without PFC: drop); auto: with PFC 1/8 at "
            "the hosts' rate, doubled with each doubling of the rate up to 1; without PFC all that is free",
        ),
    )
    xoff: Threshold | None = field(
        default=None,
        metadata=_about("pfc", _threshold_or("alpha"), "a fixed threshold instead of alpha x free; alpha: none"),
    )
    xon: Threshold | None = field(
        default=None,
        metadata=_about("pfc", _threshold_or("auto"), "XON this far below the XOFF threshold; auto: two full frames"),
    )
    headroom: Threshold | None = field(
        default=None,
        metadata=_about(
            "pfc",
            _threshold_or("auto"),
            "room for what still comes after XOFF; auto: 3 x rate x delay + 3 full frames + the pause itself",
        ),
    )
    reserve: Threshold | None = field(
        default=None,
        metadata=_about(
            "buffer", _threshold_or("auto"), "kept per ingress and class; auto: a full frame, 4,096 B at least"
        ),
    )
    quanta: int = field(
        default=65535,
        metadata=_about("pfc", _quanta, "duration of a pause in 512 bit times; refreshed after half of it"),
    )
    watchdog: Watchdog | None = field(
        default=None,
        metadata=_about(
            "pfc", _watchdog, "LIMIT[/drop|forward]: what a longer pause of a waiting class leads to; off: none"
        ),
    )
    buffer: Threshold | None = field(
        default=None,
        metadata=_about(
            "buffer", _threshold_or("auto"), "of every switch; auto: the sum of its links' buffers in the topology"
        ),
    )
    egress_alpha: Fraction | None = field(
        default=Fraction(1),
        metadata=_about(
            "buffer", _alpha_or("none"), "a lossy queue may hold egress_alpha x free bytes of the pool; none: all of it"
        ),
    )
    limit: Threshold | str | None = field(
        default=None,
        metadata=_about(
            "buffer", _limit, "most that may wait at one switch port; link: its buffer in the topology; none: no limit"
        ),
    )
    overhead: bool = field(
        default=False,
        metadata=_about("link", _on_off, "on: every frame takes 24 B more on the wire (preamble, FCS, gap)"),
    )
    classes: tuple[tuple[int, int], ...] = field(
        default=(),
        metadata=_about(
            "link",
            _classes,
            f"DSCP:CLASS/...: traffic that is not in the data class {DATA_CLASS}; higher classes go first, lower ones "
            "take turns with it",
            fixed=True,
        ),
    )

    def __post_init__(self) -> None:
        """Refuses what contradicts itself.  Raises UserError."""
        if self.kmax is not None and self.kmin is None:
            raise UserError("kmax without kmin: give both, or kmin alone for a step")
        if self.xoff is not None and self.alpha is not None:
            raise UserError("xoff and alpha are two ways to say one threshold; give one of them")
        if not self.pfc:
            lacking = [name for name in ("xoff", "xon", "headroom", "watchdog") if getattr(self, name) is not None]
            if lacking:
                raise UserError(f"{lacking[0]} means nothing with pfc=off; give pfc=on or leave it out")

    @property
    def marks(self) -> bool:
        """Whether ECN is on."""
        return self.kmin is not None

    def changed(self, given: Mapping[str, str], *, where: str) -> Self:
        """With these keys set.  Raises UnknownName, or UserError that begins with `where`."""
        values = self._leave_the_other_threshold(parse_values(given, where=where))
        try:
            return replace(self, **values)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None

    def _leave_the_other_threshold(self, values: dict[str, Any]) -> dict[str, Any]:
        """Asking for xoff takes a preset's alpha back, and the reverse; a new kmin of a step moves the step."""
        found = dict(values)
        if found.get("xoff") is not None:
            found.setdefault("alpha", None)
        elif found.get("alpha") is not None:
            found.setdefault("xoff", None)
        if "kmin" in found and found["kmin"] is None:
            found.setdefault("kmax", None)
        if found.get("pfc") is False:
            for name in ("xoff", "xon", "headroom", "watchdog"):
                found.setdefault(name, None)
        return found

    def written(self) -> dict[str, str]:
        """Key -> value as it may be written."""
        return {each.name: _written(each.name, getattr(self, each.name)) for each in fields(self)}


def parse_values(given: Mapping[str, str], *, where: str) -> dict[str, Any]:
    """Field -> value, whatever the others are.  Raises UnknownName, or UserError that begins with `where`."""
    values: dict[str, Any] = {}
    known = parameters()
    for key, text in given.items():
        name = plain(key)
        if name not in known:
            raise UnknownName(f"key of {where}", key, known)
        if name in values:
            raise UserError(f"{where}: {name} is given twice")
        values[name] = known[name].metadata["parse"](f"{where}: {key}", text)
    return values


_NONE = {
    "kmin": "off",
    "kmax": "kmin",
    "xoff": "alpha",
    "watchdog": "off",
    "egress_alpha": "none",
    "limit": "none",
}
"""How the absence of a value is written; everywhere else it is `auto`."""


def _written(name: str, value: object) -> str:
    if value is None:
        return _NONE.get(name, "auto")
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "classes":
        return "/".join(f"{dscp}:{index}" for dscp, index in value) if value else "none"  # type: ignore[attr-defined]
    return str(value)


def parameters() -> Mapping[str, Any]:
    """Name -> the dataclass field that describes it."""
    return {each.name: each for each in fields(PortPolicy)}


def plain(key: str) -> str:
    """`ecn.kmin` -> `kmin`; a key with the wrong group in front stays as it is, and is then unknown."""
    group, dot, name = key.rpartition(".")
    known = parameters()
    return name if dot and name in known and known[name].metadata["group"] == group else key
