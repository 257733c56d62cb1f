"""Series without a guest: the words of --sample, thinning, marks between readers, and files held to their schema."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.run_folder import RunFolder, write_json
from experiments.series.recording import port_columns
from experiments.series.sampling import Sampling, parse_sampling
from experiments.series.schema import FILES, PORTS, VERSION
from experiments.series.tables import write_series
from testbed.port.marks import Marks
from testbed.port.reading import Columns
from testbed.sampler import Series
from testbed.sampler_process import thinned
from topologies.errors import UserError


def test_words() -> None:
    def parse(text: str, port_kind: str = "fabric", clock: str = "virtual") -> Sampling:
        return parse_sampling(text, port_kind=port_kind, clock=clock)

    assert parse("off") == Sampling(idle=True)
    assert parse("off", clock="real") == Sampling()
    assert parse("10us") == Sampling(period_ns=10_000)
    assert parse("auto") == parse("adaptive")
    assert parse("auto").adaptive
    assert parse("auto", clock="real") == Sampling()
    assert parse("auto", port_kind="stock") == Sampling()
    for wrong, kind, word in (("often", "fabric", "often"), ("99ns", "fabric", "100 ns"), ("10us", "stock", "stock")):
        with pytest.raises(UserError, match=word):
            parse(wrong, kind)


@pytest.mark.parametrize("ports", [2, 10, 64, 768])
def test_adaptive_keeps_an_odd_number(ports: int) -> None:
    """Thinning keeps the first and the last only of an odd number."""
    most = Sampling(period_ns=1, adaptive=True).most_samples(ports)
    assert most is not None
    assert most % 2 == 1
    assert Sampling(period_ns=1).most_samples(ports) is None


def test_thinning_loses_no_mark_and_no_count() -> None:
    column = np.array([0, 9, 2, 3, 4])
    whole = Columns(port={"peak_bytes": column, "now_ns": column}, classes={3: {"peak_bytes": column[::-1]}})
    kept = thinned(whole)
    assert kept.port["peak_bytes"].tolist() == [0, 9, 4]
    assert kept.port["now_ns"].tolist() == [0, 2, 4]
    assert kept.classes[3]["peak_bytes"].tolist() == [4, 3, 9]


def test_each_reader_has_the_marks_it_would_have_alone() -> None:
    """A reads 9000 first; B, who then reads 100, learns of the 9000, once."""
    marks = Marks(["x", "y"])
    places = marks.places(["y", "x"])
    with marks.reader() as a, marks.reader() as b:
        assert marks.exchange(a, places, np.array([9000, 7])).tolist() == [0, 0]
        assert marks.exchange(b, places, np.array([100, 8])).tolist() == [9000, 7]
        assert marks.exchange(b, places, np.array([100, 8])).tolist() == [0, 0]
        marks.tell("x", 50)
        assert marks.exchange(a, places, np.array([0, 0])).tolist() == [100, 50]
    with marks.reader() as again:
        assert marks.exchange(again, places, np.array([0, 0])).tolist() == [0, 0], "a new reader missed nothing"


def _series(interface: str) -> Series:
    zeros, ones = np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64)
    port = {"now_ns": np.array([100, 200]), **dict.fromkeys(("queue_bytes", "peak_bytes", "delivered_bytes"), ones)}
    names = ("queue_bytes", "peak_bytes", "sent_bytes", "sent_packets", "marked", "pauses_sent", "pauses_received")
    drops = tuple(f"dropped_packets_{cause}" for cause in ("egress", "shared", "headroom", "watchdog", "flush"))
    used = {**dict.fromkeys((*names, *drops, "paused_ns"), zeros), "sent_bytes": np.array([0, 5]), drops[1]: ones * 3}
    return Series(
        interface=interface, start_ns=100, port={**port, "delivered_packets": ones, "busy_ns": ones}, classes={2: used}
    )


def test_files_are_as_the_schema_says(tmp_path: Path) -> None:
    """Names, types, order and metadata of each; what the guest left is gone."""
    run = RunFolder(tmp_path)
    run.series.mkdir()
    write_json(run.series / "about.json", {"start_ns": 40})
    np.savez(run.series / "ports.npz", **port_columns({"b-1": _series("b-1"), "a-1": _series("a-1")}, 100))  # type: ignore[arg-type]
    (tmp_path / "ranks" / "job-02").mkdir(parents=True)
    entries = [["wait", "go", 50, 60, 0, None], ["wait", "go", 70, 80, 0, None], ["compute", "f", 61, 62, 0, -1]]
    (tmp_path / "ranks" / "job-02" / "rank-003.journal").write_text(json.dumps(["h4", entries]))
    write_series(run)
    assert sorted(path.name for path in run.series.iterdir()) == ["about.json", "ports.parquet", "ranks.parquet"]
    for name in ("ports", "ranks"):
        assert pq.read_schema(run.series / f"{name}.parquet").equals(FILES[name], check_metadata=True), name
    ports = pq.read_table(run.series / "ports.parquet").to_pylist()
    assert [(row["time_ns"], row["interface"], row["class"]) for row in ports[:4]] == [
        (0, "b-1", -1),
        (0, "b-1", 2),
        (0, "a-1", -1),
        (0, "a-1", 2),
    ]
    assert {row["dropped_packets"] for row in ports} == {3}
    ranks = pq.read_table(run.series / "ranks.parquet").to_pylist()
    assert [(row["job"], row["rank"], row["host"], row["step"], row["start_ns"]) for row in ranks] == [
        (2, 3, "h4", 0, 10),
        (2, 3, "h4", -1, 21),
        (2, 3, "h4", 1, 30),
    ]


def test_every_column_says_what_it_means_and_its_unit() -> None:
    assert {schema.metadata[b"schema"].decode() for schema in FILES.values()} == {VERSION}
    units = ("_ns", "_bytes", "_packets", "_bps")
    for name in set(PORTS.names) - {"interface", "class", "pauses_sent", "pauses_received"}:
        assert name.endswith(units), name
