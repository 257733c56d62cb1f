"""How evenly links are used: arithmetic on readings and paths."""

import pytest

from experiments.balance import Reading, entropies, entropy, links_in_use, over_time, phases, section
from experiments.results import FlowPath
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,spines=2,hosts=2")
PORTS = [end.name for end in FABRIC.interfaces() if end.node in FABRIC.switch_named]
UP = FABRIC.link_named["leaf1-spine1"].a.name, FABRIC.link_named["leaf1-spine2"].a.name
OTHER_UP = FABRIC.link_named["leaf2-spine1"].a.name, FABRIC.link_named["leaf2-spine2"].a.name


def reading(at_ns: int, sent: dict[str, int], down: frozenset[str] = frozenset()) -> Reading:
    return Reading(at_ns=at_ns, label=f"at {at_ns}", sent_bytes={name: sent.get(name, 0) for name in PORTS}, down=down)


def flow(number: int, up: str, size: int) -> FlowPath:
    return FlowPath(
        src="10.0.1.1",
        dst="10.0.2.1",
        proto="tcp",
        sport=number,
        dport=1,
        mark=0,
        packets=1,
        bytes=size,
        path=("h1-eth0", up, "spine1-eth2", "leaf2-eth1"),
    )


def test_the_index_is_the_busiest_link_over_the_mean_of_its_tier() -> None:
    one = reading(0, {})
    two = reading(1_000, {UP[0]: 300, UP[1]: 100, OTHER_UP[0]: 200, OTHER_UP[1]: 200})
    (found,) = phases(FABRIC, [one, two, reading(2_000, dict(two.sent_bytes))])
    assert (found.tier, found.bytes, found.index, found.start_ns, found.end_ns) == ("leaf to spine", 800, 1.5, 0, 1_000)


def test_a_link_of_no_use_is_not_expected_to_carry_anything() -> None:
    """With leaf1-spine2 down nobody reaches leaf1 through spine2: leaf2's cable to it idles as well."""
    down = frozenset({"leaf1-spine2"})
    sent = {UP[0]: 100, OTHER_UP[0]: 100}
    assert links_in_use(FABRIC, down) == links_in_use(FABRIC, frozenset({"leaf1-spine2", "leaf2-spine2"}))
    assert phases(FABRIC, [reading(0, {}, down), reading(1, sent, down)])[0].index == pytest.approx(1)
    assert phases(FABRIC, [reading(0, {}, down), reading(1, sent)])[0].index == pytest.approx(2)


def test_entropy_is_one_for_even_and_zero_for_single() -> None:
    assert entropy([5, 5, 5, 5]) == pytest.approx(1)
    assert entropy([20, 0, 0, 0]) == 0
    assert entropy([1, 1, 0, 0]) == pytest.approx(0.5)
    assert entropy([7]) == entropy([]) == 1


def test_entropy_of_flows_counts_only_those_that_matter_and_only_where_there_is_a_choice() -> None:
    flows = [flow(1, UP[0], 1000), flow(2, UP[0], 1000), flow(3, UP[1], 9), flow(4, UP[1], 1000)]
    found = entropies(FABRIC, flows)
    assert set(found) == {"leaf to spine"}
    assert found["leaf to spine"][0] == pytest.approx(entropy([2, 1]))
    assert found["leaf to spine"][1] == pytest.approx(entropy([2000, 1000]))


def test_a_line_per_tier_weighs_phases_by_bytes() -> None:
    readings = [reading(0, {}), reading(1_000, {UP[0]: 400}), reading(2_000, {UP[0]: 500, UP[1]: 100})]
    found = phases(FABRIC, readings)
    (line,) = section(FABRIC, found, [flow(1, UP[0], 500), flow(2, UP[1], 100)])
    assert (line["tier"], line["links"], line["phases"]) == ("leaf to spine", 4, 2)
    assert line["max_over_mean"] == pytest.approx((4 * 400 + 2 * 200) / 600, abs=1e-4)
    assert line["in_busiest_phase"] == 4
    columns = over_time(found, start_ns=0)["leaf to spine"]
    assert (columns["until_us"], columns["max_over_mean"]) == ([1.0, 2.0], [4.0, 2.0])
