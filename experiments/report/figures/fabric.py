"""The fabric, its cables coloured by utilisation: over the whole run, or at the instant that the slider shows."""

import json
from collections.abc import Mapping
from html import escape
from xml.etree import ElementTree

import numpy as np

from experiments.report.axes import TIMES, scaled
from experiments.report.bins import Bins
from experiments.report.figure import Figure, Run
from topologies.drawing import SCALE, draw

SVG = "http://www.w3.org/2000/svg"
OVERALL = "whole run"


def draw_fabric(run: Run) -> Figure:
    """The picture; where ports were sampled, with a slider and its data beside it."""
    shares = {name: share for name, (share, _) in overall(run).items()}
    picture = _numbered(
        draw(run.topology, utilisation=shares), {link.name: i for i, link in enumerate(run.topology.links)}
    )
    note = "Colour: share of a cable's rate, busier direction, over the time in which operations ran."
    if run.bins is None:
        return Figure(title="The fabric", svg=picture, note=f"{note} No slider: {run.no_ports}.", wide=True)
    return Figure(title="The fabric over time", svg=_controls(run, run.bins) + picture, note=note, wide=True)


def overall(run: Run) -> Mapping[str, tuple[float, str]]:
    """Cable -> share of its busier direction, and that direction's sending interface, from results.json."""
    found: dict[str, tuple[float, str]] = {}
    for link in run.results.links:
        sender = link.name.split(">")[0]
        cable = run.topology.link_of[sender].name
        found[cable] = max(found.get(cable, (0.0, sender)), (link.utilisation, sender))
    return found


def _numbered(svg: str, number: Mapping[str, int]) -> str:
    """The same picture; a cable's path carries its number as `data-link`, which the script looks for."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(svg)
    root.set("id", "fabric")
    for path in root.iter(f"{{{SVG}}}path"):
        title = path.find(f"{{{SVG}}}title")
        name = (title.text or "").split(":")[0] if title is not None else ""
        if name in number:
            path.set("data-link", str(number[name]))
    return ElementTree.tostring(root, encoding="unicode")


def _controls(run: Run, bins: Bins) -> str:
    data = escape(json.dumps(_data(run, bins), separators=(",", ":")), quote=False)
    return (
        '<div class="slider"><button type="button" id="play">Play</button>'
        f'<input type="range" id="instant" min="0" max="{bins.steps}" value="0" step="1" aria-label="time" '
        'aria-describedby="shown"><output id="shown" for="instant"></output></div>'
        f'<template id="instants">{data}</template>'
    )


def _data(run: Run, bins: Bins) -> dict[str, object]:
    """Per cable a digit for each step, the class of its colour; per step what is written beside the slider."""
    row = {name: number for number, name in enumerate(bins.interfaces)}
    ends = np.array([end for end, _, _ in SCALE])
    nothing = np.zeros(bins.steps)
    classes = [
        "".join(map(str, np.searchsorted(ends, _busier(bins, row, link.a.name, link.b.name, nothing), side="right")))
        for link in run.topology.links
    ]
    divisor, unit = scaled(float(bins.edges_ns[-1]), TIMES)
    words = []
    for step in range(bins.steps):
        busiest = int(np.argmax(bins.utilisation[:, step]))
        begin, end = bins.edges_ns[step] / divisor, bins.edges_ns[step + 1] / divisor
        share = bins.utilisation[busiest, step]
        words.append(f"{begin:.3f} to {end:.3f} {unit}: {run.direction(bins.interfaces[busiest])} {share:.0%}")
    return {"colours": [colour for _, _, colour in SCALE], "classes": classes, "words": words, "overall": OVERALL}


def _busier(bins: Bins, row: Mapping[str, int], one: str, other: str, nothing: "np.ndarray") -> "np.ndarray":
    found = [bins.utilisation[row[name]] for name in (one, other) if name in row]
    return np.max(found, axis=0) if found else nothing
