"""Stragglers of a ring: what they cost, and that the right one is named (facts.md 7, test 29)."""

import re

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

SHARE = 0.5
VICTIM, LINK = "h2", "h2-s1"


@pytest.fixture(scope="module")
def done(run_experiment: RunExperiment) -> Run:
    """Three ranks; one of them slow, jittery, or behind half a NIC or one that comes and goes."""
    keys = (f"host={VICTIM}", "layers=1", "steps=2", f"share={SHARE}", "jitter=1", "flicker=100us")
    options = [word for key in keys for word in ("--set", key)]
    return run_experiment("straggler", "--topology", "star:hosts=3", *options).succeeded()


@pytest.fixture(scope="module")
def results(done: Run) -> Results:
    """What it measured."""
    return done.results


def test_every_claim_holds(results: Results) -> None:
    assert results.valid, results.reasons
    assert [claim.claim for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 9


def test_the_report_names_the_straggler_and_nobody_else(results: Results) -> None:
    assert {line["case"]: (line["late_hosts"], line["slow_links"]) for line in results.sections["cases"]} == {
        "healthy": ("none", "none"),
        "device": (VICTIM, "none"),
        "jitter": (VICTIM, "none"),
        "nic": ("none", f"{LINK} of {VICTIM}"),
        "nic_jitter": ("none", f"{LINK} of {VICTIM}, unsteady"),
    }


def test_the_counters_tell_the_slow_links_speed(results: Results) -> None:
    """Bytes over the time spent sending: half of what all other ports do, without anybody having said so."""
    speeds = {(line["case"], line["link"]): line["while_sending_gbps"] for line in results.sections["busiest_ports"]}
    assert speeds["nic", LINK] == pytest.approx(100 * SHARE, rel=1e-4)
    assert all(
        speed == pytest.approx(100, rel=1e-4) for key, speed in speeds.items() if key[0] == "healthy" or key[1] != LINK
    )


def test_everybody_waits_for_a_slow_device(results: Results) -> None:
    """The others' waiting is the extra time of the slow one, which itself waits for nobody."""
    rows = {line["host"]: line for line in results.sections["members"] if line["case"] == "device"}
    extra_us = rows[VICTIM]["compute_us"] / 2
    assert rows[VICTIM]["waiting_us"] < 0.02 * extra_us
    for host, row in rows.items():
        if host != VICTIM:
            assert row["waiting_us"] == pytest.approx(extra_us, rel=0.1)


def test_the_reports_words_name_the_slow_device_and_what_it_costs(done: Run) -> None:
    cases = [case["case"] for case in done.results.sections["cases"]]
    members = {each["host"]: each for each in done.results.sections["members"] if each["case"] == "device"}
    said = {int(text.split()[1].rstrip(":")): text for text in done.words["straggler"]}
    text = said[cases.index("device") + 1]
    assert f"{VICTIM} (rank 1) came last and held up all others for " in text
    assert "ranks 0, 2 waited" in text
    told = [int(share) / 100 for share in re.findall(r"(\d+)%", text)]
    waited = [members[host]["waiting_us"] / members[host]["step_us"] for host in ("h1", "h3")]
    mean_us = sum(each["step_us"] for each in members.values()) / len(members)
    assert told[0] == pytest.approx(members[VICTIM]["held_up_us"] / mean_us, abs=0.011)
    assert told[1] == pytest.approx(sum(waited) / 2, abs=0.011)
    assert told[0] > 0.2
    assert not {cases.index(case) + 1 for case in ("healthy", "nic")} & set(said)


def test_the_reports_words_name_the_slow_link_where_nobody_comes_late(done: Run) -> None:
    """Jobs are cases in order; a slow device is no bottleneck of the network."""
    cases = [case["case"] for case in done.results.sections["cases"]]
    said = {int(text.split()[1].rstrip(":")): text for text in done.words["bottleneck"]}
    named = {cases[job - 1]: text for job, text in said.items() if "was the bottleneck: it sent" in text}
    assert {"nic"} <= set(named) <= {"nic", "nic_jitter"}
    assert f"(link {LINK}) was the bottleneck" in named["nic"]
    assert f"at {100 * SHARE:g} Gb/s, where others send at 100" in named["nic"]
