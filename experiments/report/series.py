"""What was sampled during a run, read back from its folder: ports, sockets and ranks over the run's time.

Any of the three files may be missing: `missing` then says why, in words for the page.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from topologies.errors import UserError

Columns = Mapping[str, NDArray[Any]]
"""Column name -> its values, in the order of the file."""

WHOLE_PORT = -1
"""Of the column `class`: all traffic classes of a port together."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ports": (
        "time_ns",
        "interface",
        "class",
        "queue_bytes",
        "queue_max_bytes",
        "sent_bytes",
        "marked_packets",
        "dropped_packets",
        "pauses_sent",
        "pauses_received",
        "paused_ns",
    ),
    "sockets": (
        "time_ns",
        "host",
        "local_address",
        "local_port",
        "remote_address",
        "remote_port",
        "cwnd_packets",
        "srtt_ns",
        "delivered_packets",
    ),
    "ranks": ("job", "rank", "host", "kind", "name", "step", "start_ns", "end_ns"),
}
"""What a report needs of each file; a file may have more."""
WELCOME: Mapping[str, tuple[str, ...]] = {"ports": ("sending_ns",)}
"""What runs of an earlier version lack: what is drawn from it is left out for them."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The files of a run's folder `series`, as far as they are there."""

    ports: Columns | None = None
    """Rows of whole ports only, in time order."""
    sockets: Columns | None = None
    ranks: Columns | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    """Name of a file that is not there or has no row -> why, in words."""


def read_series(folder: Path) -> Series:
    """Reads `folder`/{ports,sockets,ranks}.parquet.  Raises UserError for a file that cannot be read as one of ours."""
    found: dict[str, Columns] = {}
    missing: dict[str, str] = {}
    for name, columns in COLUMNS.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            missing[name] = f"this run recorded no {path.parent.name}/{path.name}"
            continue
        table = _read(path, columns)
        if name == "ports":
            table = _whole_ports(table)
        if not len(next(iter(table.values()))):
            missing[name] = f"{path.parent.name}/{path.name} has no rows"
            continue
        found[name] = table
    return Series(ports=found.get("ports"), sockets=found.get("sockets"), ranks=found.get("ranks"), missing=missing)


def _read(path: Path, columns: tuple[str, ...]) -> Columns:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} cannot be read as Parquet: {error}") from error
    if lacking := [name for name in columns if name not in file.schema_arrow.names]:
        raise UserError(
            f"{path} has no column {', '.join(lacking)}; experiments/series/schema.py says what it must have"
        )
    names = [*columns, *(name for name in WELCOME.get(path.stem, ()) if name in file.schema_arrow.names)]
    table = file.read(columns=names)
    return {name: _values(table.column(name)) for name in names}


def _values(column: "pa.ChunkedArray[Any]") -> NDArray[Any]:
    """Text as objects, numbers as they are; null is 0 for numbers, which a socket without a sample of a field has."""
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
        texts: NDArray[Any] = np.array(encoded.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[encoded.indices.to_numpy()])
    return np.asarray(column.fill_null(0).to_numpy())


def coded(texts: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """A number for every text, and the text of every number: millions of texts are compared once, as numbers later."""
    encoded = pa.array(texts, type=pa.string()).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _whole_ports(table: Columns) -> Columns:
    rows = np.flatnonzero(table["class"] == WHOLE_PORT)
    rows = rows[np.argsort(table["time_ns"][rows], kind="stable")]
    return {name: values[rows] for name, values in table.items()}
