"""results.json: the fields that the issue asks for, equal bytes for equal results, and a reader that refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.results import FlowPath, LinkUse, Results, Row, read_results, write_results
from topologies.errors import UserError

ROW = Row.of(op="all_reduce", size_bytes=16_000_000, ranks=8, iteration=0, time_ns=2_600_000, factor=1.75, wrong=0)


def link(*, busy_ns: int) -> LinkUse:
    return LinkUse.of(
        name="h1-eth0>s1-eth1",
        rate_bps=100 * 10**9,
        tx_bytes=12_500_000,
        tx_packets=1400,
        rx_packets=1400,
        drops=0,
        busy_ns=busy_ns,
    )


LINK = link(busy_ns=2_000_000)
PATH = FlowPath(
    src="10.0.1.1", dst="10.0.1.2", proto="tcp", sport=1, dport=2, mark=0, packets=9, bytes=99, path=("h1-eth0",)
)


def results(**changes: Any) -> Results:
    values: dict[str, Any] = {
        "valid": True,
        "experiment": "all_reduce",
        "topology": "star:hosts=8",
        "policy": "ecmp",
        "seed": 1,
        "clock": "virtual",
        "ranks": 8,
        "rows": (ROW,),
        "links": (LINK,),
        "paths": (PATH,),
    }
    return Results(**{**values, **changes})


def test_rates_follow_from_size_and_time() -> None:
    assert ROW.time_us == 2600
    assert ROW.algbw_GBps == pytest.approx(16 / 2.6, abs=1e-6)
    assert ROW.busbw_GBps == pytest.approx(16 / 2.6 * 1.75, abs=1e-6)


def test_utilisation_is_a_share_of_the_rate_while_operations_ran() -> None:
    assert LINK.utilisation == 0.5
    assert link(busy_ns=0).utilisation == 0


def test_the_file_has_the_fields_that_the_issue_names(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", results())
    found = json.loads((tmp_path / "results.json").read_text())
    for key in (
        "schema",
        "valid",
        "reasons",
        "experiment",
        "topology",
        "policy",
        "seed",
        "clock",
        "ranks",
        "rows",
        "links",
    ):
        assert key in found
    assert list(found["rows"][0]) == [
        *("op", "bytes", "ranks", "iteration", "time_us", "algbw_GBps", "busbw_GBps", "wrong")
    ]
    assert {"name", "rate_bps", "tx_bytes", "tx_packets", "drops", "utilisation"} <= set(found["links"][0])


def test_what_is_written_is_read_back_with_sections_of_an_experiments_own(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    written = results(incast=[{"senders": 4}], valid=False, reasons=("broken",))
    write_results(path, written)
    read = read_results(path)
    assert read == written
    assert read.sections["incast"] == [{"senders": 4}]


def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_results(tmp_path / name, results())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "fabric-testbed.results/0"}, "schema is 'fabric-testbed.results/0', this version reads"),
        ({"seed": "one"}, "seed: Input should be a valid integer"),
        ({"rows": [{"op": "x"}]}, r"rows\.0\.bytes: Field required"),
    ],
)
def test_a_file_at_fault_is_refused_by_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "results.json"
    write_results(path, results())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=message):
        read_results(path)


def test_a_figure_that_is_not_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_results(tmp_path / "results.json", results(own=float("nan")))
    assert list(tmp_path.iterdir()) == []
