"""report.html: one file that opens anywhere, offline, light or dark, on a phone as on a screen.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from experiments.report import bars, measurements, network
from experiments.results import LinkUse, Results
from topologies.description import describe
from topologies.drawing import draw
from topologies.model import Topology

LINKS_SHOWN, PATHS_SHOWN = 16, 64

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(results: Results, topology: Topology, manifest: Mapping[str, Any], *, pcaps: Sequence[str]) -> str:
    """The page as text; equal input gives equal text."""
    return _ENVIRONMENT.get_template("page.html.j2").render(
        results=results,
        facts=facts(results, topology),
        fabric=list(describe(topology).lines()),
        picture=draw(topology, utilisation=utilisation_by_cable(results.links, topology)),
        measured=[*measurements.nccl_tables(results.rows), *measurements.own_tables(results)],
        figures=bars.figures(results),
        links=network.links_table(results.links, topology, most=LINKS_SHOWN) if results.links else None,
        paths=network.paths_table(results.paths, topology, most=PATHS_SHOWN) if results.paths else None,
        audit=measurements.audit_table(results),
        manifest=list(flatten(manifest)),
        modelled=manifest.get("modelled", ()),
        real=manifest.get("real", ()),
        pcaps=pcaps,
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


def utilisation_by_cable(links: Sequence[LinkUse], topology: Topology) -> dict[str, float]:
    """Link name of the topology -> share of its busier direction."""
    cable = {end.name: link.name for link in topology.links for end in (link.a, link.b)}
    shares: dict[str, float] = {}
    for link in links:
        name = cable[link.name.split(">")[0]]
        shares[name] = max(shares.get(name, 0.0), link.utilisation)
    return shares


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
