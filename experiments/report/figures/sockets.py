"""Congestion window and smoothed round-trip time of the connections that delivered most."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from experiments.report.axes import TIMES, Axis, Line, lines, scaled, span
from experiments.report.bins import MOST
from experiments.report.figure import Absent, Figure, Run
from experiments.report.series import Columns, coded

WINDOWS, ROUND_TRIPS = "Congestion windows of the largest flows", "Round-trip times of the largest flows"
MOST_CURVES = 5


def draw_windows(run: Run) -> Figure | Absent:
    """In packets."""
    return _curves(run, WINDOWS, "cwnd_packets", "window (packets)", 1.0)


def draw_round_trips(run: Run) -> Figure | Absent:
    """As the sender's kernel smooths them."""
    sockets = run.series.sockets
    most = float(sockets["srtt_ns"].max()) if sockets is not None else 1.0
    divisor, unit = scaled(most, TIMES)
    return _curves(run, ROUND_TRIPS, "srtt_ns", f"smoothed RTT ({unit})", divisor)


def _curves(run: Run, title: str, field: str, label: str, divisor: float) -> Figure | Absent:
    sockets = run.series.sockets
    if sockets is None:
        return Absent(title=title, why=run.series.missing["sockets"])
    flows = largest(sockets)
    if not flows:
        return Absent(title=title, why="no sampled connection delivered a packet")
    begin = min(int(sockets["time_ns"][rows[0]]) for rows in flows.values())
    end = max(int(sockets["time_ns"][rows[-1]]) for rows in flows.values())
    unit_ns, unit = scaled(float(end), TIMES)
    x = Axis(label=f"virtual time ({unit})", low=begin / unit_ns, high=max(end, begin + 1) / unit_ns)
    hosts = {str(nic.ip): nic.node for nic in run.topology.host_interfaces()}
    curves = [
        Line(name=_name(key, hosts), points=_thinned(sockets, rows, field, unit_ns, divisor), stairs=True)
        for key, rows in flows.items()
    ]
    y = span(label, [value for curve in curves for _, value in curve.points], zero=True)
    return Figure(
        title=title,
        svg=lines(title, x, y, curves),
        note="Source > destination:port; a value holds until the next sample.",
    )


Key = tuple[str, str, int, int]


def largest(sockets: Columns) -> dict[Key, NDArray[np.int64]]:
    """(host, remote address, local port, remote port) -> rows in time order, of those that delivered most."""
    host, hosts = coded(sockets["host"])
    remote, remotes = coded(sockets["remote_address"])
    local_port, remote_port = (sockets[name].astype(np.int64) for name in ("local_port", "remote_port"))
    keys = ((host * len(remotes) + remote) << 32) + (local_port << 16) + remote_port
    _, number = np.unique(keys, return_inverse=True)
    most = np.zeros(int(number.max()) + 1)
    np.maximum.at(most, number, sockets["delivered_packets"])
    found = {}
    for flow in np.argsort(-most, kind="stable")[:MOST_CURVES]:
        if most[flow] > 0:
            rows = np.flatnonzero(number == flow)
            rows = rows[np.argsort(sockets["time_ns"][rows], kind="stable")]
            at = rows[0]
            key = hosts[host[at]], remotes[remote[at]], int(local_port[at]), int(remote_port[at])
            found[key] = rows
    return found


def _name(key: Key, hosts: Mapping[str, str]) -> str:
    host, remote, _, port = key
    return f"{host} > {hosts.get(remote, remote)}:{port}"


def _thinned(
    sockets: Columns, rows: NDArray[np.int64], field: str, unit_ns: float, divisor: float
) -> list[tuple[float, float]]:
    kept = rows[:: -(-len(rows) // MOST)]
    return [(float(sockets["time_ns"][row]) / unit_ns, float(sockets[field][row]) / divisor) for row in kept]
