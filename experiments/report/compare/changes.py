"""What differs between runs: what was asked for, and what was measured, by how much and whether for the better.  Pure.

Every change is against the first run.  Whether less is better follows from a quantity's name; where the name does not
say, the change is told and not judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.report.compare.runs import Compared
from experiments.report.measurements import OWN_SECTIONS
from experiments.report.page import flatten
from experiments.report.table import Column, Table
from experiments.results import Results

NOT_ASKED = ("asked.script", "asked.experiment")
LESS_IS_BETTER = (
    "time us",
    "_us",
    "slowdown",
    "drops",
    "dropped",
    "retransmi",
    "timeouts",
    "loss_probes",
    "queue",
    "pause",
    "max_over_mean",
    "in_busiest_phase",
    "halting",
    "wrong",
    "reordered",
    "out_of_order",
    "needless",
    "lost",
)
MORE_IS_BETTER = ("gbps", "goodput", "busbw", "algbw", "share_of_ideal", "entropy", "efficiency", "fairness")
LEAST_CHANGE = 0.001
"""A smaller relative change of a measured quantity is not listed."""
MOST_LINES = 80
Measured = Mapping[str, float]


def asked_table(runs: Sequence[Compared]) -> Table | None:
    """Every line of the manifests that is not the same in all; None where all are."""
    flat = [dict(flatten(each.manifest)) for each in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each if not key.startswith(NOT_ASKED)))
    lines = [(key, *(each.get(key, "") for each in flat)) for key in keys]
    different = [line for line in lines if len(set(line[1:])) > 1]
    if not different:
        return None
    return Table(
        title="What was asked for and in force, where it differs",
        columns=(Column(name="setting", left=True), *(Column(name=each.name, left=True) for each in runs)),
        cells=tuple(different[:MOST_LINES]),
        notes=_more(len(different)),
    )


def change_table(title: str, runs: Sequence[Compared], measured: Sequence[Measured]) -> Table | None:
    """A line for each quantity that all runs have, if any differs; None where nothing does."""
    lines = []
    for name in measured[0]:
        values = [each[name] for each in measured if name in each]
        if len(values) < len(runs) or all(_same(value, values[0]) for value in values):
            continue
        lines.append((name, *(_text(value, values[0], name, is_first=not n) for n, value in enumerate(values))))
    if not lines:
        return None
    first = runs[0].name
    return Table(
        title=title,
        columns=(Column(name="quantity", left=True), *(Column(name=each.name) for each in runs)),
        cells=tuple(lines[:MOST_LINES]),
        notes=(f"Changes are against {first}; below {LEAST_CHANGE:.1%} they are left out.", *_more(len(lines))),
    )


def _more(lines: int) -> tuple[str, ...]:
    return (f"{lines - MOST_LINES} more lines differ.",) if lines > MOST_LINES else ()


def _same(value: float, first: float) -> bool:
    return abs(value - first) <= LEAST_CHANGE * max(abs(first), abs(value))


def _text(value: float, first: float, name: str, *, is_first: bool) -> str:
    shown = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if is_first or _same(value, first):
        return shown
    change = f"{(value / first - 1):+.1%}" if first else "from 0"
    return f"{shown}  {change}{verdict(name, value, first)}"


def verdict(name: str, value: float, first: float) -> str:
    """` better`, ` worse`, or nothing where the name does not say which way is better."""
    words = name.lower()
    if any(part in words for part in MORE_IS_BETTER):
        return " better" if value > first else " worse"
    if any(part in words for part in LESS_IS_BETTER):
        return " better" if value < first else " worse"
    return ""


def operations(results: Results) -> Measured:
    """Mean time and bus bandwidth of every operation, size and number of ranks."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in results.rows:
        groups.setdefault(f"{row.op} {row.bytes} B, {row.ranks} ranks", []).append((row.time_us, row.busbw_GBps))
    found = {}
    for name, values in groups.items():
        mean_us = sum(time for time, _ in values) / len(values)
        found[f"{name}: time us"] = mean_us
        found[f"{name}: busbw GBps"] = values[0][1] * values[0][0] / mean_us
    return found


def network(results: Results) -> Measured:
    """Totals over all links, and the busiest."""
    links = results.links
    return {
        "packet-hops": float(sum(link.tx_packets for link in links)),
        "drops": float(sum(link.drops for link in links)),
        "marks": float(sum(link.marks for link in links)),
        "pauses sent": float(sum(link.pauses_sent for link in links)),
        "paused us": sum(link.paused_us for link in links),
        "longest queue bytes": float(max((link.queue_max_bytes for link in links), default=0)),
        "busiest link, share of its rate": max((link.utilisation for link in links), default=0.0),
    }


def sections(results: Results) -> Iterator[tuple[str, Measured]]:
    """Numbers of an experiment's own sections; a record is told by its words, or by its place where it has none."""
    for name, records in results.sections.items():
        if name in OWN_SECTIONS or not isinstance(records, list):
            continue
        found = {}
        for place, record in enumerate(each for each in records if isinstance(each, dict)):
            label = _label(record) or f"line {place + 1}"
            for field, value in record.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    key = f"{label}: {field}"
                    found[key if key not in found else f"{key} ({place + 1})"] = float(value)
        if found:
            yield name, found


_COORDINATES = (
    "senders",
    "ranks",
    "rank",
    "bytes",
    "each_bytes",
    "size_bytes",
    "line",
    "job",
    "step",
    "fan_in",
    "k_in_bdp",
)
"""Numbers that say what a record is about."""


def _label(record: Mapping[str, Any]) -> str:
    words = [str(value) for value in record.values() if isinstance(value, str)]
    return ", ".join([*words, *(f"{name} {record[name]}" for name in _COORDINATES if name in record)])
