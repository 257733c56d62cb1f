"""Cables that break under traffic: noticed, repaired, counted, and never a run that hangs."""

from collections import Counter
from typing import Any

import pytest

from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Run

LOOK = "link h1-leaf1 loss 0%"
"""Changes nothing; what was lost until then is counted apart."""
DELAY_US = 500


@pytest.fixture(scope="module")
def down_and_up(run_experiment: RunExperiment) -> Run:
    """One of two spines goes and comes back; in between, a look right after the repair."""
    return run_experiment(
        "failures",
        *("--set", "rounds=14", "--set", "size=2M", "--set", "connections=2"),
        *("--detection-delay", f"{DELAY_US}us"),
        *("--failure", "at 1ms switch spine1 down", "--failure", "at 1600us " + LOOK),
        *("--failure", "at 6ms switch spine1 up"),
        *("--failure", "at 9ms link leaf1-spine1 loss 1%", "--failure", "at 10ms link leaf2-spine2 rate 25G"),
    ).succeeded()


@pytest.fixture(scope="module")
def cut(run_experiment: RunExperiment) -> Run:
    """A host's only cable, for good."""
    return run_experiment(
        "failures", "--set", "rounds=14", "--failure", "at 1ms link h3-leaf2 down", "--set", "size=2M"
    )


def lines(run: Run) -> dict[str, dict[str, Any]]:
    return {line["what"]: line for line in run.results.sections["failures"]}


def test_a_failure_is_believed_after_the_delay_and_repaired_at_once(down_and_up: Run) -> None:
    found = lines(down_and_up)
    for what, at_us in (("switch spine1 down", 1_000), ("switch spine1 up", 6_000)):
        assert found[what]["at_us"] == pytest.approx(at_us, abs=0.1)
        assert found[what]["detected_us"] == pytest.approx(at_us + DELAY_US, abs=0.2)
        assert found[what]["repaired_us"] == pytest.approx(found[what]["detected_us"], abs=1)


def test_nothing_is_sent_to_the_dead_ports_once_the_repair_is_in(down_and_up: Run) -> None:
    """Open vSwitch's cache sent packets there for 4 ms longer than its tables said."""
    found = lines(down_and_up)
    assert found["switch spine1 down"]["lost_dead_port"] > 0
    assert found[LOOK]["lost_dead_port"] == 0
    assert sum(found[LOOK][f"lost_{cause}"] for cause in ("flushed", "wire", "link")) == 0
    assert found["switch spine1 up"]["lost_dead_port"] == 0


def test_the_table_of_paths_names_the_links_that_carried_each_flow(down_and_up: Run) -> None:
    """A mark means another path while a switch is down: read as on the whole fabric, all would be on spine1."""
    told: Counter[str] = Counter()
    for flow in down_and_up.results.paths:
        told.update(dict.fromkeys(flow.path, flow.bytes))
    uplinks = {link.name: link for link in down_and_up.results.links if ">spine" in link.name}
    assert {name.partition("-")[0] for name in uplinks} == {"leaf1", "leaf2"}
    for name, link in uplinks.items():
        # lost ones are told, not sent
        assert told[name.partition(">")[0]] == pytest.approx(link.tx_bytes, rel=0.02), name


def test_the_paths_come_back_with_the_switch(down_and_up: Run) -> None:
    times = [line["slowdown"] for line in down_and_up.results.sections["rounds"]]
    assert len(times) == 14
    assert all(claim.holds for claim in down_and_up.results.claims[:2]), down_and_up.results.claims


def test_a_lossy_cable_loses_its_share_and_nobody_elses_books_break(down_and_up: Run) -> None:
    found = lines(down_and_up)
    lost = found["link leaf1-spine1 loss 1%"]["lost_link"] + found["link leaf2-spine2 rate 25G"]["lost_link"]
    assert lost > 0
    assert found["link leaf1-spine1 loss 1%"]["detected_us"] is None
    assert down_and_up.results.valid


def test_every_event_is_in_force_at_its_instant(down_and_up: Run) -> None:
    events: list[dict[str, Any]] = down_and_up.results.sections["events"]
    assert [event["kind"] for event in events] == ["failure"] * 5
    assert all(event["in_force_us"] == pytest.approx(event["at_us"], abs=0.1) for event in events)


def test_the_delay_is_in_the_manifest(down_and_up: Run) -> None:
    assert down_and_up.manifest["controller"]["detection_delay_ns"] == DELAY_US * 1_000


def test_a_host_that_is_cut_off_ends_the_run_and_names_the_cut(cut: Run) -> None:
    assert cut.exit_code == 1
    assert "host h3 is cut off: its link h3-leaf2 is down" in cut.said
    assert "is stuck" in cut.said
    assert not cut.folder.results.exists()


def test_books_balance_when_a_hosts_own_cable_comes_back(run_experiment: RunExperiment) -> None:
    """Its stack drops what it has to send meanwhile, before the port."""
    run = run_experiment(
        SCRIPTS / "sampled.py",
        *("--set", "period=7us"),
        *("--failure", "at 7ms link h2-s1 down", "--failure", "at 40ms link h2-s1 up"),
    ).succeeded()
    assert run.results.valid, run.results.reasons
    assert lines(run)["link h2-s1 down"]["lost_wire"] == 0
    assert lines(run)["link h2-s1 down"]["lost_dead_port"] > 0


def test_an_unknown_link_is_refused_before_anything_boots(run_experiment: RunExperiment) -> None:
    refused = run_experiment("failures", "--failure", "at 1ms link leaf1-spine9 down")
    assert refused.exit_code == 2
    assert "unknown link 'leaf1-spine9'; known: h1-leaf1, h2-leaf1, leaf1-spine1, leaf1-spine2" in refused.said


def test_te_has_planned_for_what_is_left_a_period_after_the_repair(run_experiment: RunExperiment) -> None:
    """And what is left is used evenly."""
    run = run_experiment(
        "failures",
        *("--topology", "leaf_spine:leaves=2,hosts=2,spines=3", "--policy", "te:period_ns=2ms"),
        *("--set", "connections=12", "--set", "rounds=14", "--failure", "at 4ms link leaf1-spine1 down"),
    ).succeeded()
    (claim,) = [claim for claim in run.results.claims if "a period after the repair" in claim.claim]
    assert claim.holds, claim
    assert all(claim.holds for claim in run.results.claims), run.results.claims


def test_who_weighs_paths_by_rate_hears_of_a_link_that_became_slow(run_experiment: RunExperiment) -> None:
    """Half of ECMP's connections stay on the slow uplink; WCMP puts a fifth there, and rounds take half as long."""
    best_us = {}
    for policy in ("ecmp", "wcmp"):
        run = run_experiment(
            "failures",
            *("--policy", policy, "--set", "connections=16", "--set", "rounds=10", "--set", "size=2M"),
            *("--failure", "at 1ms link leaf1-spine1 rate 25G"),
        ).succeeded()
        best_us[policy] = min(line["time_us"] for line in run.results.sections["rounds"][5:])
    assert best_us["wcmp"] < 0.75 * best_us["ecmp"], best_us


def test_the_same_seed_loses_the_same_packets(run_experiment: RunExperiment, down_and_up: Run) -> None:
    asked = down_and_up.manifest["asked"]
    failures = [part for line in asked["failures"].splitlines() for part in ("--failure", line)]
    again = run_experiment(
        "failures",
        *("--set", "rounds=14", "--set", "size=2M", "--set", "connections=2"),
        *("--detection-delay", f"{DELAY_US}us", *failures),
    ).succeeded()
    assert again.results.sections["failures"] == down_and_up.results.sections["failures"]
    assert again.results.sections["rounds"] == down_and_up.results.sections["rounds"]
