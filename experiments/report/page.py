"""report.html: one file that opens anywhere, offline, light or dark, on a phone as on a screen.  Pure.

Its one script moves the fabric's slider; without it the page still shows everything else.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from experiments.report import bars, measurements, network
from experiments.report.bottlenecks import bottleneck_table
from experiments.report.figure import Absent, Figure, Run
from experiments.report.figures import FIGURES
from experiments.report.figures.fabric import draw_fabric
from experiments.report.series import Series
from experiments.report.summary import summary
from experiments.results import Results
from topologies.description import describe
from topologies.model import Topology

LINKS_SHOWN, PATHS_SHOWN = 16, 64


def environment() -> jinja2.Environment:
    """Templates of this folder; what is not marked safe is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(
    results: Results, topology: Topology, manifest: Mapping[str, Any], *, pcaps: Sequence[str], series: Series
) -> str:
    """The page as text; equal input gives equal text."""
    run = Run(results, topology, series)
    drawn = [draw(run) for draw in FIGURES]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            results=results,
            facts=facts(results, topology),
            findings=summary(run),
            fabric=list(describe(topology).lines()),
            picture=draw_fabric(run),
            inside=[figure for figure in drawn if isinstance(figure, Figure)],
            absent=[figure for figure in drawn if isinstance(figure, Absent)],
            measured=[
                *measurements.nccl_tables(results.rows),
                *measurements.own_tables(results),
                *filter(None, [bottleneck_table(run)]),
            ],
            figures=bars.figures(results),
            links=network.links_table(results.links, topology, most=LINKS_SHOWN) if results.links else None,
            paths=network.paths_table(results.paths, topology, most=PATHS_SHOWN) if results.paths else None,
            audit=measurements.audit_table(results),
            manifest=list(flatten(manifest)),
            modelled=manifest.get("modelled", ()),
            real=manifest.get("real", ()),
            pcaps=pcaps,
            script=(Path(__file__).parent / "page.js").read_text(),
        )
    )


def facts(results: Results, topology: Topology) -> list[tuple[str, str]]:
    """What a reader asks first."""
    drops = sum(link.drops for link in results.links)
    packets = sum(link.tx_packets for link in results.links)
    return [
        ("topology", results.topology),
        ("policy", results.policy),
        ("ranks", str(results.ranks)),
        ("clock", results.clock),
        ("seed", str(results.seed)),
        ("MTU", f"{topology.mtu} B"),
        ("packet-hops", f"{packets:,}"),
        ("drops", f"{drops:,}"),
    ]


def flatten(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as `host.cc` -> `cubic`; lists of plain values on one line."""
    for key, inner in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping):
            yield from flatten(inner, name)
        elif isinstance(inner, list) and any(isinstance(item, Mapping) for item in inner):
            for number, item in enumerate(inner):
                yield from flatten(item if isinstance(item, Mapping) else {"": item}, f"{name}[{number}]")
        elif isinstance(inner, list):
            yield name, ", ".join(map(str, inner))
        else:
            yield name, str(inner)
