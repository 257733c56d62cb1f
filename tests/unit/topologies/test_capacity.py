"""Oversubscription and bisection against figures worked out by hand."""

import pytest

from topologies.capacity import bisection_bps, tiers
from topologies.description import describe
from topologies.registry import parse_topology

G = 10**9


@pytest.mark.parametrize(
    ("spec", "gbps"),
    [
        ("star", 400),
        ("star:hosts=1", 0),
        ("dumbbell:bottleneck_rate=25G", 25),
        ("leaf_spine", 800),
        ("leaf_spine:spines=2,uplink_rate=50G", 200),
        ("leaf_spine:cables=2,uplink_rate=25G", 400),
        ("fat_tree", 800),
        ("fat_tree:k=8", 6400),
        ("fat_tree:uplink_rate=10G", 80),
        ("rail", 800),
        ("ring", 200),
        ("topologies/two_rates.yaml", 300),
        ("topologies/tapered_zones.yaml", 100),
    ],
)
def test_bisection(spec: str, gbps: int) -> None:
    assert bisection_bps(parse_topology(spec)) == gbps * G


@pytest.mark.parametrize(
    ("spec", "ratios"),
    [
        ("star", [None]),
        ("dumbbell:bottleneck_rate=25G", [16]),
        ("leaf_spine", [1, None]),
        ("leaf_spine:hosts=8,spines=2,cables=2", [2, None]),
        ("fat_tree:k=6", [1, 1, None]),
        ("fat_tree:uplink_rate=10G", [10, 1, None]),
        ("rail:hosts=8", [2, None]),
        ("topologies/tapered_zones.yaml", [1, 4, 2]),
    ],
)
def test_oversubscription_per_tier(spec: str, ratios: list[int | None]) -> None:
    assert [tier.oversubscription for tier in tiers(parse_topology(spec))] == ratios


def test_the_worst_switch_of_a_tier_counts() -> None:
    leaf, spine = tiers(parse_topology("topologies/two_rates.yaml"))
    assert (leaf.name, leaf.switches, leaf.down_bps, leaf.up_bps) == ("leaf", 2, 1200 * G, 1600 * G)
    assert (spine.name, spine.down_bps, spine.up_bps) == ("spine", 1200 * G, 0)


def test_a_fabric_in_words() -> None:
    assert list(describe(parse_topology("leaf_spine:spines=2")).lines()) == [
        "leaf_spine: 16 hosts, MTU 9000 bytes",
        "  4 leaf switches: 400 Gb/s down to 200 Gb/s up each, oversubscription 2:1",
        "  2 spine switches: 400 Gb/s down each, top of the fabric",
        "  16 cables host-leaf: 100 Gb/s, 1 us one way, 500 kB of buffer at each port",
        "  8 cables leaf-spine: 100 Gb/s, 1 us one way, 500 kB of buffer at each port",
        "  bisection: 400 Gb/s (50% of what half the hosts can send)",
        "  longest path: 3 switches",
        "  equal-cost paths between two leaves: 2",
    ]


def test_one_host_has_no_bisection_to_speak_of() -> None:
    assert str(describe(parse_topology("star:hosts=1"))).splitlines() == [
        "star: 1 host, MTU 9000 bytes",
        "  1 leaf switch: 100 Gb/s down each, top of the fabric",
        "  1 cable host-leaf: 100 Gb/s, 1 us one way, 500 kB of buffer at each port",
        "  longest path: 1 switch",
    ]


def test_a_rail_fabric_counts_nics() -> None:
    found = describe(parse_topology("rail:hosts=3,rails=2"))
    assert (found.hosts, found.nics, found.demand_bps) == (3, 6, 200 * G)
