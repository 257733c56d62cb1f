"""The fluid bound of a ring, and how an array is cut over connections."""

import pytest

from experiments.placement import place
from experiments.workloads.ring_ideal import ideal_ns, wire_share
from experiments.workloads.split_rings import Round, Rounds, parts, times
from topologies.errors import UnknownName
from topologies.registry import parse_topology

SIZE_BYTES = 8_000_000
PER_FLOW_NS = 2 * 7 / 8 * SIZE_BYTES * 8 / 100 * wire_share(9000)


@pytest.mark.parametrize(
    ("spec", "placement", "down", "slowdown"),
    [
        ("leaves=2,hosts=4,spines=4", "interleaved", (), 1),
        ("leaves=2,hosts=4,spines=4", "contiguous", ("leaf1-spine1",), 1),
        ("leaves=2,hosts=4,spines=4", "interleaved", ("leaf1-spine1",), 4 / 3),
        ("leaves=2,hosts=4,spines=2", "interleaved", (), 2),
        ("leaves=2,hosts=4,spines=2", "contiguous", (), 1),
        ("leaves=2,hosts=4,spines=5", "interleaved", ("leaf2-spine5",), 1),
    ],
)
def test_the_slowest_of_hosts_and_uplinks_decides(
    spec: str, placement: str, down: tuple[str, ...], slowdown: float
) -> None:
    fabric = parse_topology(f"leaf_spine:{spec}")
    found = ideal_ns(fabric, place(fabric, placement, seed=1), SIZE_BYTES, frozenset(down))
    assert found == pytest.approx(PER_FLOW_NS * slowdown)


def test_an_array_is_cut_by_connections_or_by_chunks() -> None:
    assert parts(1000, Rounds(size_bytes=4000, connections=16), 4) == 16
    assert parts(3, Rounds(size_bytes=12, connections=16), 4) == 3
    assert parts(1000, Rounds(size_bytes=4000, connections=16, spread="round_robin", chunk_bytes=1024), 4) == 4
    with pytest.raises(UnknownName, match="round_robin, split"):
        Rounds(size_bytes=1, spread="somehow")


def test_a_round_lasts_from_the_first_start_to_the_last_end() -> None:
    found = [
        [Round(label="a", start_ns=0, end_ns=10, wrong=1), Round(label="b", start_ns=20, end_ns=25, wrong=0)],
        [Round(label="a", start_ns=2, end_ns=9, wrong=2), Round(label="b", start_ns=20, end_ns=28, wrong=0)],
    ]
    assert [(it.label, it.time_ns, it.wrong) for it in times(found)] == [("a", 10, 3), ("b", 8, 0)]
