"""Traffic patterns on real TCP: bytes conserved, flows alone near their ideal, one link shared by those that must."""

from typing import Any

import pytest

from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

HOSTS = 4
STAR = f"star:hosts={HOSTS},rate=100G,buffer=150k"


@pytest.fixture(scope="module")
def patterns(run_experiment: RunExperiment) -> Run:
    """A permutation, then an incast of three blocks that overflow the port, a while later."""
    schedule = "at 0 permutation 40MB; at 10ms incast 3 -> h1 1MB; at 20ms all_to_all 8kB"
    return run_experiment("schedule", "--topology", STAR, "--set", f"schedule={schedule}").succeeded()


def of(run: Run, pattern: str) -> list[dict[str, Any]]:
    """The flows of one pattern."""
    flows = run.results.sections["flows"]
    rows = [dict(zip(flows, values, strict=True)) for values in zip(*flows.values(), strict=True)]
    return [row for row in rows if row["pattern"] == pattern]


def claim(run: Run, words: str) -> Any:
    (found,) = [each for each in run.results.claims if words in each.claim]
    return found


def test_every_byte_arrives_and_nothing_is_faster_than_light(patterns: Run) -> None:
    for words in ("every byte arrives", "no more on the wire", "no flow is faster"):
        assert claim(patterns, words).holds, claim(patterns, words)
    total = HOSTS * 40_000_000 + 3 * 1_000_000 + HOSTS * (HOSTS - 1) * 8_000
    assert claim(patterns, "every byte arrives").measured.startswith(f"{total} B")


def test_a_permutation_of_large_flows_is_near_its_ideal_on_a_star(patterns: Run) -> None:
    """Measured 1.058: slow start costs 187 us whatever the size."""
    assert all(1 <= flow["slowdown"] <= 1.1 for flow in of(patterns, "permutation"))


def test_an_incast_shares_the_receivers_link(patterns: Run) -> None:
    """Three blocks over one link: the last is through after three times the bytes at least, and drops were repaired."""
    flows = of(patterns, "incast")
    assert len(flows) == 3
    assert max(flow["slowdown"] for flow in flows) >= 2.8
    (loss,) = patterns.results.sections["loss"]
    assert loss["dropped_packets"] > 0
    assert sum(flow["retransmissions"] for flow in flows) == loss["retransmitted_segments"] >= loss["dropped_packets"]


def test_flows_start_at_their_instants(patterns: Run) -> None:
    assert {flow["start_us"] for flow in of(patterns, "incast")} == {10_000.0}
    assert {flow["start_us"] for flow in of(patterns, "all_to_all")} == {20_000.0}


def test_percentiles_come_by_size(patterns: Run) -> None:
    table = {line["size"]: line["flows"] for line in patterns.results.sections["fct"]}
    assert table == {"up to 10 kB": 12, "up to 1 MB": 3, "above 10 MB": 4, "all": 19}


def test_without_moderation_a_permutation_is_as_good_as_one_flow(run_experiment: RunExperiment) -> None:
    """Measured 1.017 for 10 MB: acknowledgements that are not held up keep HyStart from leaving slow start early."""
    run = run_experiment("schedule", "--topology", STAR, "--set", "host.moderation=off").succeeded()
    assert all(1 <= flow["slowdown"] <= 1.03 for flow in of(run, "permutation"))
    assert all(each.holds for each in run.results.claims), run.results.claims


def test_a_wrong_schedule_ends_with_its_line(run_experiment: RunExperiment) -> None:
    run = run_experiment("schedule", "--topology", STAR, "--set", "schedule=at 0 h1 -> h9 1MB")
    assert run.exit_code == 2
    assert "line 1: at 0 h1 -> h9 1MB: unknown host 'h9'" in run.said
