"""What holds for every fabric that a generator makes, and the formulas of each family."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.errors import UnknownName, UserError
from topologies.graph import distance, host_prefix, leaf_of, leaves, next_hops, path_count
from topologies.model import MAX_INTERFACE_NAME, Topology
from topologies.registry import TOPOLOGIES

SMALL = st.integers(1, 4)
PARAMETERS: Mapping[str, st.SearchStrategy[dict[str, int]]] = {
    "star": st.fixed_dictionaries({"hosts": st.integers(1, 40)}),
    "dumbbell": st.fixed_dictionaries({"hosts": st.integers(1, 12)}),
    "leaf_spine": st.fixed_dictionaries({"leaves": SMALL, "hosts": SMALL, "spines": SMALL, "cables": SMALL}),
    "fat_tree": st.fixed_dictionaries({"k": st.sampled_from([2, 4, 6])}),
    "ring": st.fixed_dictionaries({"switches": st.integers(3, 9), "hosts": SMALL}),
    "wan": st.fixed_dictionaries({"sites": SMALL, "hosts": SMALL}),
    "rail": st.fixed_dictionaries({"hosts": SMALL, "rails": SMALL, "spines": SMALL, "cables": SMALL}),
}
FABRICS = st.sampled_from(sorted(PARAMETERS)).flatmap(
    lambda name: PARAMETERS[name].map(lambda values: TOPOLOGIES[name].build(values))
)


def test_every_registered_generator_is_tested_here() -> None:
    assert set(PARAMETERS) == set(TOPOLOGIES)


@settings(deadline=None, max_examples=60)
@given(FABRICS)
def test_every_leaf_reaches_every_leaf_by_hops_that_come_nearer(topology: Topology) -> None:
    for destination in leaves(topology):
        assert next_hops(topology, destination.name, destination.name) == ()
        for switch in topology.switches:
            here = distance(topology, switch.name, destination.name)
            hops = next_hops(topology, switch.name, destination.name)
            assert bool(hops) == (here > 0)
            assert [end.port for end in hops] == sorted(end.port for end in hops)
            for end in hops:
                assert distance(topology, topology.peer_of[end.name].node, destination.name) == here - 1


@settings(deadline=None, max_examples=60)
@given(FABRICS)
def test_names_and_numbers_are_unique_and_tell_the_place(topology: Topology) -> None:
    ends = list(topology.interfaces())
    assert len({end.name for end in ends}) == len(ends) == 2 * len(topology.links)
    assert all(end.name == f"{end.node}-eth{end.port}" and len(end.name) <= MAX_INTERFACE_NAME for end in ends)
    assert [switch.dpid for switch in topology.switches] == list(range(1, len(topology.switches) + 1))
    nics = list(topology.host_interfaces())
    assert len({nic.ip for nic in nics}) == len({nic.mac for nic in nics}) == len(nics)
    for nic in nics:
        assert nic.ip is not None
        ten, pod, leaf, host = nic.ip.packed
        assert (ten, pod) == (10, topology.host_named[nic.node].pod)
        assert 1 <= host <= 254
        assert nic.mac == f"02:00:0a:{pod:02x}:{leaf:02x}:{host:02x}"
        assert str(host_prefix(topology, leaf_of(topology, nic.name).name)) == f"10.{pod}.{leaf}.0/24"
    for node in topology.hosts:
        assert [end.port for end in topology.interfaces_of[node.name]] == list(
            range(len(topology.interfaces_of[node.name]))
        )
    for switch in topology.switches:
        ports = [end.port for end in topology.interfaces_of[switch.name]]
        assert ports == list(range(1, len(ports) + 1))


@settings(deadline=None)
@given(PARAMETERS["leaf_spine"])
def test_leaf_spine_has_a_path_per_spine_and_pair_of_cables(values: dict[str, int]) -> None:
    topology = TOPOLOGIES["leaf_spine"].build(values)
    count, cables = values["leaves"], values["cables"]
    assert len(topology.hosts) == count * values["hosts"]
    assert len(topology.links) == len(topology.hosts) + count * values["spines"] * cables
    if count > 1:
        assert path_count(topology, "leaf1", f"leaf{count}") == values["spines"] * cables**2


@settings(deadline=None)
@given(PARAMETERS["ring"])
def test_a_ring_has_two_ways_to_the_opposite_switch_and_choice_0_is_clockwise(values: dict[str, int]) -> None:
    topology = TOPOLOGIES["ring"].build(values)
    count, per_switch = values["switches"], values["hosts"]
    assert len(topology.links) == count * (per_switch + 1)
    for place in range(count):
        for steps in range(1, count):
            here, there = f"s{place + 1}", f"s{(place + steps) % count + 1}"
            assert path_count(topology, here, there) == (2 if 2 * steps == count else 1)
            clockwise = next_hops(topology, here, there)[0].name == f"{here}-eth{per_switch + 1}"
            assert clockwise == (2 * steps <= count)


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_fat_tree_formulas(k: int) -> None:
    topology = TOPOLOGIES["fat_tree"].build({"k": k})
    assert len(topology.hosts) == k**3 // 4
    assert len(topology.switches) == 5 * k**2 // 4
    assert len(topology.links) == 3 * k**3 // 4
    assert all(len(topology.interfaces_of[switch.name]) == k for switch in topology.switches)
    assert path_count(topology, "p1e1", f"p{k}e{k // 2}") == k**2 // 4
    if k > 2:
        assert path_count(topology, "p1e1", "p1e2") == k // 2


def test_fat_tree_names_tell_the_place() -> None:
    topology = TOPOLOGIES["fat_tree"].build({"k": 4})
    assert [end.node for end in (topology.peer_of[own.name] for own in topology.interfaces_of["p1a2"])] == [
        "p1e1",
        "p1e2",
        "c3",
        "c4",
    ]
    assert [topology.peer_of[own.name].node for own in topology.interfaces_of["c1"]] == [
        f"p{pod}a1" for pod in (1, 2, 3, 4)
    ]
    assert str(topology.interfaces_of["h16"][0].ip) == "10.4.2.2"


@settings(deadline=None)
@given(PARAMETERS["wan"])
def test_a_wan_is_a_star_of_sites_with_the_cloud_in_the_middle(values: dict[str, int]) -> None:
    topology = TOPOLOGIES["wan"].build(values)
    sites, hosts = values["sites"], values["hosts"]
    assert len(topology.hosts) == 1 + sites * (hosts + 1)
    assert len(topology.links) == len(topology.hosts) + sites
    assert leaf_of(topology, "cloud-eth0").name == "core"
    assert all(leaf_of(topology, f"edge{site}-eth0").name == f"site{site}" for site in range(1, sites + 1))
    assert all(path_count(topology, "site1", f"site{site}") == 1 for site in range(2, sites + 1))


def test_a_long_distance_port_holds_a_round_trip_from_site_to_site() -> None:
    topology = TOPOLOGIES["wan"].build({"sites": 1, "wan_rate": "1G", "wan_delay": "5ms"})
    assert topology.link_named["site1-core"].buffer_bytes == 2_500_000
    shallow = TOPOLOGIES["wan"].build({"sites": 1, "wan_delay": "5ms", "wan_buffer": "200kB"})
    assert shallow.link_named["site1-core"].buffer_bytes == 200_000


def test_a_rail_is_one_leaf() -> None:
    topology = TOPOLOGIES["rail"].build({"hosts": 3, "rails": 2, "spines": 2})
    for number in (1, 2, 3):
        nics = topology.interfaces_of[f"h{number}"]
        assert [nic.name for nic in nics] == [f"h{number}-eth0", f"h{number}-eth1"]
        assert [leaf_of(topology, nic.name).name for nic in nics] == ["leaf1", "leaf2"]
        assert [str(nic.ip) for nic in nics] == [f"10.0.1.{number}", f"10.0.2.{number}"]


def test_uplinks_follow_the_hosts_unless_told_otherwise() -> None:
    same = TOPOLOGIES["leaf_spine"].build({"rate": "400G", "delay": "2us"})
    assert {(link.rate_bps, link.delay_ns, link.buffer_bytes) for link in same.links} == {
        (400 * 10**9, 2000, 2_000_000)
    }
    other = TOPOLOGIES["leaf_spine"].build({"uplink_rate": "50G", "uplink_delay": "5us", "buffer": "1MB"})
    assert {(link.rate_bps, link.delay_ns, link.buffer_bytes) for link in other.links} == {
        (100 * 10**9, 1000, 1_000_000),
        (50 * 10**9, 5000, 1_000_000),
    }
    middle = (
        TOPOLOGIES["dumbbell"].build({"bottleneck_rate": "10G", "bottleneck_delay": "1ms"}).link_named["left-right"]
    )
    assert (middle.rate_bps, middle.delay_ns) == (10**10, 10**6)


@pytest.mark.parametrize(
    ("name", "given_values", "complaint"),
    [
        ("star", {"hosts": 0}, "hosts: 0 is not in 1..250"),
        ("star", {"hosts": "many"}, "hosts: 'many' is not a whole number"),
        ("star", {"hosts": 1.5}, "hosts: '1.5' is not a whole number"),
        ("star", {"rate": "100X"}, "rate: '100X' is not a rate"),
        ("star", {"rate": "0"}, "rate: '0' would carry nothing"),
        ("star", {"delay": "5"}, "delay: '5' is not a delay"),
        ("star", {"buffer": "much"}, "buffer: 'much' is not a size"),
        ("star", {"buffer": "1kB"}, "cannot hold one frame"),
        ("star", {"mtu": 100}, "mtu: 100 is not in"),
        ("dumbbell", {"bottleneck_rate": "fast"}, "bottleneck_rate: 'fast' is not a rate"),
        ("leaf_spine", {"spines": 0}, "spines: 0 is not in"),
        ("leaf_spine", {"leaves": 251}, "leaves: 251 is not in"),
        ("leaf_spine", {"cables": 17}, "cables: 17 is not in"),
        ("leaf_spine", {"uplink_delay": "x"}, "uplink_delay: 'x' is not a delay"),
        ("fat_tree", {"k": 5}, "k: 5 is odd"),
        ("fat_tree", {"k": 0}, "k: 0 is not in"),
        ("rail", {"rails": 0}, "rails: 0 is not in"),
        ("ring", {"switches": 2}, "switches: 2 is not in 3..250"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_the_parameter(
    name: str, given_values: dict[str, str | int | float], complaint: str
) -> None:
    with pytest.raises(UserError) as caught:
        TOPOLOGIES[name].build(given_values)
    assert f"topology {name}: " in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_a_mistyped_parameter_gets_the_list_with_defaults(name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        TOPOLOGIES[name].build({"hots": 4})
    assert f"parameter of {name} 'hots'" in str(caught.value)
    for parameter in TOPOLOGIES[name].parameters:
        assert f"{parameter.name}={parameter.default}" in str(caught.value)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_generators_introduce_themselves(name: str) -> None:
    generator = TOPOLOGIES[name]
    assert generator.name == name
    assert 20 < len(generator.summary) < 120
    assert "\n" not in generator.summary
    assert all(parameter.meaning for parameter in generator.parameters)
    assert generator.build({}).parameters == {one.name: str(one.default) for one in generator.parameters}


def test_positional_values_are_the_parameters_in_order() -> None:
    leaf_spine = TOPOLOGIES["leaf_spine"]
    assert leaf_spine.build_positional(2, 3, 1, rate="25G") == leaf_spine.build(
        {"leaves": 2, "hosts": 3, "spines": 1, "rate": "25G"}
    )
    with pytest.raises(UserError, match="leaves is given twice"):
        leaf_spine.build_positional(2, leaves=2)
    with pytest.raises(UserError, match="at most 5 parameters"):
        TOPOLOGIES["star"].build_positional(1, 2, 3, 4, 5, 6)
