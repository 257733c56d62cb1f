"""Racks and what leaves them: facts.md 4.5 by counting messages."""

from fractions import Fraction

import pytest

from experiments.training.racks import (
    by_rack,
    columns,
    contiguous,
    hierarchical_messages,
    interleaved,
    leaving_bytes,
    rank_racks,
    uplinks,
)
from experiments.workloads import messages
from experiments.workloads.messages import wire_bytes
from topologies.errors import UserError
from topologies.model import Topology
from topologies.registry import parse_topology

SIZES = [(2, 2), (2, 4), (3, 2), (4, 4)]


def fabric(leaves: int, hosts: int) -> Topology:
    return parse_topology(f"leaf_spine:leaves={leaves},hosts={hosts},spines=2")


def names(topology: Topology) -> list[str]:
    return [host.name for host in topology.hosts]


def test_orders_of_a_ring() -> None:
    racks = by_rack(fabric(2, 3), names(fabric(2, 3)))
    assert racks == {"leaf1": ["h1", "h2", "h3"], "leaf2": ["h4", "h5", "h6"]}
    assert contiguous(racks) == ["h1", "h2", "h3", "h4", "h5", "h6"]
    assert interleaved(racks) == ["h1", "h4", "h2", "h5", "h3", "h6"]
    assert rank_racks(fabric(2, 3), interleaved(racks)) == [[0, 2, 4], [1, 3, 5]]
    assert columns([[0, 2, 4], [1, 3, 5]]) == [[0, 1], [2, 3], [4, 5]]


def test_racks_of_unequal_size_are_refused_by_name() -> None:
    topology = fabric(2, 4)
    with pytest.raises(UserError, match="leaf1 has 4, leaf2 has 2"):
        by_rack(topology, names(topology)[:6])


def test_uplinks_lead_to_switches() -> None:
    assert uplinks(fabric(2, 3), "leaf1") == ["leaf1-eth4", "leaf1-eth5"]


@pytest.mark.parametrize(("leaves", "hosts"), SIZES)
def test_placement_is_one_to_h_exactly(leaves: int, hosts: int) -> None:
    """facts.md 7, test 27."""
    topology, ranks = fabric(leaves, hosts), leaves * hosts
    racks = by_rack(topology, names(topology))
    size_bytes = 2 * ranks * ranks * 4 * 100
    near, far = (
        leaving_bytes(messages.all_reduce(ranks, size_bytes), rank_racks(topology, order))
        for order in (contiguous(racks), interleaved(racks))
    )
    assert [each * hosts for each in near] == far


@pytest.mark.parametrize(("leaves", "hosts"), SIZES)
def test_a_hierarchy_sends_what_a_ring_over_leaves_would(leaves: int, hosts: int) -> None:
    """2 (L-1)/L n per rack (facts.md 7, test 28), and per rank as much as a flat ring."""
    ranks, size_bytes = leaves * hosts, 2 * (leaves * hosts) ** 2 * 4 * 1000
    racks = [list(range(rack * hosts, (rack + 1) * hosts)) for rack in range(leaves)]
    sent = list(hierarchical_messages(racks, size_bytes))
    payload = sum(each.size_bytes for each in sent if each.src // hosts == 0 and each.dst // hosts != 0)
    assert payload == Fraction(2 * (leaves - 1), leaves) * size_bytes
    for rank in range(ranks):
        own = sum(each.size_bytes for each in sent if each.src == rank)
        assert own == Fraction(2 * (ranks - 1), ranks) * size_bytes


def test_headers_are_counted_in_both_directions() -> None:
    assert leaving_bytes([messages.Message(0, 1, 1000)], [[0], [1]]) == [1096, 48]
    assert leaving_bytes([messages.Message(0, 1, 1000)], [[0, 1], [2, 3]]) == [0, 0]


def test_arrays_that_do_not_divide_are_padded() -> None:
    sent = list(hierarchical_messages([[0, 1, 2], [3, 4, 5]], 40))
    assert sum(wire.tx for wire in wire_bytes(sent, ranks=6)) == sum(wire.rx for wire in wire_bytes(sent, ranks=6))
    assert {each.size_bytes for each in sent if each.src // 3 == each.dst // 3} == {16, 8}
