"""What the kernel and Open vSwitch would be told to build a topology."""

from ipaddress import IPv4Network

import pytest

from testbed import rtnl
from testbed.host_settings import HostSettings
from testbed.netlink import attribute, attribute_list, attributes
from testbed.ovs import bridge_commands, controller_commands
from testbed.plan import Plan
from topologies.registry import TOPOLOGIES, parse_topology


def _plan(spec: str) -> Plan:
    return Plan(topology=parse_topology(spec), settings=HostSettings(), tag="test")


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_indexes_and_macs_are_unique_where_they_must_be(name: str) -> None:
    plan = _plan(name)
    places = list(plan.placed.values())
    assert len({(place.host, place.index) for place in places}) == len(places)
    assert len({place.mac for place in places}) == len(places)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_every_direction_of_every_link_is_an_egress(name: str) -> None:
    plan = _plan(name)
    assert len(plan.egresses) == 2 * len(plan.topology.links)
    for egress in plan.egresses.values():
        assert plan.egresses[egress.peer].peer == egress.interface


def test_both_ends_of_a_cable_have_different_indexes() -> None:
    """The kernel takes an interface whose peer has its own number for one without a peer, and is slow to use it."""
    plan = _plan("fat_tree:k=4")
    for egress in plan.egresses.values():
        assert plan.placed[egress.interface].index != plan.placed[egress.peer].index


def test_a_host_with_one_nic_needs_one_route_and_no_rule() -> None:
    plan = _plan("leaf_spine")
    (nic,) = plan.topology.interfaces_of["h1"]
    assert plan.destinations(nic) == [(rtnl.MAIN_TABLE, IPv4Network("10.0.0.0/8"))]
    assert plan.rules_of("h1") == []


def test_nics_of_a_rail_share_the_work() -> None:
    plan = _plan("rail:hosts=2,rails=3")
    first, second, third = plan.topology.interfaces_of["h1"]
    rest = IPv4Network("10.0.0.0/8")
    assert plan.destinations(first) == [(254, IPv4Network("10.0.1.0/24")), (254, rest), (100, rest)]
    assert plan.destinations(second) == [(254, IPv4Network("10.0.2.0/24")), (101, rest)]
    assert plan.destinations(third) == [(254, IPv4Network("10.0.3.0/24")), (102, rest)]
    assert len(plan.rules_of("h1")) == 3
    assert len(plan.others(first)) == 3


def test_switch_ends_come_first_in_a_pair() -> None:
    plan = _plan("star:hosts=2")
    for request in plan.cables({"h1": 7, "h2": 8}):
        outer = attributes(request.body[16:])
        assert outer[rtnl.IFLA_IFNAME].startswith(b"s1-eth")
        assert rtnl.IFLA_NET_NS_FD not in outer


def test_one_transaction_makes_every_switch() -> None:
    topology = parse_topology("leaf_spine:leaves=2,spines=2,hosts=2")
    words = bridge_commands(topology, tag="run-1", fail_mode="secure")
    assert words.count("add-br") == 4
    assert words.count("add-port") == 2 * 2 + 2 * 2 * 2
    assert words.count("protocols=OpenFlow13") == words.count("fail_mode=secure") == 4
    assert words.count("external_ids:fabric-testbed=run-1") == 4
    for switch in topology.switches:
        assert f"other_config:datapath-id={switch.dpid:016x}" in words
    assert controller_commands(topology, "tcp:127.0.0.1:6653").count("tcp:127.0.0.1:6653") == 4


def test_attributes_survive_packing() -> None:
    data = attribute(1, b"abc") + attribute(2, b"") + attribute(1, b"last")
    assert list(attribute_list(data)) == [(1, b"abc"), (2, b""), (1, b"last")]
    assert attributes(data) == {1: b"last", 2: b""}
    assert len(data) % 4 == 0
