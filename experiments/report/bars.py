"""Bars as SVG text: one figure of an experiment's own section, in groups, for comparing policies at a glance.  Pure.

An experiment asks for it with a section `bars`: {"section": "load_balancing", "groups": ["placement", "broken"],
"label": "policy", "value": "share_of_ideal", "most": 1.0, "title": "..."}.  Colours follow the page's, light and dark.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from experiments.report.figure import Figure
from experiments.results import Results

ROW, GAP, LABEL, BAR = 20, 14, 170, 420
"""Pixels: height of a bar's row, space between groups, width of labels and of the longest bar."""


def figures(results: Results) -> list[Figure]:
    """What the experiment asked for; nothing where its section is empty."""
    asked = results.sections.get("bars")
    records = results.sections.get(asked["section"], []) if isinstance(asked, dict) else []
    return [Figure(title=asked["title"], svg=svg(records, asked))] if asked is not None and records else []


def svg(records: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> str:
    """Every record a bar, from 0 to `most` or beyond; groups in the order in which they appear."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        grouped.setdefault(", ".join(f"{name} {record[name]}" for name in asked["groups"]), []).append(record)
    most = max([float(asked["most"]), *(float(record[asked["value"]]) for record in records)])
    parts, y = [], 0
    for group, members in grouped.items():
        parts.append(f'<text x="0" y="{y + 14}" font-weight="600">{escape(group)}</text>')
        y += ROW
        for record in members:
            parts.append(_bar(y, str(record[asked["label"]]), float(record[asked["value"]]), most))
            y += ROW
        y += GAP
    line = LABEL + BAR * float(asked["most"]) / most
    parts.append(f'<line x1="{line:.1f}" x2="{line:.1f}" y1="0" y2="{y - GAP}" stroke="currentColor" opacity=".5"/>')
    width = LABEL + BAR + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" role="img" '
        f'font-size="13" fill="currentColor"><title>{escape(str(asked["title"]))}</title>{"".join(parts)}</svg>'
    )


def _bar(y: int, label: str, value: float, most: float) -> str:
    length = BAR * value / most
    return (
        f'<text x="12" y="{y + 14}">{escape(label)}</text>'
        f'<rect x="{LABEL}" y="{y + 3}" width="{length:.1f}" height="{ROW - 6}" fill="var(--good, #00664a)"/>'
        f'<text x="{LABEL + BAR + 52}" y="{y + 14}" text-anchor="end">{value:.2f}</text>'
    )
