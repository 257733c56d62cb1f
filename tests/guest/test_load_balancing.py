"""The path experiments on small fabrics: policies changed under way, broken uplinks, connections, several jobs."""

from typing import Any

import pytest

from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run


@pytest.fixture(scope="module")
def walked(run_experiment: RunExperiment) -> Run:
    """Three policies, whole fabric and one uplink down."""
    return run_experiment(
        "load_balancing",
        *("--topology", "leaf_spine:leaves=2,hosts=2,spines=2", "--set", "steps=single ecmp@16 te@16"),
        *("--set", "placements=interleaved", "--set", "size=2M"),
    ).succeeded()


@pytest.fixture(scope="module")
def scaled(run_experiment: RunExperiment) -> Run:
    """Few seeds: the bands over 20 are the experiment's own claims."""
    return run_experiment(
        "connection_scaling",
        "--set",
        "blind=",
        "--set",
        "policies=ecmp",
        "--set",
        "seeds=6",
        "--set",
        "connections=1,16",
    ).succeeded()


@pytest.fixture(scope="module")
def jobs(run_experiment: RunExperiment) -> Run:
    """Two jobs that share the uplinks."""
    return run_experiment(
        "multi_job",
        *("--topology", "leaf_spine:leaves=2,hosts=4,spines=1", "--set", "rounds=3", "--set", "size=2M"),
    ).succeeded()


def cases(run: Run) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["policy"], line["broken"]): line for line in run.results.sections["load_balancing"]}


def test_policies_change_on_a_running_fabric(walked: Run) -> None:
    found = cases(walked)
    assert found["single", "none"]["max_over_mean"] == pytest.approx(2, abs=0.05)
    assert 0.4 < found["single", "none"]["share_of_ideal"] <= 0.5
    assert found["ecmp@16", "none"]["max_over_mean"] < 1.5
    assert found["ecmp@16", "none"]["mean_us"] < 0.8 * found["single", "none"]["mean_us"]


def test_traffic_engineering_measures_plans_and_balances(walked: Run) -> None:
    """A hash spreads sixteen connections per pair about as well: one all-reduce of each may differ by its losses."""
    found = cases(walked)
    assert found["te@16", "none"]["max_over_mean"] <= 1.1
    assert found["te@16", "none"]["mean_us"] < 1.1 * found["ecmp@16", "none"]["mean_us"]
    assert found["te@16", "none"]["share_of_ideal"] > 0.65
    assert all(claim.holds for claim in walked.results.claims), walked.results.claims


def test_with_one_of_two_uplinks_down_all_policies_are_the_one_that_is_left(walked: Run) -> None:
    found = cases(walked)
    ideal = found["single", "uplink"]["ideal_us"]
    assert ideal == pytest.approx(2 * found["single", "none"]["ideal_us"], rel=1e-6)
    for step in ("single", "ecmp@16", "te@16"):
        assert ideal <= found[step, "uplink"]["mean_us"] < 1.25 * ideal


def test_more_connections_spread_the_same_bytes_more_evenly(scaled: Run) -> None:
    one, many = scaled.results.sections["connection_scaling"]
    assert (one["connections"], many["connections"], one["seeds"]) == (1, 16, 6)
    assert many["max_over_mean"] < one["max_over_mean"]
    assert many["gain"] > 1.1


def test_every_run_tells_how_even_its_links_were_used(scaled: Run) -> None:
    tiers = {line["tier"]: line for line in scaled.results.sections["balance"]}
    assert set(tiers) == {"leaf to spine", "spine to leaf"}
    assert 1 <= tiers["leaf to spine"]["max_over_mean"] <= 4
    over_time = scaled.results.sections["balance_over_time"]["leaf to spine"]
    assert len(over_time["max_over_mean"]) == tiers["leaf to spine"]["phases"] >= 12
    assert over_time["until_us"] == sorted(over_time["until_us"])


def test_two_jobs_on_one_uplink_each_take_twice_as_long(jobs: Run) -> None:
    one, other = jobs.results.sections["jobs"]
    assert (one["hosts"], other["hosts"]) == ("h1 h5 h3 h7", "h2 h6 h4 h8")
    assert one["slowdown"] == pytest.approx(2, abs=0.25)
    assert other["slowdown"] == pytest.approx(2, abs=0.25)
    assert all(claim.holds for claim in jobs.results.claims)
