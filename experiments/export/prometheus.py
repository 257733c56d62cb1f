"""The last sample of a run as Prometheus' text (format 0.0.4): for a textfile collector, or served while it runs.

    fabric_port_sent_bytes_total{interface="leaf1-eth1",peer="h1-eth0",class="all"} 48210

Names are in base units, as Prometheus asks: bytes, seconds, bits per second.  Values of a run that has ended do not
change any more; samples carry no time of their own, because a textfile collector refuses them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow.parquet as pq

from experiments.export.written import Written
from experiments.results import Results, read_results
from experiments.run_folder import RunFolder, read_json
from experiments.series.schema import FILES, WHOLE_PORT
from topologies.json_form import from_json
from topologies.model import Topology

Kind = Literal["counter", "gauge"]
NS_PER_S: Final = 1e9
_PORT_METRICS: Final[Mapping[str, tuple[str, Kind, float]]] = {
    "queue_bytes": ("fabric_port_queue_bytes", "gauge", 1),
    "queue_max_bytes": ("fabric_port_queue_max_bytes", "gauge", 1),
    "sent_bytes": ("fabric_port_sent_bytes_total", "counter", 1),
    "sent_packets": ("fabric_port_sent_packets_total", "counter", 1),
    "marked_packets": ("fabric_port_marked_packets_total", "counter", 1),
    "dropped_packets": ("fabric_port_dropped_packets_total", "counter", 1),
    "pauses_sent": ("fabric_port_pauses_sent_total", "counter", 1),
    "pauses_received": ("fabric_port_pauses_received_total", "counter", 1),
    "paused_ns": ("fabric_port_paused_seconds_total", "counter", NS_PER_S),
}
"""Column of ports.parquet -> name, kind, what to divide by."""
_SOCKET_METRICS: Final[Mapping[str, tuple[str, Kind, float]]] = {
    "cwnd_packets": ("fabric_socket_cwnd_packets", "gauge", 1),
    "srtt_ns": ("fabric_socket_srtt_seconds", "gauge", NS_PER_S),
    "retransmitted_packets": ("fabric_socket_retransmitted_packets_total", "counter", 1),
    "timeouts": ("fabric_socket_timeouts_total", "counter", 1),
    "delivery_rate_bps": ("fabric_socket_delivery_rate_bits_per_second", "gauge", 1),
    "delivered_packets": ("fabric_socket_delivered_packets_total", "counter", 1),
    "delivered_ce_packets": ("fabric_socket_delivered_ce_packets_total", "counter", 1),
}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(kw_only=True)
class Metric:
    """One name and all its values."""

    name: str
    kind: Kind
    meaning: str
    values: list[tuple[Mapping[str, str], float]] = field(default_factory=list)
    """Labels and value."""

    def lines(self) -> Iterator[str]:
        """HELP, TYPE, and a line for each value."""
        meaning = self.meaning.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {self.name} {meaning}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values:
            inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
            yield f"{self.name}{{{inside}}} {_number(value)}" if inside else f"{self.name} {_number(value)}"


def text(metrics: Iterable[Metric]) -> str:
    """Of metrics that have a value; a name may come once."""
    return "".join(line + "\n" for metric in metrics if metric.values for line in metric.lines())


def export_prometheus(run: RunFolder) -> Written:
    """Raises UserError where the folder is not that of a finished run."""
    results, topology = read_results(run.results), from_json(read_json(run.topology))
    written, metrics = Written.into(run), [*_run_metrics(results), link_rates(topology)]
    for name, make in (("ports", port_metrics), ("sockets", socket_metrics)):
        path = run.series / f"{name}.parquet"
        if path.exists():
            metrics += make(last_rows(path), topology)
        else:
            written.left_out[f"{name} in metrics.prom"] = "left out: the run has no samples of them (--sample)"
    if not (run.series / "ports.parquet").exists():
        metrics += port_metrics(_final_rows(results), topology)
    written.add("metrics.prom", text(metrics))
    return written


def last_rows(path: Any) -> list[dict[str, Any]]:
    """Of each port and class, or each socket: its last row."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    source = pq.ParquetFile(path)
    names = source.schema_arrow.names
    keys = [key for key in ("interface", "class") if key in names] or [
        "host",
        *("local_address", "local_port", "remote_address", "remote_port"),
    ]
    for batch in source.iter_batches():
        for row in batch.to_pylist():
            found[tuple(row[key] for key in keys)] = row
    return list(found.values())


def port_metrics(rows: Iterable[Mapping[str, Any]], topology: Topology) -> list[Metric]:
    """From rows of ports.parquet, in the topology's order; columns that a row lacks are left out."""
    order = {end.name: place for place, end in enumerate(topology.interfaces())}
    metrics = {column: _metric(column, "ports", *words) for column, words in _PORT_METRICS.items()}
    for row in sorted(rows, key=lambda row: (order[row["interface"]], row["class"])):
        name = "all" if row["class"] == WHOLE_PORT else str(row["class"])
        labels = {"interface": row["interface"], "peer": topology.peer_of[row["interface"]].name, "class": name}
        _add(metrics, row, labels, _PORT_METRICS)
    return list(metrics.values())


def socket_metrics(rows: Iterable[Mapping[str, Any]], topology: Topology) -> list[Metric]:
    """From rows of sockets.parquet."""
    known = {str(nic.ip): nic.node for nic in topology.host_interfaces()}
    metrics = {column: _metric(column, "sockets", *words) for column, words in _SOCKET_METRICS.items()}
    for row in sorted(
        rows, key=lambda row: (row["host"], row["local_port"], row["remote_address"], row["remote_port"])
    ):
        labels = {
            "host": row["host"],
            "local": f"{row['local_address']}:{row['local_port']}",
            "remote": f"{row['remote_address']}:{row['remote_port']}",
            "remote_host": known.get(row["remote_address"], ""),
        }
        _add(metrics, row, labels, _SOCKET_METRICS)
    return list(metrics.values())


def link_rates(topology: Topology) -> Metric:
    """What utilisation is a share of."""
    rates = Metric(
        name="fabric_port_rate_bits_per_second", kind="gauge", meaning="of the link that the port sends into"
    )
    rates.values = [
        ({"interface": end.name, "peer": topology.peer_of[end.name].name}, topology.link_of[end.name].rate_bps)
        for end in topology.interfaces()
    ]
    return rates


def _run_metrics(results: Results) -> Iterator[Metric]:
    words = ("experiment", "topology", "policy", "clock", "seed")
    labels = {word: str(getattr(results, word)) for word in words}
    yield Metric(name="fabric_run_info", kind="gauge", meaning="what ran; always 1", values=[(labels, 1)])
    valid = Metric(
        name="fabric_run_valid", kind="gauge", meaning="1: no bound was broken", values=[({}, results.valid)]
    )
    yield valid


def _final_rows(results: Results) -> Iterator[dict[str, Any]]:
    """A run that nobody sampled still counted."""
    for link in results.links:
        yield {
            "interface": link.name.partition(">")[0],
            "class": WHOLE_PORT,
            "queue_max_bytes": link.queue_max_bytes,
            "sent_bytes": link.tx_bytes,
            "sent_packets": link.tx_packets,
            "marked_packets": link.marks,
            "dropped_packets": link.drops,
            "pauses_sent": link.pauses_sent,
            "pauses_received": link.pauses_received,
            "paused_ns": round(link.paused_us * 1000),
        }


def _metric(column: str, table: str, name: str, kind: Kind, _divisor: float) -> Metric:
    return Metric(name=name, kind=kind, meaning=FILES[table].field(column).metadata[b"meaning"].decode())


def _add(
    metrics: Mapping[str, Metric],
    row: Mapping[str, Any],
    labels: Mapping[str, str],
    words: Mapping[str, tuple[str, Kind, float]],
) -> None:
    for column, metric in metrics.items():
        if row.get(column) is not None:
            divisor = words[column][2]
            metric.values.append((labels, row[column] if divisor == 1 else row[column] / divisor))


def _number(value: float) -> str:
    """Whole numbers to the last digit."""
    return str(int(value)) if value == int(value) else repr(float(value))
