"""Digits in a mark, and the way back from a path to its mark."""

from itertools import product

import pytest

from controller.path_marks import digit_at, encode, mark_of, path, widths
from topologies.errors import InternalError, UserError
from topologies.registry import parse_topology


def test_the_first_digit_is_the_least_significant_byte() -> None:
    assert encode((1, 2, 3, 4)) == 0x04030201
    assert [digit_at(0x04030201, level) for level in (1, 2, 3, 4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("digits", [(256,), (-1,), (0, 0, 0, 0, 0)])
def test_digits_that_do_not_fit_are_our_bug(digits: tuple[int, ...]) -> None:
    with pytest.raises(InternalError):
        encode(digits)


def test_the_widths_of_a_fat_tree_are_those_of_its_tiers() -> None:
    topology = parse_topology("fat_tree:k=8")
    assert widths(topology, "p1e1", "p2e1") == (1, 1, 4, 4)
    assert widths(topology, "p1e1", "p1e2") == (1, 4, 1, 1)
    assert widths(topology, "p1e1", "p1e1") == (1, 1, 1, 1)


def test_a_path_is_the_egress_interfaces_in_order() -> None:
    topology = parse_topology("leaf_spine:leaves=2,spines=2,hosts=2")
    h1, *_, h4 = topology.host_interfaces()
    assert path(topology, h1, h4, 0x0100) == ("h1-eth0", "leaf1-eth4", "spine2-eth2", "leaf2-eth2")
    assert path(topology, h1, next(iter(topology.interfaces_of["h2"])), 0x0100) == ("h1-eth0", "leaf1-eth2")


@pytest.mark.parametrize("spec", ["leaf_spine", "fat_tree:k=4", "fat_tree:k=6", "rail", "dumbbell"])
def test_a_mark_comes_back_from_its_path(spec: str) -> None:
    topology = parse_topology(spec)
    source, *_, destination = topology.host_interfaces()
    ends = topology.peer_of[source.name].node, topology.peer_of[destination.name].node
    for digits in product(*(range(width) for width in widths(topology, *ends))):
        mark = encode(digits)
        assert mark_of(topology, destination, path(topology, source, destination, mark)) == mark


def test_a_detour_has_no_mark() -> None:
    topology = parse_topology("leaf_spine:leaves=2,spines=2,hosts=2")
    *_, last = topology.host_interfaces()
    with pytest.raises(UserError, match="spine2-eth1 is on no shortest path to h4-eth0"):
        mark_of(topology, last, ("h1-eth0", "leaf1-eth3", "spine2-eth1", "leaf2-eth2"))
