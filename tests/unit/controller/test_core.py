"""The controller's state machine against switches in memory."""

import pytest

from controller.core import Core
from controller.fake_switch import FakeSwitch, converse
from controller.forwarding import plan
from controller.pipeline import AddRule, Band, Barrier, DeleteRule, Match, Output, ReadTables, Rule, Table, Wipe
from topologies.model import Topology
from topologies.registry import parse_topology

STRAY = Rule(table=Table.ROUTE, priority=77, match=Match(eth_type=0x1234), action=Output(1))


@pytest.fixture
def topology() -> Topology:
    return parse_topology("leaf_spine:leaves=2,spines=2,hosts=1")


@pytest.fixture
def core(topology: Topology) -> Core:
    return Core(topology, plan(topology))


def cable(core: Core) -> None:
    for switch in core.topology.switches:
        core.ports(switch.dpid, {end.port: end.name for end in core.topology.interfaces_of[switch.name]})


def test_nothing_is_ready_before_every_switch_has_exactly_its_rules(core: Core) -> None:
    cable(core)
    switches = {switch.dpid: FakeSwitch() for switch in core.topology.switches}
    for dpid, switch in switches.items():
        assert any(f"dpid {dpid})" in problem for problem in core.problems())
        converse(core, dpid, switch, core.connected(dpid))
        assert switch.rules == core.plan[dpid]
    assert core.problems() == ()
    assert core.rule_count == sum(len(switch.rules) for switch in switches.values())


def test_a_switch_that_misses_is_named(core: Core) -> None:
    cable(core)
    for switch in core.topology.switches[1:]:
        converse(core, switch.dpid, FakeSwitch(), core.connected(switch.dpid))
    first = core.topology.switches[0]
    assert core.problems() == (f"switch {first.name} (dpid {first.dpid}): not connected",)


def test_what_is_in_force_already_is_left_alone(core: Core) -> None:
    dpid = core.topology.switches[0].dpid
    assert converse(core, dpid, FakeSwitch(core.plan[dpid]), core.connected(dpid)) == 1  # it is read, that is all


def test_only_the_difference_is_written_and_stale_rules_go(core: Core) -> None:
    dpid = core.topology.switches[0].dpid
    gone = sorted(core.plan[dpid], key=repr)[0]
    switch = FakeSwitch((core.plan[dpid] - {gone}) | {STRAY})
    asked = [*core.connected(dpid), *core.tables(dpid, switch.rules, more=False)]
    assert asked == [ReadTables(), AddRule(gone), DeleteRule(STRAY), Barrier()]
    converse(core, dpid, switch, asked[1:])
    assert switch.rules == core.plan[dpid]


def test_a_rule_with_the_place_of_ours_but_another_action_is_replaced(core: Core) -> None:
    dpid = core.topology.switches[0].dpid
    miss = next(rule for rule in core.plan[dpid] if rule.priority == Band.MISS)
    wrong = Rule(table=miss.table, priority=miss.priority, match=miss.match, action=Output(1))
    switch = FakeSwitch((core.plan[dpid] - {miss}) | {wrong})
    converse(core, dpid, switch, core.connected(dpid))
    assert switch.rules == core.plan[dpid]


def test_rules_that_we_could_not_have_written_are_wiped(core: Core) -> None:
    dpid = core.topology.switches[0].dpid
    core.connected(dpid)
    asked = core.tables(dpid, [None, *core.plan[dpid]], more=False)
    assert asked[0] == Wipe()
    assert {each.rule for each in asked if isinstance(each, AddRule)} == core.plan[dpid]


def test_tables_that_come_in_parts_are_compared_when_complete(core: Core) -> None:
    dpid = core.topology.switches[0].dpid
    core.connected(dpid)
    first, *rest = core.plan[dpid]
    assert core.tables(dpid, [first], more=True) == []
    assert core.tables(dpid, rest, more=False) == []
    assert not any(f"(dpid {dpid})" in problem and "port" not in problem for problem in core.problems())


def test_a_switch_that_forgets_what_it_is_told_fails_after_some_rounds(core: Core) -> None:
    dpid = core.topology.switches[0].dpid
    core.connected(dpid)
    for _ in range(3):
        assert core.tables(dpid, [], more=False)
        assert core.acknowledged(dpid) == [ReadTables()]
    assert core.tables(dpid, [], more=False) == []
    assert f"{len(core.plan[dpid])} rules are missing" in core.problems()[0]


def test_a_switch_that_comes_back_empty_gets_its_rules_again(core: Core) -> None:
    cable(core)
    switches = {switch.dpid: FakeSwitch() for switch in core.topology.switches}
    for dpid, switch in switches.items():
        converse(core, dpid, switch, core.connected(dpid))
    dpid = next(iter(switches))
    core.disconnected(dpid)
    assert "not connected, connected 1" not in core.problems()[0]
    assert "not connected" in core.problems()[0]
    converse(core, dpid, again := FakeSwitch(), core.connected(dpid))
    assert again.rules == core.plan[dpid]
    assert core.problems() == ()


def test_a_switch_that_is_not_of_the_topology_is_a_problem_until_it_leaves(core: Core) -> None:
    assert core.connected(99) == []
    assert "a switch with dpid 99 connected; the topology has none" in core.problems()
    core.disconnected(99)
    assert not any("99" in problem for problem in core.problems())


def test_cables_in_the_wrong_ports_are_a_problem(core: Core) -> None:
    for switch in core.topology.switches:
        converse(core, switch.dpid, FakeSwitch(), core.connected(switch.dpid))
    cable(core)
    core.ports(1, {1: "leaf1-eth2", 2: "leaf1-eth1"})
    wrong = "port 1 is leaf1-eth2 and should be leaf1-eth1; port 2 is leaf1-eth1 and should be leaf1-eth2"
    assert core.problems() == (f"switch leaf1 (dpid 1): {wrong}; port 3 is absent and should be leaf1-eth3",)


def test_a_refusal_is_a_problem(core: Core) -> None:
    core.connected(1)
    core.refused(1, "refused something")
    assert core.problems()[0] == "switch leaf1 (dpid 1): refused something"


def test_a_new_plan_asks_only_those_whose_rules_change(core: Core) -> None:
    cable(core)
    switches = {switch.dpid: FakeSwitch() for switch in core.topology.switches}
    for dpid, switch in switches.items():
        converse(core, dpid, switch, core.connected(dpid))
    asked = core.replan(plan(core.topology, frozenset({"leaf1-spine1"})))
    assert asked
    assert core.problems()
    for dpid, requests in asked.items():
        converse(core, dpid, switches[dpid], requests)
    assert core.problems() == ()
    assert {dpid: frozenset(switch.rules) for dpid, switch in switches.items()} == core.plan
