"""Our controller and the real Open vSwitch: rules, paths, restarts, and plain Mininet.  Boots the guest."""

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from controller import compat
from controller.forwarding import plan
from controller.selector.build import built
from testbed.guest.machine import Boot, boot
from topologies.registry import parse_topology

pytestmark = pytest.mark.guest

LAB = "tests/guest/controller_lab.py"
FABRIC = "leaf_spine:leaves=2,spines=4,hosts=2"
PLAIN = "leaf_spine:leaves=2,spines=2,hosts=2"
LARGEST = "fat_tree:k=8"
RULES_SECONDS = 15
"""For 80 switches, from the first connection to the last rule read back: 3.5 s here when nothing else runs."""

Facts = dict[str, Any]


@cache
def facts_of(scenario: str, framework: str, spec: str, directory: Path, *, time_travel: bool = True) -> Facts:
    """What the lab found out in a guest of its own; one boot for all tests of a scenario."""
    out = directory / f"{scenario}-{framework}"
    out.mkdir()
    command = [sys.executable, LAB, scenario, framework, spec]
    said: list[str] = []
    environment = {"FABRIC_TESTBED_CACHE": str(built().parents[1])}
    request = Boot(command=command, run_dir=out, time_travel=time_travel, environment=environment)
    code = boot(request, on_line=said.append)
    assert code == 0, "\n".join(said[-30:])
    facts: Facts = json.loads((out / "facts.json").read_text())
    return facts


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("controller")


@pytest.fixture(params=sorted(compat.FRAMEWORKS))
def fabric(request: pytest.FixtureRequest, directory: Path) -> Facts:
    return facts_of("fabric", request.param, FABRIC, directory)


@pytest.fixture
def plain(directory: Path) -> Facts:
    return facts_of("mn", compat.default_framework(), PLAIN, directory)


def test_without_switches_it_says_which_are_missing(fabric: Facts) -> None:
    assert fabric["absent"]["ok"] is False
    for switch in parse_topology(FABRIC).switches:
        assert f"switch {switch.name} (dpid {switch.dpid}): not connected" in fabric["absent"]["error"]


def test_it_is_ready_when_every_switch_has_every_rule(fabric: Facts) -> None:
    rules = sum(map(len, plan(parse_topology(FABRIC)).values()))
    assert fabric["ready"] == {"ok": True, "switches": 6, "rules": rules}
    assert sum(map(len, fabric["rules"].values())) == rules


def test_every_pair_of_hosts_connects_with_its_first_packet(fabric: Facts) -> None:
    assert fabric["failed_pairs"] == []


def test_the_counters_of_every_port_are_those_of_the_flows_paths(fabric: Facts) -> None:
    """Each connection is two flows; the packets of each are found on every port of its path, and nowhere else."""
    assert fabric["flows"] == 2 * 4 * 3
    assert fabric["unrecorded"] == 0
    assert fabric["counted"] == fabric["predicted"]


def test_a_packet_to_nobody_goes_nowhere(fabric: Facts) -> None:
    assert fabric["spread_of_a_stray"] == {}


def test_flows_that_collide_share_an_uplink_and_the_others_do_not(fabric: Facts) -> None:
    assert list(fabric["together"].values()) == [20]
    assert sorted(fabric["apart"].values()) == [10, 10]


def test_each_switch_has_exactly_one_rule_of_priority_0_and_it_drops(fabric: Facts) -> None:
    for rules in fabric["rules"].values():
        assert [rule for rule in rules if "priority=0 " in rule] == ["cookie=0xfab, priority=0 actions=drop"]


def test_a_killed_controller_stops_nothing_and_its_successor_changes_nothing(fabric: Facts) -> None:
    assert fabric["rules_without_controller"] == fabric["rules"]
    assert fabric["failed_without_controller"] == []
    assert fabric["ready_again"] == fabric["ready"]
    assert fabric["rules_after_restart"] == fabric["rules"]
    assert fabric["selectors_after_restart"] == fabric["selectors"]


def test_switches_that_start_anew_get_rules_and_selectors_again(fabric: Facts) -> None:
    assert fabric["rules_after_switch_restart"] == fabric["rules"]
    assert fabric["failed_after_switch_restart"] == []
    assert fabric["selectors_after_switch_restart"] == fabric["selectors"]


def test_selectors_are_on_the_host_facing_ports_and_gone_at_the_end(fabric: Facts) -> None:
    topology = parse_topology(FABRIC)
    assert fabric["selectors"] == sorted(topology.peer_of[nic.name].name for nic in topology.host_interfaces())
    assert fabric["selectors_after_end"] == []
    assert fabric["exit_code"] == 0


def test_plain_mininet_connects_without_static_arp(plain: Facts) -> None:
    assert plain["ready"]["ok"]
    assert plain["failed_pairs"] == []
    assert plain["neighbours"].count("lladdr 02:00:0a:00:") == 3


def test_plain_mininets_flows_take_their_paths_and_arp_stays_at_the_first_switch(plain: Facts) -> None:
    hosts_of_ports = {nic.name for nic in parse_topology(PLAIN).host_interfaces()}
    peer = parse_topology(PLAIN).peer_of
    for name, packets in plain["counted"].items():
        arp_replies = 3 if peer[name].name in hosts_of_ports else 0
        assert packets == plain["predicted"][name] + arp_replies, name


def test_a_question_for_an_address_that_nobody_has_is_not_flooded(plain: Facts) -> None:
    """P15: in plain Mininet the ARP request goes to the controller and ends there."""
    assert plain["spread_of_a_stray"] == {}


@pytest.mark.parametrize("framework", sorted(compat.FRAMEWORKS))
def test_a_large_fat_tree_gets_its_rules_in_seconds(directory: Path, framework: str) -> None:
    facts = facts_of("scale", framework, LARGEST, directory, time_travel=False)
    assert facts["ready"] == {"ok": True, "switches": 80, "rules": 1536}
    assert facts["failed_pairs"] == []
    assert facts["wall_s"] < RULES_SECONDS
    assert facts["exit_code"] == 0


def test_the_selector_gives_the_marks_of_its_twin_in_the_guests_kernel_too(directory: Path) -> None:
    """There is no compiler for BPF in that kernel: its interpreter must agree as well."""
    out = directory / "selector"
    out.mkdir()
    tests = "tests/unit/controller/test_selector.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", tests]
    said: list[str] = []
    assert boot(Boot(command=command, run_dir=out), on_line=said.append) == 0, "\n".join(said[-30:])
    assert re.search(r"\d+ passed in", said[-1]), said[-1]
    assert "skipped" not in said[-1]
