"""Runs for other people's tools: HPCC's columns, nccl-tests' JSON, Prometheus' text, each held against a golden."""

import json
import re
from pathlib import Path

import pytest

from experiments.export import FORMATS, export
from experiments.pcap_merge import write_run_capture
from experiments.results import Row
from experiments.run_folder import RunFolder, write_json
from testbed.pcapng import Direction
from tests.unit.experiments import report_folders
from tests.unit.experiments.test_pcap_merge import RECEIVE, SEND, ZERO_NS, write
from tests.unit.experiments.test_pcap_tables import pfc, segment
from topologies.errors import UnknownName, UserError
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=3")
FLOWS = {
    "line": [1, 2, 2],
    "pattern": ["permutation", "incast", "incast"],
    "source": ["h1", "h1", "h3"],
    "destination": ["h2", "h2", "h2"],
    "size_bytes": [1_000_000, 64_000, 64_000],
    "start_us": [0.0, 100.5, 100.5],
    "fct_us": [85.123, 12.0, 13.25],
    "ideal_us": [82.5, 7.4, 7.4],
    "slowdown": [1.03, 1.6, 1.8],
}
FCT = """\
0b000001 0b000101 10000 100 1000000 0 85123 82500
0b000001 0b000101 10001 200 64000 100500 12000 7400
0b000201 0b000101 10000 200 64000 100500 13250 7400
"""
QLEN = """\
time: 30000
3 1 2 0 1 1
3 2 4
3 3
"""
TOPOLOGY = """\
4 1 3
3
0 3 100Gbps 0.001ms 0
1 3 100Gbps 0.001ms 0
2 3 100Gbps 0.001ms 0
"""
PFC = """\
10000 0 0 1 1
10000 0 0 1 1
30000 0 0 1 1
"""


def folder(path: Path, *, asked: str = "none", **changes: object) -> RunFolder:
    return report_folders.save(path, STAR, report_folders.results(STAR, **changes), pcap=asked)


def sampled(path: Path) -> RunFolder:
    """A schedule's run whose first switch port queues, and pauses the first host: once at 0, thrice more later."""
    run = folder(path, flows=FLOWS)
    queue = [0, 999, 3000, 2999]
    paused = [1, 3, 3, 4]
    rows = []
    for number in range(4):
        rows.append(report_folders.port("s1-eth1", number, sent_bytes=1000 * number, queue_bytes=queue[number]))
        rows.append(report_folders.port("s1-eth2", number, sent_bytes=0))
        rows.append(report_folders.port("h1-eth0", number, sent_bytes=500, pauses_received=paused[number]))
    report_folders.write(path, "ports", rows)
    return run


def read(written: list[Path]) -> dict[str, str]:
    return {path.name: path.read_text() for path in written}


def test_hpcc_s_files_of_a_schedule(tmp_path: Path) -> None:
    written = export(sampled(tmp_path / "run"), "hpcc")
    found = read(written.paths)
    assert found["fct.txt"] == FCT
    assert found["qlen.txt"] == QLEN
    assert found["topology.txt"] == TOPOLOGY
    assert found["pfc.txt"] == PFC
    assert found["nodes.txt"].splitlines()[-1] == "3 s1 0b000301"
    assert written.left_out == {
        "pfc.txt": "resumes left out at ports without a capture; their pauses have times of samples"
    }


def test_hpcc_s_own_analysis_reads_fct(tmp_path: Path) -> None:
    """The awk of fct_analysis.py: slowdown and size of flows to port 100."""
    lines = [line.split() for line in read(export(sampled(tmp_path / "run"), "hpcc").paths)["fct.txt"].splitlines()]
    found = [(max(1.0, int(word[6]) / int(word[7])), int(word[4])) for word in lines if word[3] == "100"]
    assert found == [(85123 / 82500, 1_000_000)]


def captured(path: Path) -> RunFolder:
    """h1 sends 3 x 100 B of new bytes to h2 in an operation, 2 B before it; h2's port pauses h1 and lets it go on."""
    run = folder(path, asked="hosts")
    report_folders.write(path, "ranks", [report_folders.rank(0, "operation", "send", (1000, 9000))])
    write_json(run.series / "about.json", {"start_ns": 0, "wall_start_ns": ZERO_NS, "events_start_ns": None})
    sent = [(500, segment(98, 2), SEND), *((at, segment(at, 100), SEND) for at in (1000, 1100, 1000, 1200))]
    stamps = (500, 1000, 1100, 2000, 2100)
    packets = [(at, data, way) for at, (_, data, way) in zip(stamps, sent, strict=True)]
    paused: list[tuple[int, bytes, Direction]] = [(1500, pfc(8, 0, 0, 0, 65535), RECEIVE), (1700, pfc(8), RECEIVE)]
    write(run.pcap, "h1-eth0", *sorted([*packets, *paused], key=lambda each: each[0]))
    write(run.pcap, "h2-eth0", *((at + 2000, data, RECEIVE) for at, data, _ in packets))
    write_run_capture(run, "both")
    return run


def test_flows_and_pauses_come_from_captures_where_there_are_some(tmp_path: Path) -> None:
    """From the first byte's leaving to the last one's arriving; what was sent again is not more bytes."""
    written = export(captured(tmp_path / "run"), "hpcc")
    found = read(written.paths)
    *ends, size, start, fct, alone = found["fct.txt"].split()
    assert ends == ["0b000001", "0b000101", "5000", "6000"]
    assert (size, start, fct) == ("300", "1000", "3100")
    assert int(alone) == 2000 + round(2 * (300 + 66) * 8 / 100)
    assert found["pfc.txt"] == "1500 0 0 1 1\n1700 0 0 1 0\n"
    assert set(written.left_out) == {"qlen.txt"}


def test_what_a_run_cannot_say_is_left_out_with_the_reason(tmp_path: Path) -> None:
    found = {name: export(folder(tmp_path / name), name) for name in FORMATS}
    assert found["hpcc"].left_out["fct.txt"].endswith("run with --pcap hosts")
    assert "--sample" in found["hpcc"].left_out["qlen.txt"]
    assert found["nccl"].left_out == {"nccl.txt": "schedule measures no operations of a size in a time"}
    assert [path.name for path in found["prometheus"].paths] == ["metrics.prom"]
    assert "ranks.csv" in found["csv"].left_out


def test_an_unknown_format_and_an_unfinished_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown format 'xml'; known: csv, hpcc, nccl, prometheus"):
        export(folder(tmp_path), "xml")
    for name in FORMATS:
        with pytest.raises(UserError, match="not the folder of a finished run"):
            export(RunFolder(tmp_path / "nowhere"), name)


def rows(op: str, sizes: tuple[int, ...], factor: float) -> list[Row]:
    return [
        Row.of(op=op, size_bytes=size, ranks=2, iteration=number, time_ns=1000 * time_us, factor=factor, wrong=0)
        for size in sizes
        for number, time_us in enumerate((100, 200))
    ]


JSON = {
    "version": 2,
    "start_time": "1970-01-01 00:00:00",
    "args": ["all_reduce_perf", "-b", "1000000", "-e", "4000000", "-n", "2"],
    "env": [],
    "nccl_version": 0,
    "results": [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": None,
            "in_place": {"time": 150.0, "alg_bw": rate, "bus_bw": rate, "nwrong": 0.0},
            "actual_iterations": 2,
            "experiment_name": "all_reduce_perf",
        }
        for size, rate in ((1_000_000, 6.666667), (4_000_000, 26.666667))
    ],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "average_bus_bandwidth": {"bandwidth": 16.666667, "okay": "unchecked"},
    "errors": [],
    "end_time": "1970-01-01 00:00:00",
}


def test_json_has_nccl_tests_keys_in_their_order(tmp_path: Path) -> None:
    run = folder(tmp_path, rows=(*rows("all_reduce", (1_000_000, 4_000_000), 1.0), *rows("blocks", (512,), 1.5)))
    found = read(export(run, "nccl").paths)
    assert list(found) == ["nccl.txt", "nccl_all_reduce.json", "nccl_blocks.json"]
    document = json.loads(found["nccl_all_reduce.json"])
    config = document.pop("config")
    assert document == JSON
    assert list(document) == list(JSON)
    assert (config["minimum_bytes"], config["maximum_bytes"], config["step_factor"]) == (1_000_000, 4_000_000, 4)
    assert [device["hostname"] for device in config["devices"]] == ["h1", "h2"]


def test_an_operation_that_nccl_tests_does_not_know_keeps_its_own_factor(tmp_path: Path) -> None:
    found = read(export(folder(tmp_path, rows=tuple(rows("blocks", (512,), 1.5))), "nccl").paths)
    (line,) = [line.split() for line in found["nccl.txt"].splitlines() if not line.startswith("#")]
    assert line[:5] == ["512", "128", "float", "none", "-1"]
    (result,) = json.loads(found["nccl_blocks.json"])["results"]
    assert result["out_of_place"]["bus_bw"] == pytest.approx(1.5 * result["out_of_place"]["alg_bw"], rel=1e-3)


PORTS = """\
# HELP fabric_port_queue_bytes waiting now, what is being serialised not counted
# TYPE fabric_port_queue_bytes gauge
fabric_port_queue_bytes{interface="h1-eth0",peer="s1-eth1",class="all"} 0
fabric_port_queue_bytes{interface="s1-eth1",peer="h1-eth0",class="all"} 2999
fabric_port_queue_bytes{interface="s1-eth2",peer="h2-eth0",class="all"} 0
"""


def test_prometheus_has_the_last_sample(tmp_path: Path) -> None:
    text = read(export(sampled(tmp_path), "prometheus").paths)["metrics.prom"]
    assert PORTS in text
    assert 'fabric_port_pauses_received_total{interface="h1-eth0",peer="s1-eth1",class="all"} 4\n' in text
    assert 'fabric_port_sent_bytes_total{interface="s1-eth1",peer="h1-eth0",class="all"} 3000\n' in text
    assert text.startswith("# HELP fabric_run_info what ran; always 1\n# TYPE fabric_run_info gauge\n")


def test_prometheus_falls_back_on_the_counters_of_a_run_that_nobody_sampled(tmp_path: Path) -> None:
    used = report_folders.link_uses(STAR, s1_eth1={"tx_bytes": 77, "marks": 5, "paused_us": 2.5})
    text = read(export(folder(tmp_path, links=used), "prometheus").paths)["metrics.prom"]
    labels = '{interface="s1-eth1",peer="h1-eth0",class="all"}'
    for line in (
        f"sent_bytes_total{labels} 77",
        f"marked_packets_total{labels} 5",
        f"paused_seconds_total{labels} 2.5e-06",
    ):
        assert f"fabric_port_{line}\n" in text
    assert "fabric_port_queue_bytes{" not in text, "what waits now was not looked at"


LINE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\["\\n])*",?)*\})? [-+0-9.eE]+')


def test_prometheus_s_grammar_holds(tmp_path: Path) -> None:
    """Every line is a comment or a sample; each name has one HELP and one TYPE, before its samples, all together."""
    run = report_folders.busy_folder(tmp_path / "run", STAR, samples=4, ranks=2)
    text = read(export(run, "prometheus").paths)["metrics.prom"]
    assert text.endswith("\n")
    seen: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in seen
            assert kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
            seen.append(name)
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            assert re.split(r"[{ ]", line)[0] == seen[-1]
    assert len(seen) > 12
    labels = re.findall(r"^(\w+\{.*\}) ", text, re.MULTILINE)
    assert len(labels) == len(set(labels))
