"""Tensor and pipeline parallelism on real packets: bytes by the formulas, idle shares by the schedules."""

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Two stages, or two halves of every layer."""
    options = ["layers=2", "width=64", "microbatches=3", "steps=1", "forward=2ms"]
    settings = [word for option in options for word in ("--set", option)]
    return run_experiment("model_parallel", "--topology", "star:hosts=2", *settings).succeeded().results


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [f"{claim.claim}: {claim.measured}" for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 2 + 4 + 4


def test_halves_of_layers_send_more_often_than_stages_of_a_pipeline(results: Results) -> None:
    ways = {line["way"]: line for line in results.sections["model_parallel"]}
    assert ways["tensor"]["sent_MB"] > 3 * ways["gpipe"]["sent_MB"]
    assert ways["gpipe"]["sent_MB"] == ways["1f1b"]["sent_MB"]
    assert ways["gpipe"]["most_held"] == 3 > ways["1f1b"]["most_held"]
    assert len({ways[way]["loss_last"] for way in ways}) == 1
