"""Next hops, distances and paths, with every cable working and with some cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import UnknownName, UserError
from topologies.graph import distance, host_prefix, hosts_below, leaf_of, leaves, next_hops, path_count, paths
from topologies.model import Topology
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=3,hosts=2,spines=3,cables=2")
TREE = parse_topology("fat_tree:k=4")


def names(topology: Topology, switch: str, leaf: str, *down: str) -> list[str]:
    return [end.name for end in next_hops(topology, switch, leaf, frozenset(down))]


def test_next_hops_are_in_port_order() -> None:
    assert names(FABRIC, "leaf1", "leaf2") == [f"leaf1-eth{port}" for port in range(3, 9)]
    assert names(FABRIC, "spine2", "leaf3") == ["spine2-eth5", "spine2-eth6"]
    assert names(TREE, "p1e1", "p1e2") == ["p1e1-eth3", "p1e1-eth4"]
    assert names(TREE, "p1a1", "p2e1") == ["p1a1-eth3", "p1a1-eth4"]
    assert names(TREE, "c1", "p3e1") == ["c1-eth3"]


def test_a_cut_cable_or_port_leaves_the_others() -> None:
    without = names(FABRIC, "leaf1", "leaf2", "leaf1-spine1", "leaf1-eth6", "spine3-eth1")
    assert without == ["leaf1-eth4", "leaf1-eth5", "leaf1-eth8"]
    assert names(FABRIC, "leaf1", "leaf2", "leaf1-spine1", "leaf1-spine1.2") == [
        f"leaf1-eth{port}" for port in (5, 6, 7, 8)
    ]


def test_a_cut_further_on_is_seen_from_here() -> None:
    assert names(FABRIC, "leaf1", "leaf2", "leaf2-spine1", "leaf2-spine1.2") == [
        f"leaf1-eth{port}" for port in (5, 6, 7, 8)
    ]
    assert names(TREE, "p1e1", "p2e1", "p1a1-c1", "p1a1-c2") == ["p1e1-eth4"]


def test_cut_off_means_no_next_hop_and_no_distance() -> None:
    pair = parse_topology("dumbbell")
    assert names(pair, "left", "right", "left-right") == []
    assert path_count(pair, "left", "right", frozenset({"left-right"})) == 0
    with pytest.raises(UserError, match="no path from left to right with left-right down"):
        distance(pair, "left", "right", frozenset({"left-right"}))


def test_paths_are_whole() -> None:
    found = paths(TREE, "p1e1", "p4e2")
    assert len(found) == len(set(found)) == path_count(TREE, "p1e1", "p4e2") == 4
    for path in found:
        at = "p1e1"
        for end in path:
            assert end.node == at
            at = TREE.peer_of[end.name].node
        assert at == "p4e2"
    assert paths(TREE, "p1e1", "p1e1") == ((),)


@given(st.data())
def test_counting_agrees_with_listing(data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from([FABRIC, TREE]))
    racks = [leaf.name for leaf in leaves(topology)]
    source, destination = data.draw(st.sampled_from(racks)), data.draw(st.sampled_from(racks))
    assert path_count(topology, source, destination) == len(paths(topology, source, destination))


def test_leaves_and_their_hosts() -> None:
    assert [leaf.name for leaf in leaves(TREE)] == [f"p{pod}e{edge}" for pod in (1, 2, 3, 4) for edge in (1, 2)]
    assert [end.name for end in hosts_below(FABRIC, "leaf2")] == ["h3-eth0", "h4-eth0"]
    assert hosts_below(FABRIC, "spine1") == ()
    assert leaf_of(FABRIC, "h3-eth0").name == "leaf2"


def test_prefixes() -> None:
    assert str(host_prefix(TREE, "p3e2")) == "10.3.2.0/24"
    assert host_prefix(TREE, "c1") is None


def test_unknown_names_are_listed() -> None:
    for ask in (
        lambda: leaf_of(FABRIC, "h9-eth0"),
        lambda: leaf_of(FABRIC, "leaf1-eth3"),
        lambda: next_hops(FABRIC, "leaf9", "leaf1"),
        lambda: next_hops(FABRIC, "leaf1", "leaf9"),
        lambda: distance(FABRIC, "h1", "leaf1"),
        lambda: next_hops(FABRIC, "leaf1", "leaf2", frozenset({"leaf1-spine9"})),
    ):
        with pytest.raises(UnknownName):
            ask()
