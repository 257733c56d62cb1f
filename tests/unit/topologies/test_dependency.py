"""Cyclic buffer dependencies: what closes a circle, what does not, and that the answer does not depend on the order."""

import random
from itertools import pairwise

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from topologies.dependency import cycle

CLOCKWISE = [("h1", "a", "b", "x"), ("h2", "b", "c", "y"), ("h3", "c", "a", "z")]


def test_paths_round_a_ring_close_a_circle() -> None:
    assert cycle(CLOCKWISE) == ("a", "b", "c")


def test_any_path_less_opens_it() -> None:
    for left_out in CLOCKWISE:
        assert cycle(path for path in CLOCKWISE if path != left_out) == ()


def test_one_after_the_other_is_no_circle() -> None:
    assert cycle([("a", "b"), ("b", "c"), ("a", "c")]) == ()
    assert cycle([]) == ()
    assert cycle([("a",)]) == ()


def test_there_and_back_over_one_cable_is_no_circle() -> None:
    """Each direction is a channel of its own."""
    assert cycle([("h1-eth0", "s1-eth2", "s2-eth1"), ("h2-eth0", "s2-eth2", "s1-eth1")]) == ()


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True), max_size=8), st.randoms())
def test_what_is_found_is_a_circle_and_none_is_missed(paths: list[list[str]], shuffle: random.Random) -> None:
    found, edges = cycle(paths), {edge for path in paths for edge in pairwise(path)}
    assert bool(found) == (not nx.is_directed_acyclic_graph(nx.DiGraph(edges)))
    assert all(edge in edges for edge in pairwise((*found, *found[:1])))
    other = list(paths)
    shuffle.shuffle(other)
    assert cycle(other) == found
