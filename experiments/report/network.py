"""Tables of what the network did: busiest links, how evenly tiers are used, which way flows went.  Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from experiments.report.table import Column, Table
from experiments.results import FlowPath, LinkUse
from topologies.model import Topology
from topologies.units import format_rate

_EXTRAS: Final = {
    "drops": ("drops", ""),
    "marks": ("marks", ""),
    "pauses_sent": ("pauses sent", ""),
    "pauses_received": ("pauses received", ""),
    "paused_us": ("paused", "(us)"),
}
"""Field of a link -> heading and unit; all but drops are shown only where some link has one."""


def links_table(links: Sequence[LinkUse], topology: Topology, *, most: int) -> Table:
    """The busiest directions of cables, and how unevenly each tier is used."""
    busiest = sorted(links, key=lambda link: (-link.utilisation, -link.tx_bytes))[:most]
    extras = [name for name in _EXTRAS if name != "drops" and any(getattr(link, name) for link in links)]
    totals = ", ".join(
        f"{sum(getattr(link, name) for link in links)} {_EXTRAS[name][0]}"
        for name in ("drops", *extras)
        if not _EXTRAS[name][1]
    )
    return Table(
        title=f"Busiest links ({len(busiest)} of {len(links)} directions; {totals} in all)",
        columns=(
            Column(name="from", left=True),
            Column(name="to", left=True),
            Column(name="rate"),
            Column(name="bytes", unit="(MB)"),
            Column(name="packets"),
            Column(name="drops"),
            *(Column(name=_EXTRAS[name][0], unit=_EXTRAS[name][1]) for name in extras),
            Column(name="used", unit="(%)"),
        ),
        cells=tuple(
            (
                *link.name.split(">"),
                format_rate(link.rate_bps),
                f"{link.tx_bytes / 1e6:.1f}",
                str(link.tx_packets),
                str(link.drops),
                *(f"{getattr(link, name):.10g}" for name in extras),
                f"{link.utilisation * 100:.1f}",
            )
            for link in busiest
        ),
        notes=tuple(
            f"{tiers}: busiest link {ratio:.2f} x the mean" for tiers, ratio in imbalance(links, topology).items()
        ),
    )


def imbalance(links: Sequence[LinkUse], topology: Topology) -> Mapping[str, float]:
    """'leaf to spine' -> bytes of the busiest direction over the mean, for tiers that are joined by several links.

    Meta's measure of ECMP (max/mean): 1 is perfect, the number of links is the worst.
    """
    tier = {switch.name: switch.tier for switch in topology.switches}
    node = {end.name: end.node for end in topology.interfaces()}
    carried: dict[str, list[int]] = {}
    for link in links:
        sender, receiver = (tier.get(node[end]) for end in link.name.split(">"))
        if sender is not None and receiver is not None:
            carried.setdefault(f"{sender} to {receiver}", []).append(link.tx_bytes)
    return {
        tiers: max(loads) * len(loads) / total
        for tiers, loads in carried.items()
        if len(loads) > 1 and (total := sum(loads)) > 0
    }


def paths_table(paths: Sequence[FlowPath], topology: Topology, *, most: int) -> Table:
    """The largest flows and the nodes they crossed."""
    node = {end.name: end.node for end in topology.interfaces()}
    host = {str(end.ip): end.node for end in topology.host_interfaces()}
    largest = sorted(paths, key=lambda path: (-path.bytes, path.src, path.dst, path.sport, path.dport))[:most]
    return Table(
        title=f"Flows and their paths ({len(largest)} largest of {len(paths)})",
        columns=(
            Column(name="flow", left=True),
            Column(name="ports", left=True),
            Column(name="bytes", unit="(MB)"),
            Column(name="packets"),
            Column(name="path", left=True),
        ),
        cells=tuple(
            (
                f"{host.get(flow.src, flow.src)} > {host.get(flow.dst, flow.dst)}",
                f"{flow.proto} {flow.sport} > {flow.dport}",
                f"{flow.bytes / 1e6:.2f}",
                str(flow.packets),
                " ".join([*(node.get(name, name) for name in flow.path), host.get(flow.dst, flow.dst)]),
            )
            for flow in largest
        ),
    )
