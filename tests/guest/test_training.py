"""Training loops on real packets: data-parallel and sharded; small models, every claim holds."""

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

SMALL = "width=64"


def held(results: Results) -> list[str]:
    """The claims of a valid run, all of which hold."""
    assert results.valid, results.reasons
    assert [f"{claim.claim}: {claim.measured}" for claim in results.claims if not claim.holds] == []
    return [claim.claim for claim in results.claims]


@pytest.fixture(scope="module")
def ddp(run_experiment: RunExperiment) -> Results:
    """Two blocks, three steps, with and without overlap."""
    options = ["--set", "layers=2", "--set", SMALL, "--set", "steps=3", "--set", "bucket=64KiB", "--set", "device=30G"]
    return run_experiment("ddp", "--topology", "star:hosts=4", *options).succeeded().results


def test_data_parallelism_learns_what_one_process_learns_in_the_time_its_parts_say(ddp: Results) -> None:
    assert len(held(ddp)) == 8


def test_the_accounts_of_a_step_add_up(ddp: Results) -> None:
    accounts = ddp.sections["step_accounts"]
    assert {row["overlap"] for row in accounts} == {"on", "off"}
    for row in accounts:
        parts = row["compute_us"] + row["waiting_us"] + row["network_us"] + row["idle_us"]
        assert parts == pytest.approx(row["step_us"], abs=0.01)


def test_overlap_hides_what_would_be_waited_for(ddp: Results) -> None:
    ways = {row["overlap"]: row for row in ddp.sections["training"]}
    assert ways["on"]["step_us"] < ways["off"]["step_us"]
    assert ways["on"]["halting"] < ways["off"]["halting"]
    assert all(row["overlapped_us"] == 0 for row in ddp.sections["step_accounts"] if row["overlap"] == "off")


def test_overlap_without_warm_up_is_refused_with_the_setting(run_experiment: RunExperiment) -> None:
    found = run_experiment("ddp", "--topology", "star:hosts=2", "--set", "warmup=0")
    assert found.exit_code != 0
    assert "--set warmup=0" in found.said


def test_sharding_sends_twice_or_one_and_a_half_times_the_bytes(run_experiment: RunExperiment) -> None:
    options = ["--set", "layers=2", "--set", "width=128", "--set", "steps=2", "--set", "device=100G"]
    results = run_experiment("zero3", "--topology", "star:hosts=4", *options).succeeded().results
    claims = held(results)
    assert sum("bytes sent against data parallelism" in claim for claim in claims) == 5
    assert {row["way"] for row in results.sections["sharding"]} == {"ddp", "gloo", "direct", "fsdp"}


def test_a_slow_nic_is_named_with_its_link_speed_and_what_it_costs(run_experiment: RunExperiment) -> None:
    """One rank at half its NIC's rate slows the ring for everybody: no rank comes late, but a port is always busy."""
    keys = ("layers=1", "width=192", "steps=2", "overlap=off")
    options = [word for key in keys for word in ("--set", key)]
    slow = ("--failure", "at 0ms link h2-s1 rate 50G")
    done = run_experiment("ddp", "--topology", "star:hosts=3", *options, *slow).succeeded()
    said = [text for text in done.words["bottleneck"] if text.startswith("Job 1:")]
    assert len(said) == 1
    assert "In 2 of 2 steps " in said[0]
    assert "(link h2-s1) was the bottleneck" in said[0]
    assert "at 50 Gb/s, where others send at 100" in said[0]
    assert "straggler" not in done.words
