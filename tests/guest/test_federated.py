"""Federated averaging over long distances: exact bytes at the cloud's link, and models that one process confirms."""

from typing import Any

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

WORKERS, EDGES, K1, K2, CLOUD_ROUNDS = 4, 2, 2, 2, 2
GLOO_BYTES = 3 * 48
"""Per model in and out: a notification and a header in each direction count at one end or the other."""


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Two sites of two workers, 2 ms away from the cloud; all four ways."""
    return (
        run_experiment(
            "federated",
            *("--topology", f"wan:sites={EDGES},hosts={WORKERS // EDGES},wan_delay=2ms"),
            *("--set", f"local_steps={K1}", "--set", f"edge_rounds={K2}", "--set", f"cloud_rounds={CLOUD_ROUNDS}"),
        )
        .succeeded()
        .results
    )


@pytest.fixture(scope="module")
def ways(results: Results) -> dict[str, dict[str, Any]]:
    """The table, by way."""
    return {line["way"]: line for line in results.sections["federated"]}


def test_every_claim_holds(results: Results) -> None:
    """N/E k2, k1, learning, one model, one process's model, less time."""
    assert results.valid, results.reasons
    assert [claim.claim for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 14


def test_the_cloud_takes_in_models_and_gloos_headers_only(ways: dict[str, dict[str, Any]]) -> None:
    """To the byte: N models a round in flat, E models every k2 rounds in the hierarchy (facts.md 7, test 28)."""
    model = ways["flat"]["model_bytes"] + GLOO_BYTES
    assert ways["flat"]["cloud_in_bytes"] == CLOUD_ROUNDS * K2 * WORKERS * model
    assert ways["hierarchical"]["cloud_in_bytes"] == CLOUD_ROUNDS * EDGES * model
    assert all(line["retransmissions"] == 0 for line in ways.values())


def test_local_sgd_reaches_flat_averagings_model(ways: dict[str, dict[str, Any]]) -> None:
    """The same steps and the same averages, by another road: losses agree to rounding."""
    assert ways["local_sgd"]["loss"] == pytest.approx(ways["flat"]["loss"], abs=2e-4)


def test_workers_of_the_hierarchy_wait_less(results: Results) -> None:
    halting = {
        way: [row["halting"] for row in results.sections["rounds"] if row["way"] == way]
        for way in ("flat", "hierarchical")
    }
    assert len(halting["flat"]) == len(halting["hierarchical"]) == WORKERS
    assert max(halting["hierarchical"]) < min(halting["flat"])
