"""Policies on real ports: eight hosts send to one, under DCTCP's step and under PFC with a small buffer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.results import LinkUse
from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Run

BLOCK_BYTES = 1_000_000
SENDERS = 8
HOT = "s1-eth1"
CHANGE = "at 200ms: ecn.kmin=20kB, ecn.kmax=60kB, ecn.pmax=1\nat 200ms on s1-eth1: pfc.xon=4p\n"


def links(run: Run) -> Mapping[str, LinkUse]:
    """By the interface that sends."""
    return {link.name.partition(">")[0]: link for link in run.results.links}


@pytest.fixture(scope="module")
def dctcp(run_experiment: RunExperiment) -> Run:
    """Step ECN; the second job runs reno."""
    return run_experiment(SCRIPTS / "many_to_one.py", "--policy", "dctcp").succeeded()


@pytest.fixture(scope="module")
def roce(run_experiment: RunExperiment, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A buffer so small that pauses come long before marks, until a file lets marks come first."""
    changes: Path = tmp_path_factory.mktemp("changes") / "changes.txt"
    changes.write_text(CHANGE)
    return run_experiment(
        SCRIPTS / "many_to_one.py",
        *("--policy", "roce:buffer=0.8MB,cc=cubic,kmin=1MB,kmax=2MB", "--policy-file", str(changes)),
        *("--set", "idle=300ms", "--set", "cc2=dctcp"),
    ).succeeded()


@pytest.fixture(scope="module", params=["dctcp", "roce"])
def either(request: pytest.FixtureRequest) -> Run:
    """What must hold under both."""
    run: Run = request.getfixturevalue(request.param)
    return run


# ---- both ----


def test_everything_arrives_and_nothing_is_dropped_anywhere(either: Run) -> None:
    counted: list[dict[str, Any]] = either.results.sections["counted"]
    assert [each["received"] for each in counted] == [SENDERS * BLOCK_BYTES] * 2
    assert sum(link.drops for link in either.results.links) == 0


def test_a_hosts_nic_queues_and_never_drops(either: Run) -> None:
    for number in range(2, SENDERS + 2):
        nic = links(either)[f"h{number}-eth0"]
        assert nic.queue_max_bytes > 0
        assert sum(nic.drops_by_cause.values()) == 0
        assert either.manifest["in_force"]["ports"][f"h{number}-eth0"]["limit_bytes"] == 0


def test_no_other_queueing_discipline_is_left(either: Run) -> None:
    ports: Mapping[str, Any] = either.results.sections["ports_in_force"]
    assert {(port["qdisc"], port["other_qdiscs"]) for port in ports.values()} == {("fabric", "")}
    assert len(ports) == 2 * (SENDERS + 1)


def test_ports_of_the_switch_share_one_buffer(either: Run) -> None:
    ports: Mapping[str, Any] = either.manifest["in_force"]["ports"]
    assert {port["buffer_id"] for name, port in ports.items() if name.startswith("s1")} == {1}
    assert {port["buffer_id"] for name, port in ports.items() if name.startswith("h")} == {0}


def test_no_host_remembers_anything_about_another(either: Run) -> None:
    """The TCP metrics cache is empty after two jobs, so that nothing carries over."""
    assert either.results.sections["tcp_metrics"] == [""] * (SENDERS + 1)


# ---- DCTCP ----


def test_dctcp_marks_at_the_hot_port_only(dctcp: Run) -> None:
    marks = {name: link.marks for name, link in links(dctcp).items() if link.marks}
    assert set(marks) == {HOT}
    assert 10 < marks[HOT] < links(dctcp)[HOT].tx_packets
    assert all(link.pauses_sent == 0 for link in dctcp.results.links)


def test_dctcps_step_is_in_force_in_bytes(dctcp: Run) -> None:
    port = dctcp.manifest["in_force"]["ports"][HOT]
    assert (port["class3_kmin_bytes"], port["class3_kmax_bytes"], port["class3_pmax_ppb"]) == (300_000, 300_000, 10**9)
    assert (port["buffer_bytes"], port["class3_pfc"]) == (9 * 500_000, "off")


def test_every_socket_ran_what_its_job_asked_for(dctcp: Run) -> None:
    sockets = dctcp.results.sections["sockets"]
    assert sockets["cc"] == {"dctcp": 2 * SENDERS, "reno": 2 * SENDERS}
    assert (sockets["ecn_negotiated"], sockets["as_asked"]) == (4 * SENDERS, True)


def test_hosts_are_set_as_the_policy_implies(dctcp: Run) -> None:
    assert dctcp.manifest["in_force"]["host_settings"]["cc"] == "dctcp"
    assert dctcp.manifest["in_force"]["host_settings"]["ecn"] == "on"


# ---- PFC ----


def test_pauses_reach_the_senders_and_are_counted_at_both_ends(roce: Run) -> None:
    found = links(roce)
    for number in range(2, SENDERS + 2):
        port, nic = found[f"s1-eth{number}"], found[f"h{number}-eth0"]
        assert port.pauses_sent == nic.pauses_received > 0
        assert nic.paused_us > 0
    assert found["h1-eth0"].pauses_received == 0


def test_the_queue_stays_within_the_buffer(roce: Run) -> None:
    assert links(roce)[HOT].queue_max_bytes < 800_000


def test_a_change_is_in_force_at_its_instant_and_read_back(roce: Run) -> None:
    events: list[dict[str, Any]] = roce.results.sections["events"]
    assert [(event["at_us"], event["where"], event["ports"]) for event in events] == [
        (200_000, "every switch", SENDERS + 1),
        (200_000, HOT, 1),
    ]
    assert all(event["in_force_us"] == pytest.approx(event["at_us"], abs=0.1) for event in events)
    before, after = roce.manifest["in_force"]["ports"], roce.results.sections["ports_in_force"]
    assert (before[HOT]["class3_kmin_bytes"], after[HOT]["class3_kmin_bytes"]) == (1_000_000, 20_000)
    assert (after["s1-eth2"]["class3_xon_offset_bytes"], after[HOT]["class3_xon_offset_bytes"]) == (18_028, 36_056)


def test_marks_come_only_after_the_change(roce: Run) -> None:
    before, after = roce.results.sections["counted"]
    assert before["marks"] == 0
    assert after["marks"] > 0
    assert before["pauses_sent"] > 0
