"""What a report says in words: the right link, host and share in situations that are known, and silence otherwise."""

from pathlib import Path

from experiments.report.figure import Run
from experiments.report.series import Series, read_series
from experiments.report.summary import Finding, ranks_in_words, summary
from experiments.results import Results
from tests.unit.experiments.report_folders import flow, link_uses, port, rank, results, write
from topologies.model import Topology
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,hosts=4,spines=2,rate=100G")
STAR = parse_topology("star:hosts=5")
UPLINKS = ("leaf2-eth5", "leaf2-eth6")


def texts(topology: Topology, found: Results, series: Series, kind: str) -> list[str]:
    said: list[Finding] = summary(Run(found, topology, series))
    return [finding.text for finding in said if finding.kind == kind]


def crossing(*uplinks: str) -> Results:
    """Flows of 1 MB from the hosts of leaf2, each over the uplink that is named; acknowledgements back over leaf1's."""
    spines = {"leaf2-eth5": "spine1-eth1", "leaf2-eth6": "spine2-eth1"}
    paths = [
        flow(FABRIC, f"h{5 + number}-eth0", uplink, spines[uplink], f"leaf1-eth{number + 1}")
        for number, uplink in enumerate(uplinks)
    ]
    back = [
        flow(FABRIC, f"h{number + 1}-eth0", "leaf1-eth5", "spine1-eth2", f"leaf2-eth{number + 1}", size_bytes=9000)
        for number in range(4)
    ]
    busy = {
        name.replace("-", "_"): {"tx_bytes": 10**6 * uplinks.count(name), "utilisation": uplinks.count(name) * 0.98 / 3}
        for name in UPLINKS
    }
    acknowledged = {"leaf1_eth5": {"tx_bytes": 36_000, "utilisation": 0.01}}
    return results(FABRIC, paths=tuple(paths + back), links=link_uses(FABRIC, **busy, **acknowledged))


def test_a_hash_collision_is_told_with_its_link_its_flows_and_its_share() -> None:
    found = crossing("leaf2-eth5", "leaf2-eth6", "leaf2-eth5", "leaf2-eth5")
    assert texts(FABRIC, found, Series(), "collision") == [
        "leaf2's uplink to spine1 carried 3 of 4 flows and was 98% busy; an even share is 2."
    ]


def test_even_uplinks_and_acknowledgements_are_no_collision() -> None:
    found = crossing("leaf2-eth5", "leaf2-eth6", "leaf2-eth5", "leaf2-eth6")
    assert texts(FABRIC, found, Series(), "collision") == []


def incast(**port_to_h1: int) -> Results:
    paths = tuple(flow(STAR, f"h{number}-eth0", "s1-eth1") for number in range(2, 6))
    return results(STAR, paths=paths, links=link_uses(STAR, s1_eth1=port_to_h1))


def test_an_incast_is_told_with_its_port_fan_in_and_what_happened_there() -> None:
    found = incast(drops=12, marks=3, queue_max_bytes=499_000)
    assert texts(STAR, found, Series(), "incast") == [
        "4 hosts sent to h1: s1's port to it dropped 12 packets, marked 3 packets and held up to 499 kB."
    ]
    assert texts(STAR, found, Series(), "losses") == ["12 packets were dropped, 12 of them at s1 > h1."]


def test_many_senders_whose_packets_just_pass_are_no_incast() -> None:
    assert texts(STAR, incast(queue_max_bytes=9000), Series(), "incast") == []


def test_what_tcp_sent_again_and_received_out_of_order_is_told() -> None:
    seen = {"retransmitted": 12, "timeouts": 3, "needless": 4, "out_of_order": 512, "loss_probes": 0, "hosts": {}}
    found = results(STAR).model_copy(update={"tcp": seen})
    assert texts(STAR, found, Series(), "tcp") == [
        "TCP sent 12 segments again (3 after timeouts, 4 needlessly) and received 512 out of order."
    ]
    assert texts(STAR, results(STAR), Series(), "tcp") == []


def steps(folder: Path, *compute_ns: int) -> Series:
    """Two steps of 1 ms: compute, then one collective until the end; warm-up with everybody late is not counted."""
    write(
        folder,
        "ranks",
        [
            rank(number, kind, "gradients", (step * 10**6 + begin, step * 10**6 + end), step=step)
            for step in (-1, 0, 1)
            for number, busy in enumerate(compute_ns)
            for kind, begin, end in (("compute", 0, busy), ("communication", busy, 10**6))
            if step >= 0 or number == 0
        ],
    )
    return read_series(folder / "series")


def test_a_straggler_is_told_with_its_host_and_who_waited_how_long(tmp_path: Path) -> None:
    series = steps(tmp_path, 200_000, 200_000, 610_000, 200_000)
    assert texts(STAR, results(STAR), series, "straggler") == [
        "h3 (rank 2) came last and held up all others for 41% of the step; ranks 0-1, 3 waited 41% of the step."
    ]


def test_how_long_steps_stand_still_is_their_time_without_compute(tmp_path: Path) -> None:
    series = steps(tmp_path, 200_000, 200_000, 600_000, 200_000)
    assert texts(STAR, results(STAR), series, "halting") == [
        "Of a step, ranks stood still 70%: for the network or for each other."
    ]


def test_ranks_that_come_together_hold_up_nobody(tmp_path: Path) -> None:
    assert texts(STAR, results(STAR), steps(tmp_path, 200_000, 210_000, 200_000), "straggler") == []


def test_waiting_that_compute_hides_is_not_waiting(tmp_path: Path) -> None:
    """Rank 0 begins early and goes on computing until rank 1 has come."""
    rows = [
        rank(0, "compute", "backward", (0, 500_000)),
        rank(0, "communication", "bucket", (100_000, 10**6)),
        rank(1, "compute", "backward", (0, 500_000)),
        rank(1, "communication", "bucket", (500_000, 10**6)),
    ]
    write(tmp_path, "ranks", rows)
    (text,) = texts(STAR, results(STAR), read_series(tmp_path / "series"), "straggler")
    assert "waited" not in text


def test_a_time_in_which_nothing_moves_is_told_if_ranks_communicate(tmp_path: Path) -> None:
    """100 MB/s for 100 us, nothing for 800 us (a retransmission timeout), and again for 100 us."""
    sent = [min(number, 10) * 1000 + max(0, number - 90) * 1000 for number in range(101)]
    write(tmp_path, "ports", [port("s1-eth1", number, sent_bytes=value) for number, value in enumerate(sent)])
    write(tmp_path, "ranks", [rank(0, "communication", "x", (0, 10**6), step=-1)])
    found = results(STAR, audit=[{"timeouts": [1, 0]}])
    assert texts(STAR, found, read_series(tmp_path / "series"), "stall") == [
        "Nothing moved for 80% of the time in which all ranks communicated, at longest 800 us from 100 us on; "
        "retransmission timeouts: 1."
    ]
    write(tmp_path, "ranks", [rank(0, "communication", "x", (0, 100_000), step=-1)])
    assert texts(STAR, found, read_series(tmp_path / "series"), "stall") == []


def test_a_network_that_rests_while_one_rank_still_computes_has_not_stalled(tmp_path: Path) -> None:
    sent = [min(number, 10) * 1000 + max(0, number - 90) * 1000 for number in range(101)]
    write(tmp_path, "ports", [port("s1-eth1", number, sent_bytes=value) for number, value in enumerate(sent)])
    steps = [rank(number, "operation", "training step", (0, 10**6)) for number in (0, 1)]
    waiting = [rank(0, "communication", "x", (0, 10**6)), rank(1, "communication", "x", (900_000, 10**6))]
    write(tmp_path, "ranks", [*steps, *waiting, rank(1, "compute", "x", (0, 900_000))])
    assert texts(STAR, results(STAR), read_series(tmp_path / "series"), "stall") == []


def test_several_jobs_are_told_apart(tmp_path: Path) -> None:
    rows = [
        rank(number, kind, "x", (begin, end), job=job)
        for job in (1, 2)
        for number in (0, 1)
        for kind, begin, end in (
            ("compute", 0, 100_000 + 300_000 * number * (job - 1)),
            ("communication", 100_000 + 300_000 * number * (job - 1), 10**6),
        )
    ]
    write(tmp_path, "ranks", rows)
    (text,) = texts(STAR, results(STAR), read_series(tmp_path / "series"), "straggler")
    assert (
        text
        == "Job 2: h2 (rank 1) came last and held up all others for 30% of the step; rank 0 waited 30% of the step."
    )


def test_who_begins_late_because_the_network_left_it_last_is_not_to_blame(tmp_path: Path) -> None:
    """Rank 1's collective ends 300 us after rank 0's, so its next step begins and comes to its collective later."""
    rows = [
        row
        for number, late in ((0, 0), (1, 300_000))
        for row in (
            rank(number, "compute", "x", (late, late + 200_000)),
            rank(number, "communication", "x", (late + 200_000, 10**6 + late)),
        )
    ]
    write(tmp_path, "ranks", rows)
    assert texts(STAR, results(STAR), read_series(tmp_path / "series"), "straggler") == []


def test_operations_without_compute_have_no_straggler(tmp_path: Path) -> None:
    write(tmp_path, "ranks", [rank(number, "operation", "x", (number * 300_000, 10**6)) for number in (0, 1)])
    assert texts(STAR, results(STAR), read_series(tmp_path / "series"), "straggler") == []


def test_ranks_are_told_as_ranges() -> None:
    assert ranks_in_words([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"
    assert ranks_in_words([3]) == "rank 3"
