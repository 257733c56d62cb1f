"""A run as CSV: results of results.json, and what `series` holds.

rows.csv links.csv paths.csv           as results.py says, one column per field
ports.csv sockets.csv ranks.csv        as series/schema.py says; those that the run has
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from experiments.export.written import Written
from experiments.results import read_results
from experiments.run_folder import RunFolder
from experiments.series.schema import FILES

BATCH_ROWS = 65_536


def export_csv(run: RunFolder) -> Written:
    """Raises UserError where the folder is not that of a finished run."""
    results = read_results(run.results)
    written = Written.into(run)
    for name, records in (("rows", results.rows), ("links", results.links), ("paths", results.paths)):
        rows = [_flat(record.model_dump(mode="json")) for record in records]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        written.paths.append(_write(written.folder / f"{name}.csv", columns, rows))
    for name in FILES:
        source = run.series / f"{name}.parquet"
        if source.exists():
            table = pq.ParquetFile(source)
            batches = (batch.to_pylist() for batch in table.iter_batches(batch_size=BATCH_ROWS))
            rows_of = (row for batch in batches for row in batch)
            written.paths.append(_write(written.folder / f"{name}.csv", table.schema_arrow.names, rows_of))
        else:
            written.left_out[f"{name}.csv"] = f"the run has no series of {name} (--sample)"
    return written


def _write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A field that is a mapping becomes columns `field.key`; a list becomes words."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            found[key] = " ".join(map(str, value)) if isinstance(value, list) else value
    return found
