"""Policies by name, their parameters, and what they make of a fabric."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from controller.policies import POLICIES, parse_policy
from controller.policies.base import Situation
from controller.policies.ecmp import Ecmp
from controller.selector.flow_hash import TCP, Flow
from topologies.errors import UnknownName, UserError
from topologies.graph import leaf_of
from topologies.registry import parse_topology

SITUATION = Situation(topology=parse_topology("fat_tree:k=4"), seed=1)
LEAF_OF = {
    end.ip: leaf_of(SITUATION.topology, end.name).name
    for end in SITUATION.topology.host_interfaces()
    if end.ip is not None
}
FLOW = Flow(src=IPv4Address("10.1.1.1"), dst=IPv4Address("10.4.2.2"), proto=TCP, sport=1, dport=2)


def test_parameters_are_parsed() -> None:
    assert parse_policy("ecmp:seed=3,polarised=yes") == Ecmp(seed=3, polarised=True)
    assert parse_policy("ecmp") == Ecmp()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ecpm", "unknown policy 'ecpm'; known: e_ecmp, ecmp, flowlet, pinned, single, spray, te, up_down, wcmp"),
        ("ecmp:sed=1", "unknown parameter of policy ecmp 'sed'; known: polarised, seed"),
        ("single:seed=1", "unknown parameter of policy single 'seed'; known: none"),
        ("ecmp:seed=x", "policy ecmp: seed: 'x' is not a whole number; write one from 0 to 4294967295"),
        ("ecmp:seed=-1", "policy ecmp: seed: -1 is not in 0..4294967295"),
        ("ecmp:polarised=maybe", "policy ecmp: polarised: 'maybe' is neither yes nor no"),
        ("ecmp:seed", "policy ecmp: 'seed' is not key=value"),
        ("ecmp:seed=1,seed=2", "policy ecmp: seed is given twice"),
        ("", "unknown policy ''; known: e_ecmp, ecmp, flowlet, pinned, single, spray, te, up_down, wcmp"),
    ],
)
def test_a_mistake_is_named_with_what_would_do(spec: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_policy(spec)
    assert str(caught.value) == message
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, UnknownName) == ("unknown" in message)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_says_what_it_is_and_what_it_takes(name: str) -> None:
    policy = POLICIES[name]
    assert policy.name == name
    assert policy.summary
    assert all(policy.parameters().values())
    assert policy().selection(SITUATION).widths.keys() == SITUATION.widths.keys()


def test_help_shows_defaults() -> None:
    assert Ecmp.parameters()["polarised"].endswith("(default no)")


def test_ecmp_draws_from_the_runs_seed_unless_it_has_its_own() -> None:
    other = replace(SITUATION, seed=2)
    assert Ecmp().selection(SITUATION).seeds != Ecmp().selection(other).seeds
    assert Ecmp(seed=7).selection(SITUATION) == Ecmp(seed=7).selection(other)


def test_ecmp_hashes_every_tier_with_a_seed_of_its_own_unless_polarised() -> None:
    assert len(set(Ecmp().selection(SITUATION).seeds)) == 4
    assert len(set(Ecmp(polarised=True).selection(SITUATION).seeds)) == 1


def test_ecmp_uses_every_path_and_single_only_the_first() -> None:
    for spec, paths in (("ecmp", 4), ("single", 1)):
        selection = parse_policy(spec).selection(SITUATION)
        marks = {selection.mark(replace(FLOW, sport=sport), LEAF_OF) for sport in range(100)}
        assert len(marks) == paths
    assert marks == {0}


def test_a_situation_leaves_out_what_is_cut_off() -> None:
    topology = parse_topology("leaf_spine:leaves=2,spines=1")
    assert set(Situation(topology=topology, seed=1).widths) == {("leaf1", "leaf2"), ("leaf2", "leaf1")}
    assert set(Situation(topology=topology, seed=1, down=frozenset({"leaf2-spine1"})).widths) == set()
