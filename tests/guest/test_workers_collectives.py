"""Every collective on real packets: right values, and to the byte what gloo must send; the experiments' own claims."""

import pytest

from experiments.workloads.operations import OPERATIONS
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run


@pytest.fixture(scope="module")
def sweep(run_experiment: RunExperiment) -> Run:
    """All ten at 64 KiB and 4 MiB on four hosts, which no burst of theirs overflows."""
    return run_experiment(
        *("collectives", "--topology", "star:hosts=4,buffer=16M"),
        *("--set", "end=4Mi", "--set", "factor=64", "--set", "iterations=1"),
    ).succeeded()


def test_every_collective_gave_right_values_at_every_size(sweep: Run) -> None:
    rows = sweep.results.rows
    assert {row.op for row in rows} == set(OPERATIONS)
    assert len(rows) == 2 * (len(OPERATIONS) - 1) + 1
    assert all(row.wrong == 0 for row in rows)


def test_without_losses_the_wire_carried_to_the_byte_what_gloo_must_send(sweep: Run) -> None:
    """facts.md 4.3 asks for 2%; the formulas are exact, gloo's own headers included."""
    for entry in sweep.results.sections["audit"]:
        assert sum(entry["retransmitted_segments"]) == 0, entry
        assert entry["tx_payload_bytes"] == entry["expected_tx_bytes"], entry
        assert entry["rx_payload_bytes"] == entry["expected_rx_bytes"], entry


def test_no_collective_beats_the_links_and_trees_pay_for_their_depth(sweep: Run) -> None:
    """The broadcast's model shares the root's link fairly: 3 S/B for 4 ranks; served in turn it would take 2."""
    ratios = {line["op"]: line["ratio"] for line in sweep.results.sections["model"]}
    assert 2 / 3 <= ratios["broadcast"] < 1.15
    assert all(1 <= ratio < 2.5 for op, ratio in ratios.items() if op != "broadcast"), ratios


def test_the_sweep_is_written_down_as_nccl_tests_prints_it(sweep: Run) -> None:
    """One iteration of each: the text has the rows' own bandwidths, to the digits that it shows."""
    lines = [line.split() for line in (sweep.folder.path / "nccl.txt").read_text().splitlines() if line[0] != "#"]
    shown = [(int(cells[0]), next(cells[at] for at in (7, 11) if cells[at] != "N/A")) for cells in lines]
    assert shown == [(row.bytes, f"{row.busbw_GBps:.2f}") for row in sweep.results.rows]


def test_a_server_takes_p_times_as_long_as_a_ring(run_experiment: RunExperiment) -> None:
    results = (
        run_experiment(
            *("parameter_server", "--topology", "star:hosts=8,buffer=16M"),
            *("--set", "ranks=4,8", "--set", "steps=1"),
        )
        .succeeded()
        .results
    )
    assert [claim.claim for claim in results.claims if not claim.holds] == []
    lines = results.sections["server_against_ring"]
    assert [line["ranks"] for line in lines] == [4, 8]
    assert lines[1]["server_over_ring"] > 1.6 * lines[0]["server_over_ring"]


def test_incast_drops_nothing_below_the_buffer_and_repairs_what_it_drops_above(run_experiment: RunExperiment) -> None:
    results = (
        run_experiment(
            *("incast", "--topology", "star:hosts=9,buffer=200k"),
            *("--set", "sizes=16k,256k", "--set", "fan_in=1,8", "--set", "repetitions=2"),
        )
        .succeeded()
        .results
    )
    by_case = {(line["senders"], line["each_bytes"]): line for line in results.sections["incast"]}
    assert by_case[8, 16000]["dropped"] == 0
    assert by_case[8, 256000]["dropped"] > 0
    assert by_case[8, 256000]["retransmissions"] >= by_case[8, 256000]["dropped"]
    assert sum(link.drops for link in results.links) == sum(line["dropped"] for line in by_case.values())
    assert all(row.wrong == 0 for row in results.rows)
