"""Hierarchical all-reduce: values, and what the leaves' uplinks carried."""

from typing import Any

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

LEAVES, HOSTS = 2, 2


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Two racks of two, three ways."""
    fabric = f"leaf_spine:leaves={LEAVES},hosts={HOSTS},spines=2"
    return run_experiment("hierarchy", "--topology", fabric, "--set", "size=500k").succeeded().results


@pytest.fixture(scope="module")
def ways(results: Results) -> dict[str, dict[str, Any]]:
    """The table, by way."""
    return {line["way"]: line for line in results.sections["hierarchy"]}


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [claim.claim for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 6


def test_every_element_is_the_sum(results: Results) -> None:
    assert {row.op for row in results.rows} == {"contiguous_ring", "interleaved_ring", "hierarchical"}
    assert all(row.wrong == 0 for row in results.rows)


def test_uplinks_carry_the_messages_between_racks_to_the_byte(ways: dict[str, dict[str, Any]]) -> None:
    """1 : h, and 2 (L-1)/L n with a percent of gloo's headers for the hierarchy."""
    for line in ways.values():
        assert line["leaving_a_rack_bytes"] == line["expected_bytes"]
    near, far, levels = (ways[way] for way in ("contiguous_ring", "interleaved_ring", "hierarchical"))
    assert far["leaving_a_rack_bytes"] == HOSTS * near["leaving_a_rack_bytes"]
    assert levels["leaving_a_rack_bytes"] == pytest.approx(
        far["leaving_a_rack_bytes"] * (LEAVES - 1) / (LEAVES * HOSTS - 1), rel=0.005
    )
