"""Ring all-reduce on one switch: how near to the line rate, and is every figure in results.json true?"""

import pytest

from experiments.run_folder import RunFolder, read_json
from experiments.workloads.messages import wire_bytes
from experiments.workloads.operations import OPERATIONS
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

MB = 1_000_000


@pytest.fixture(scope="module")
def eight_at_100g(run_experiment: RunExperiment) -> Run:
    """8 ranks, 100 Gb/s, MTU 9000."""
    return run_experiment(
        "all_reduce", "--topology", "star:hosts=8,rate=100G,mtu=9000", "--set", "sizes=16M,64M"
    ).succeeded()


@pytest.fixture(scope="module")
def four_at_400g(run_experiment: RunExperiment) -> Run:
    """4 ranks, 400 Gb/s, MTU 9000."""
    return run_experiment(
        "all_reduce", "--topology", "star:hosts=4,rate=400G,mtu=9000", "--set", "sizes=64M"
    ).succeeded()


def test_16_mb_at_100_gbps(eight_at_100g: Run) -> None:
    assert eight_at_100g.best_share(16 * MB, 100e9) >= 0.95


def test_64_mb_at_100_gbps(eight_at_100g: Run) -> None:
    assert eight_at_100g.best_share(64 * MB, 100e9) >= 0.95


def test_64_mb_at_400_gbps(four_at_400g: Run) -> None:
    assert four_at_400g.best_share(64 * MB, 400e9) >= 0.95


def test_rows_follow_from_bytes_and_time(eight_at_100g: Run) -> None:
    """algbw = S / t and busbw = algbw x 2(n-1)/n (nccl-tests); two iterations of two sizes; no wrong element."""
    rows = eight_at_100g.results.rows
    assert [(row.op, row.bytes, row.iteration) for row in rows] == [
        ("all_reduce", size, iteration) for size in (16 * MB, 64 * MB) for iteration in (0, 1)
    ]
    for row in rows:
        assert row.ranks == 8
        assert row.wrong == 0
        assert row.algbw_GBps == pytest.approx(row.bytes / row.time_us / 1e3, rel=1e-4)
        assert row.busbw_GBps == pytest.approx(row.algbw_GBps * 14 / 8, rel=1e-5)


def test_the_links_carried_what_the_ring_needs(eight_at_100g: Run) -> None:
    """Every host sends and receives 2(n-1)/n of each array, three times with the warm-up, and a percent of headers."""
    payload = 3 * sum(
        wire_bytes(OPERATIONS["all_reduce"].messages(8, size), ranks=8)[0].tx for size in (16 * MB, 64 * MB)
    )
    assert payload == pytest.approx(3 * 80 * MB * 14 / 8, rel=0.001)
    for link in eight_at_100g.results.links:
        assert payload < link.tx_bytes < 1.03 * payload, link.name
        assert link.tx_packets == link.rx_packets, link.name


def test_only_neighbours_talk(eight_at_100g: Run) -> None:
    """gloo's all-reduce sends to rank - 1: eight large flows, all others only joined the process group."""
    large = [path for path in eight_at_100g.results.paths if path.bytes > MB]
    neighbours = {(f"10.0.1.{rank}", f"10.0.1.{(rank - 2) % 8 + 1}") for rank in range(1, 9)}
    data = {(path.src, path.dst) for path in large if path.bytes > 100 * MB}
    assert data == neighbours
    assert all(path.path == (f"h{path.src.split('.')[-1]}-eth0", f"s1-eth{path.dst.split('.')[-1]}") for path in large)


def test_the_folder_tells_the_whole_run(eight_at_100g: Run) -> None:
    """What was asked, what was in force, what is modelled; a report that needs nothing else; no leftovers."""
    folder = eight_at_100g.folder
    manifest = eight_at_100g.manifest
    assert manifest["asked"]["topology"] == "star:hosts=8,rate=100G,mtu=9000"
    assert manifest["in_force"]["hosts"]["h1"]["sysctls"]["net/ipv4/tcp_congestion_control"] == "cubic"
    assert any("moderation" in line for line in manifest["modelled"])
    assert manifest["versions"]["torch"]
    assert read_json(RunFolder(folder.path).topology)
    assert "all_reduce" in folder.report.read_text()
    assert not (folder.path / ".guest").exists()
    assert not folder.error.exists()
    assert "busbw" in eight_at_100g.said
    assert str(folder.report) in eight_at_100g.said
