"""Stragglers of a ring: what they cost, and that the right one is named (facts.md 7, test 29)."""

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

SHARE = 0.5
VICTIM, LINK = "h2", "h2-s1"


@pytest.fixture(scope="module")
def results(run_experiment: RunExperiment) -> Results:
    """Three ranks; one of them slow, jittery, or behind half a NIC."""
    return (
        run_experiment(
            "straggler",
            *("--topology", "star:hosts=3"),
            *(
                "--set",
                f"host={VICTIM}",
                "--set",
                "layers=1",
                "--set",
                "steps=2",
                "--set",
                f"share={SHARE}",
                "--set",
                "jitter=1",
            ),
        )
        .succeeded()
        .results
    )


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [claim.claim for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 7


def test_the_report_names_the_straggler_and_nobody_else(results: Results) -> None:
    assert {line["case"]: (line["late_hosts"], line["slow_links"]) for line in results.sections["cases"]} == {
        "healthy": ("none", "none"),
        "device": (VICTIM, "none"),
        "jitter": (VICTIM, "none"),
        "nic": ("none", f"{LINK} of {VICTIM}"),
    }


def test_the_counters_tell_the_slow_links_speed(results: Results) -> None:
    """Bytes over the time spent sending: half of what all other ports do, without anybody having said so."""
    speeds = {(line["case"], line["link"]): line["while_sending_gbps"] for line in results.sections["busiest_ports"]}
    assert speeds["nic", LINK] == pytest.approx(100 * SHARE, rel=1e-4)
    assert all(speed == pytest.approx(100, rel=1e-4) for key, speed in speeds.items() if key != ("nic", LINK))


def test_everybody_waits_for_a_slow_device(results: Results) -> None:
    """The others' waiting is the extra time of the slow one, which itself waits for nobody."""
    rows = {line["host"]: line for line in results.sections["members"] if line["case"] == "device"}
    extra_us = rows[VICTIM]["compute_us"] / 2
    assert rows[VICTIM]["waiting_us"] < 0.02 * extra_us
    for host, row in rows.items():
        if host != VICTIM:
            assert row["waiting_us"] == pytest.approx(extra_us, rel=0.1)
