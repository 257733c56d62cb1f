"""A large model by shape on real packets: bytes of every dimension by the papers' formulas."""

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Two ways in each dimension, on racks of two."""
    options = ["tp=2", "pp=2", "dp=2", "layers=2", "scale=512", "microbatches=2", "warmup=0"]
    settings = [word for option in options for word in ("--set", option)]
    fabric = "leaf_spine:leaves=4,hosts=2,spines=2"
    return run_experiment("large_model", "--topology", fabric, *settings).succeeded().results


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [f"{claim.claim}: {claim.measured}" for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 3 + 1 + 2 + 2


def test_tensor_groups_stay_in_their_racks_and_send_most(results: Results) -> None:
    lines = {line["dimension"]: line for line in results.sections["dimensions"]}
    assert lines["tp"]["leaving_racks_MB"] == 0
    for name in ("dp", "pp"):
        assert lines[name]["leaving_racks_MB"] == lines[name]["all_sent_MB"]
    assert lines["tp"]["all_sent_MB"] > lines["pp"]["all_sent_MB"]
    assert lines["tp"]["share_of_step"] == max(line["share_of_step"] for line in lines.values())
