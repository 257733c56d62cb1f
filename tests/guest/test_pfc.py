"""What pauses do, in whole runs: every claim of the experiment, and what it says held against tshark and arithmetic."""

import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.results import LinkUse
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

FABRIC = "leaf_spine:leaves=2,hosts=5,spines=1,uplink_rate=400G"
LIMIT_US = 2000
STEP_US = 1


def section(run: Run, name: str, key: str) -> Mapping[str, Mapping[str, Any]]:
    """The rows of a section by one of their fields."""
    return {row[key]: row for row in run.results.sections[name]}


def links(run: Run) -> Mapping[str, LinkUse]:
    """By the interface that sends."""
    return {link.name.partition(">")[0]: link for link in run.results.links}


@pytest.fixture(scope="module")
def racks(run_experiment: RunExperiment) -> Run:
    """All that two racks allow, with every port of the congested one captured."""
    policy = f"pfc_only:classes=8:1,watchdog={LIMIT_US}us"
    settings = ("--set", "volume=5M", "--pcap", "leaf2")
    return run_experiment("pfc", "--topology", FABRIC, "--policy", policy, *settings).succeeded()


@pytest.fixture(scope="module")
def short_frames(run_experiment: RunExperiment) -> Run:
    """Frames that are short beside rate x delay, for which HPCC's headroom was made."""
    settings = ("--set", "scenarios=incast", "--set", "volume=2.5M")
    policy = ("--topology", "star:hosts=17,mtu=1500", "--policy", "pfc_only:buffer=2MB")
    return run_experiment("pfc", *policy, *settings).succeeded()


@pytest.fixture(scope="module")
def cyclic(run_experiment: RunExperiment) -> Run:
    """Clockwise from everywhere."""
    policy = ("--topology", "ring", "--policy", "pfc_only:lb=single")
    return run_experiment("pfc", *policy, "--set", "scenarios=deadlock").succeeded()


@pytest.fixture(scope="module")
def acyclic(run_experiment: RunExperiment) -> Run:
    """The same load, up and then down."""
    policy = ("--topology", "ring", "--policy", "pfc_only:lb=up_down")
    return run_experiment("pfc", *policy, "--set", "scenarios=deadlock").succeeded()


@pytest.mark.parametrize(("name", "claims"), [("racks", 13), ("short_frames", 5), ("cyclic", 2), ("acyclic", 1)])
def test_every_claim_holds(name: str, claims: int, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    assert len(run.results.claims) == claims
    assert [it.claim for it in run.results.claims if not it.holds] == []


# ---- headroom ----


def test_sixteen_to_one_needs_what_arithmetic_says(short_frames: Run) -> None:
    """After the pause: 2 x rate x delay, and at most two full frames; less than that loses, more does not."""
    rows = section(short_frames, "incast", "headroom")
    assert {name: row["dropped"] > 0 for name, row in rows.items()} == {
        "policy": False,
        "half of it": True,
        "3 x rate x delay": False,
        "half of that": True,
    }
    assert rows["3 x rate x delay"]["headroom_bytes"] == 37_500
    assert {row["senders"] for row in rows.values()} == {16}
    for name in ("policy", "3 x rate x delay"):
        assert 25_000 <= rows[name]["headroom_peak_bytes"] <= 25_000 + 2 * 1514
        assert rows[name]["line_share"] == pytest.approx(1, abs=1e-4)


# ---- pauses on the wire ----


def pauses_in(capture: Path) -> Counter[bool]:
    """PFC frames that the interface sent, as tshark reads them: how many stop (True) and resume (False) class 3."""
    outbound = "macc.opcode == 0x0101 && frame.packet_flags_direction == 2"
    command = ["tshark", "-r", str(capture), "-Y", outbound, "-T", "fields"]
    command += ["-e", "macc.cbfc.enbv.c3", "-e", "macc.cbfc.pause_time.c3", "-e", "eth.dst"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    found: Counter[bool] = Counter()
    for line in done.stdout.splitlines():
        enabled, quanta, to = line.split("\t")
        assert enabled in ("1", "True")
        assert to == "01:80:c2:00:00:01"
        found[int(quanta) > 0] += 1
    return found


def test_wireshark_sees_every_pause_that_is_counted_at_either_end(racks: Run) -> None:
    """Of two hosts of the congested rack, and of the spine, which stands for all senders of the other."""
    found, captures = links(racks), racks.folder.pcap
    for number in (1, 5, 6):
        port = f"leaf2-eth{number}"
        far = "spine1-eth2" if number == 6 else f"h{5 + number}-eth0"
        seen = pauses_in(captures / f"{port}.pcapng")
        assert seen[True] == found[port].pauses_sent == found[far].pauses_received > 0
        assert seen[False] > 0


def test_the_broken_nics_frames_are_counted_where_they_arrive(racks: Run) -> None:
    """No port of ours sent them, so none says that it did; the longest pause at 100 Gb/s is 335.5 us."""
    assert links(racks)["h10-eth0"].pauses_sent == 0
    assert links(racks)["leaf2-eth5"].pauses_received > 3 * LIMIT_US / 335.5


# ---- whom a pause hurts ----


def test_a_victim_waits_in_the_paused_class_only(racks: Run) -> None:
    rows = section(racks, "victim", "victim")
    assert rows["alone"]["victim_Gbps"] == pytest.approx(100, rel=0.005)
    assert 0.4 < rows["in the paused class"]["kept_share"] < 0.7
    assert rows["in class 1"]["kept_share"] > 0.98
    assert rows["in class 1"]["victim_nic_paused_us"] == 0
    assert rows["in the paused class"]["hot_port_Gbps"] == pytest.approx(100, rel=0.005)
    assert {row["dropped"] for row in rows.values()} == {0}


def test_pauses_travel_back_hop_by_hop(racks: Run) -> None:
    """The receiver's four neighbours and the spine first, then the first rack's leaf, then the four hosts there."""
    tree = racks.results.sections["pause_tree"]
    first = {row["port"]: row["first_pause_us"] for row in tree}
    levels = {row["port"]: row["level"] for row in tree}
    assert levels == {
        **{f"leaf2-eth{number}": 1 for number in (1, 2, 3, 4, 6)},
        "spine1-eth1": 2,
        **{f"leaf1-eth{number}": 3 for number in range(1, 5)},
    }
    assert first["leaf2-eth6"] < first["spine1-eth1"] < min(first[f"leaf1-eth{number}"] for number in range(1, 5))
    assert all(row["paused_us"] > 0 for row in tree)


# ---- storm and watchdog ----


def test_the_watchdog_ends_a_storm_in_time_and_only_a_storm(racks: Run) -> None:
    rows = section(racks, "storm", "watchdog")
    for name in ("drop", "forward"):
        assert LIMIT_US <= rows[name]["fired_after_us"] <= LIMIT_US + STEP_US
        assert LIMIT_US <= rows[name]["restored_after_us"] <= LIMIT_US + STEP_US
    assert {name: row["fired_ports"] for name, row in rows.items()} == {
        "off": 0,
        "drop": 1,
        "forward": 1,
        "drop, shorter pause": 0,
    }
    assert rows["drop, shorter pause"]["pause_us"] == pytest.approx(LIMIT_US / 2, rel=0.01)
    assert rows["off"]["pause_us"] > LIMIT_US
    assert rows["off"]["victim_late_Gbps"] == rows["drop, shorter pause"]["victim_late_Gbps"] == 0
    assert rows["drop"]["lost"] == rows["drop"]["dropped_watchdog"] > 0
    assert {rows[name]["lost"] for name in ("off", "forward", "drop, shorter pause")} == {0}


# ---- deadlock ----


def test_paths_round_the_ring_stop_it_and_the_watchdog_frees_it(cyclic: Run) -> None:
    (row,) = cyclic.results.sections["deadlock"]
    assert row["cycle"] == "s1-eth3 s2-eth3 s3-eth3 s4-eth3"
    assert row["late_goodput_share"] == 0
    assert row["waiting_later_bytes"] == row["waiting_bytes"] > 4 * 9014
    assert row["sent"] - row["received"] == row["dropped_watchdog"] > 0
    assert row["waiting_at_the_end_bytes"] == 0


def test_up_and_down_keeps_the_same_load_moving(acyclic: Run) -> None:
    """Four cables of 100 Gb/s and what goes through the root: more than one of them is always busy."""
    (row,) = acyclic.results.sections["deadlock"]
    assert (row["cyclic_dependency"], row["watchdogs_fired"], row["dropped"]) == ("no", 0, 0)
    assert row["sent"] == row["received"]
    assert row["late_goodput_share"] > 0.2
    assert sum(link.pauses_sent for link in acyclic.results.links) > 0, "it is lossless traffic under load"
