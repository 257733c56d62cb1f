"""Up*/down* paths: shortest, without a turn from down to up, and so without a circle of buffers."""

from collections.abc import Iterator

import pytest

from controller.path_marks import path
from controller.policies import parse_policy
from controller.policies.base import Situation
from controller.selector.flow_hash import TCP, Flow
from topologies.dependency import cycle
from topologies.errors import UserError
from topologies.graph import distance, leaf_of
from topologies.model import Topology
from topologies.registry import parse_topology

FABRICS = ("ring", "leaf_spine:leaves=3,hosts=2,spines=3", "fat_tree:k=4", "rail:hosts=2", "dumbbell:hosts=2", "star")


def paths(topology: Topology, policy: str, down: frozenset[str] = frozenset()) -> Iterator[tuple[str, ...]]:
    """Of one flow between every two hosts."""
    selection = parse_policy(policy).selection(Situation(topology=topology, seed=1, down=down))
    leaf = {end.ip: leaf_of(topology, end.name).name for end in topology.host_interfaces() if end.ip is not None}
    for source in topology.host_interfaces():
        for destination in topology.host_interfaces():
            if source != destination:
                assert source.ip is not None
                assert destination.ip is not None
                flow = Flow(src=source.ip, dst=destination.ip, proto=TCP, sport=1, dport=2)
                yield path(topology, source, destination, selection.mark(flow, leaf), down)


@pytest.mark.parametrize("spec", FABRICS)
def test_no_circle_of_buffers_on_any_fabric(spec: str) -> None:
    assert cycle(paths(parse_topology(spec), "up_down")) == ()


def test_single_closes_one_on_the_ring() -> None:
    assert cycle(paths(parse_topology("ring"), "single")) == ("s1-eth3", "s2-eth3", "s3-eth3", "s4-eth3")


@pytest.mark.parametrize("spec", FABRICS)
def test_paths_are_as_short_as_can_be(spec: str) -> None:
    topology = parse_topology(spec)
    for found in paths(topology, "up_down"):
        first, last = leaf_of(topology, found[0]).name, topology.link_of[found[-1]]
        end = next(end for end in (last.a, last.b) if end.name == found[-1])
        assert len(found) == distance(topology, first, end.node) + 2


def test_on_the_ring_opposite_pairs_meet_at_the_root_and_the_roots_own_are_spread() -> None:
    """s2 and s4 may only go through s1; between s1 and s3 both ways are allowed and used."""
    topology = parse_topology("ring")
    found = {(each[0], topology.peer_of[each[-1]].name): each[1:-1] for each in paths(topology, "up_down")}
    assert found["h3-eth0", "h7-eth0"] == found["h4-eth0", "h8-eth0"] == ("s2-eth4", "s1-eth4")
    assert found["h7-eth0", "h3-eth0"] == ("s4-eth3", "s1-eth3")
    assert {found["h1-eth0", "h5-eth0"], found["h1-eth0", "h6-eth0"]} == {
        ("s1-eth3", "s2-eth3"),
        ("s1-eth4", "s4-eth4"),
    }


def test_a_cut_moves_the_paths_and_leaves_no_circle() -> None:
    topology = parse_topology("ring")
    left = list(paths(topology, "up_down", frozenset({"s1-s2"})))
    assert not any("s1-eth3" in each or "s2-eth4" in each for each in left)
    assert cycle(left) == ()


def test_a_ring_whose_only_shortest_path_turns_up_is_refused() -> None:
    with pytest.raises(UserError, match="every shortest path from s5 to s3 turns from down to up"):
        list(paths(parse_topology("ring:switches=6"), "up_down"))


def test_more_pairs_than_entries_are_refused() -> None:
    with pytest.raises(UserError, match="pairs of hosts need an entry each, the selector holds 65536"):
        next(paths(parse_topology("dumbbell:hosts=182"), "up_down"))
