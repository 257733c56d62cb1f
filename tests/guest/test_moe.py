"""A mixture of experts on real packets: bytes as routed, an incast at the popular expert, values as on one process."""

from typing import Any

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Four hosts with two experts each: even, skewed, and skewed with a limit."""
    options = ["experts_per_host=2", "skews=0,2", "capacities=none,1.5", "sequences=16", "steps=1", "width=32"]
    settings = [word for option in options for word in ("--set", option)]
    return run_experiment("moe", "--topology", "star:hosts=4", *settings).succeeded().results


@pytest.fixture(scope="module")
def cases(results: Results) -> dict[tuple[float, str], dict[str, Any]]:
    """The table, by skew and capacity."""
    return {(line["skew"], line["capacity"]): line for line in results.sections["experts"]}


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [f"{claim.claim}: {claim.measured}" for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 4 * 4 + 2 + 1


def test_a_popular_expert_costs_the_step_and_a_limit_wins_it_back(
    cases: dict[tuple[float, str], dict[str, Any]],
) -> None:
    even, skewed, limited = cases[0.0, "none"], cases[2.0, "none"], cases[2.0, "1.5"]
    assert skewed["step_us"] > even["step_us"]
    assert limited["step_us"] < skewed["step_us"]
    assert (
        even["choices_dropped_percent"] == skewed["choices_dropped_percent"] == 0 < limited["choices_dropped_percent"]
    )


def test_the_incast_is_named(cases: dict[tuple[float, str], dict[str, Any]], results: Results) -> None:
    port = cases[2.0, "none"]["hottest_port"]
    host = port.split(" to ")[1]
    skewed = [row for row in results.sections["all_to_alls"] if row["skew"] == 2 and row["capacity"] == "none"]
    assert {row["busiest_host"] for row in skewed} == {host}
    assert [row["direction"] for row in skewed] == ["in", "out", "in", "out"]
