"""CSV of a run: every row and column, numbers as they are."""

import csv
from pathlib import Path

import pyarrow.parquet as pq

from experiments.export.csv_files import export_csv
from experiments.results import read_results
from tests.unit.experiments.report_folders import busy_folder
from topologies.registry import parse_topology


def test_csv_says_what_the_files_say(tmp_path: Path) -> None:
    run = busy_folder(tmp_path / "run", parse_topology("star:hosts=3"), samples=4, ranks=2)
    written = {path.stem: list(csv.DictReader(path.open(newline=""))) for path in export_csv(run).paths}
    assert set(written) == {"rows", "links", "paths", "ports", "sockets", "ranks"}
    results = read_results(run.results)
    assert [row["name"] for row in written["links"]] == [link.name for link in results.links]
    assert [int(row["tx_bytes"]) for row in written["links"]] == [link.tx_bytes for link in results.links]
    assert written["paths"][0]["path"].split() == list(results.paths[0].path)
    for name in ("ports", "sockets", "ranks"):
        table = pq.read_table(run.series / f"{name}.parquet")
        assert [list(row.values()) for row in written[name]] == [
            ["" if value is None else str(value) for value in row.values()] for row in table.to_pylist()
        ]
