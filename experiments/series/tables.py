"""The machine's side: Parquet from what the guest left, held to schema.py column by column."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.run_folder import RunFolder, read_json
from experiments.series.recording import ABOUT
from experiments.series.schema import FILES
from testbed.workers import journal

Columns = dict[str, Any]


def write_series(run: RunFolder) -> None:
    """Makes series/*.parquet of a run that has ended; what it makes them of is gone then."""
    folder = run.series
    start_ns = int(read_json(folder / ABOUT)["start_ns"])
    _write(folder, "ranks", rank_columns(run.path / "ranks", start_ns))
    for name, read in (("ports", _ports), ("sockets", _sockets)):
        left = folder / f"{name}.npz"
        if left.exists():
            with np.load(left) as found:
                _write(folder, name, read(found))
            left.unlink()
    for path in (run.path / "ranks").glob(f"job-*/*{journal.SUFFIX}"):
        path.unlink()


def _write(folder: Path, name: str, columns: Columns) -> None:
    schema = FILES[name]
    arrays = [_array(columns[field.name], field.type) for field in schema]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / f"{name}.parquet", compression="zstd")


def _array(values: Any, kind: "pa.DataType") -> "pa.Array[Any]":
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_dictionary(kind):
        words, places = np.unique(np.asarray(values, dtype=str), return_inverse=True)
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(words.tolist(), pa.string()))
    return pa.array(values, kind)


def _ports(found: Any) -> Columns:
    columns: Columns = {name: found[name] for name in found.files}
    names = pa.array(columns.pop("interfaces").tolist(), pa.string())
    columns["interface"] = pa.DictionaryArray.from_arrays(pa.array(columns["interface"], pa.int32()), names)
    return columns


def _sockets(found: Any) -> Columns:
    columns: Columns = {name: found[name] for name in found.files}
    columns["srtt_ns"] = columns.pop("srtt_us") * 1000
    columns["delivery_rate_bps"] = columns.pop("delivery_rate_Bps") * 8
    return columns


def rank_columns(ranks: Path, start_ns: int) -> Columns:
    """The columns of ranks.parquet, from the journals of all jobs; by job, rank and start."""
    rows = sorted(_rows(ranks, start_ns), key=lambda row: (row[0], row[1], row[6], row[7]))
    names = FILES["ranks"].names
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _rows(ranks: Path, start_ns: int) -> Iterator[tuple[Any, ...]]:
    for path in sorted(ranks.glob(f"job-*/rank-*{journal.SUFFIX}")):
        job, rank = int(path.parent.name.removeprefix("job-")), int(path.stem.removeprefix("rank-"))
        found = journal.read(path)
        counts: dict[tuple[str, str], int] = {}
        for each in found.entries:
            before = counts.get((each.kind, each.name), 0)
            counts[each.kind, each.name] = before + 1
            step = before if each.step is None else each.step
            times = (each.start_ns - start_ns, each.end_ns - start_ns)
            yield job, rank, found.host, each.kind, each.name, step, *times, each.size_bytes
