"""A parameter server against a ring and a hierarchy, and its three ways of waiting."""

from typing import Any

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

RANKS, WORKERS, STEPS, STALE = 4, 3, 9, 2


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Two racks of two, a gradient of 4 MB; then three workers of which one is three times slower."""
    return (
        run_experiment(
            "parameter_server",
            *("--topology", "leaf_spine:leaves=2,hosts=2,spines=1,uplink_rate=200G"),
            *("--set", f"ranks={RANKS}", "--set", "hidden=700", "--set", "steps=1"),
            *("--set", f"workers={WORKERS}", "--set", f"mode_steps={STEPS}", "--set", f"stale={STALE}"),
        )
        .succeeded()
        .results
    )


@pytest.fixture(scope="module")
def modes(results: Results) -> dict[str, dict[str, Any]]:
    """The table, by mode."""
    return {line["mode"]: line for line in results.sections["modes"]}


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [claim.claim for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 9


def test_the_server_is_as_much_slower_as_there_are_ranks(results: Results) -> None:
    """facts.md 4.1: P where push and pull follow each other."""
    (line,) = results.sections["server_against_ring"]
    assert line["server_over_ring"] == pytest.approx(RANKS, rel=0.1)
    assert line["ring_us"] < line["hierarchical_us"] < 1.6 * line["ring_us"], "three phases, as many bytes per host"


def test_the_servers_link_takes_in_gradients_and_gloos_headers_only(modes: dict[str, dict[str, Any]]) -> None:
    """Whatever the mode: a gradient and a header in, a notification for each copy out."""
    model_bytes = 4 * (256 * 16 + 129 * 128 + 129 * 256)
    assert {line["server_in_bytes"] for line in modes.values()} == {WORKERS * STEPS * (model_bytes + 3 * 48)}


def test_staleness_is_what_the_modes_allow(modes: dict[str, dict[str, Any]]) -> None:
    assert [modes[mode]["largest_lead"] for mode in ("synchronous", "stale")] == [0, STALE]
    assert modes["asynchronous"]["largest_lead"] > STALE
    assert modes["synchronous"]["mean_staleness"] == 0
    assert modes["asynchronous"]["mean_staleness"] > modes["stale"]["mean_staleness"] > 0


def test_a_bound_makes_fast_workers_wait_less_than_lock_step_and_more_than_none(
    modes: dict[str, dict[str, Any]],
) -> None:
    steps_us = [modes[mode]["fast_step_us"] for mode in ("asynchronous", "stale", "synchronous")]
    assert steps_us == sorted(steps_us)
    assert modes["synchronous"]["slow_step_us"] == pytest.approx(modes["synchronous"]["fast_step_us"], rel=0.02)
