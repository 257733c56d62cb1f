"""Flowlets, spraying and weights: the BPF program in this machine's kernel against its twin, theory and itself."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import product
from math import prod

import pytest

from controller.path_marks import path
from controller.policies import parse_policy
from controller.policies.base import Situation
from controller.selector.flow_hash import TCP, Flow
from controller.selector.frames import frame, mark_given
from controller.selector.selection import Selection
from controller.selector.selector import Selector
from topologies.errors import UserError
from topologies.graph import leaf_of
from topologies.model import Topology
from topologies.registry import parse_topology

Load = Callable[..., Selector]
TREE = parse_topology("fat_tree:k=4")
CLOS = parse_topology("leaf_spine:leaves=2,spines=4,hosts=4")
UPLINKS = 4


def addresses(topology: Topology) -> dict[IPv4Address, str]:
    """Address -> leaf."""
    nics = topology.host_interfaces()
    return {end.ip: leaf_of(topology, end.name).name for end in nics if end.ip is not None}


def selection(spec: str, topology: Topology = CLOS, seed: int = 1) -> Selection:
    return parse_policy(spec).selection(Situation(topology=topology, seed=seed))


def flows(topology: Topology, number: int) -> list[Flow]:
    """Between the first and the last leaf's hosts, every one with ports of its own."""
    hosts = [*addresses(topology)]
    return [
        Flow(src=hosts[at % 2], dst=hosts[-1 - at % 2], proto=TCP, sport=40000 + at, dport=5001) for at in range(number)
    ]


def marks(selector: Selector, flow: Flow, packets: int) -> list[int]:
    return [mark_given(selector, frame(flow)) for _ in range(packets)]


@pytest.mark.parametrize("topology", [TREE, CLOS], ids=lambda topology: topology.name)
@pytest.mark.parametrize("spec", ["flowlet:gap=0", "spray", "spray:choice=round_robin"])
def test_every_packet_takes_the_path_of_the_twin(load: Load, spec: str, topology: Topology) -> None:
    selector, hosts, chosen = load(addresses(topology)), addresses(topology), selection(spec, topology)
    selector.select(chosen)
    for flow in flows(topology, 20):
        assert marks(selector, flow, 12) == [chosen.mark(flow, hosts, number) for number in range(12)]


def test_an_infinite_gap_is_ecmp_and_a_gap_of_0_is_spraying(load: Load) -> None:
    selector, given = load(addresses(TREE)), {}
    for spec in ("ecmp", "flowlet:gap=infinite", "flowlet:gap=1000s", "flowlet:gap=0", "spray"):
        selector.select(selection(spec, TREE))
        given[spec] = [marks(selector, flow, 10) for flow in flows(TREE, 50)]
    assert given["flowlet:gap=infinite"] == given["flowlet:gap=1000s"] == given["ecmp"]
    assert given["flowlet:gap=0"] == given["spray"] != given["ecmp"]


@pytest.mark.parametrize("spec", ["spray", "spray:choice=round_robin", "spray:choice=drill"])
def test_spraying_uses_every_uplink_alike(load: Load, spec: str) -> None:
    selector = load(addresses(CLOS))
    selector.select(selection(spec))
    taken = Counter(mark for flow in flows(CLOS, 10) for mark in marks(selector, flow, 40))
    assert len(taken) == UPLINKS
    assert max(taken.values()) <= 100 + {"spray": 40, "spray:choice=round_robin": 0, "spray:choice=drill": 20}[spec]


def test_a_flow_is_recorded_with_every_path_it_took(load: Load) -> None:
    selector = load(addresses(CLOS))
    selector.select(selection("spray"))
    (flow,) = flows(CLOS, 1)
    taken, packet = Counter(marks(selector, flow, 100)), frame(flow)
    found = {record.mark: record for record in selector.flows()}
    assert {mark: record.packets for mark, record in found.items()} == taken
    assert sum(record.bytes for record in found.values()) == 100 * len(packet)
    assert selector.unrecorded_packets() == 0


@pytest.mark.parametrize("choice", ["local", "congestion"])
def test_by_load_flows_fill_the_idle_uplinks_first(load: Load, choice: str) -> None:
    """Four flows on four uplinks: one on each, where chance has 9.8% of perfect placements.

    On a real clock a process that is kept waiting for a millisecond finds loads faded away: three in ten may.
    """
    selector, perfect = load(addresses(CLOS)), 0
    for seed in range(10):
        selector.select(selection(f"flowlet:gap=1s,choice={choice}", seed=seed))
        perfect += len({mark for flow in flows(CLOS, UPLINKS) for mark in marks(selector, flow, 5)}) == UPLINKS
    assert perfect >= 7


def test_a_flow_whose_entry_is_taken_chooses_anew_and_is_counted(load: Load) -> None:
    selector = load(addresses(CLOS))
    selector.select(selection("flowlet:gap=1000s,slots=1"))
    one, other = flows(CLOS, 2)
    for _ in range(5):
        marks(selector, one, 1)
        marks(selector, other, 1)
    assert (selector.counters().flowlets, selector.counters().evictions) == (10, 9)
    selector.select(selection("flowlet:gap=1000s"))
    marks(selector, one, 5)
    marks(selector, other, 5)
    assert (selector.counters().flowlets, selector.counters().evictions) == (12, 9)


def test_routes_are_all_shortest_ways_once_each() -> None:
    for (source, destination), ways in Situation(topology=TREE, seed=1).routes.items():
        assert len({way.links for way in ways}) == len(ways)
        widths = Situation(topology=TREE, seed=1).widths[source, destination]
        assert len(ways) == prod(widths)
        assert {len(way.links) for way in ways} in ({2}, {4})


def test_a_route_is_the_path_of_its_mark() -> None:
    nic = {leaf: end for end in CLOS.host_interfaces() for leaf in [leaf_of(CLOS, end.name).name]}
    for (source, destination), ways in Situation(topology=CLOS, seed=1).routes.items():
        for way in ways:
            assert path(CLOS, nic[source], nic[destination], way.mark)[1:-1] == way.links


def slower(topology: Topology, name: str, share: int) -> Topology:
    """One cable at a fraction of its rate."""
    links = tuple(
        replace(link, rate_bps=link.rate_bps // share) if link.name == name else link for link in topology.links
    )
    return replace(topology, links=links)


def test_a_quarter_rate_link_gets_a_quarter_of_the_flows(load: Load) -> None:
    fabric = slower(CLOS, "leaf1-spine2", 4)
    selector, chosen = load(addresses(fabric)), selection("wcmp", fabric)
    selector.select(chosen)
    given = {flow: marks(selector, flow, 1)[0] for flow in flows(fabric, 2600)}
    assert given == {flow: chosen.mark(flow, addresses(fabric)) for flow in given}
    taken = Counter(given.values())
    assert taken[0x0100] == pytest.approx(2600 / 13, abs=4 * (2600 / 13) ** 0.5)
    for mark in (0x0000, 0x0200, 0x0300):
        assert taken[mark] == pytest.approx(2600 * 4 / 13, abs=4 * (2600 * 4 / 13) ** 0.5)


def test_by_load_an_idle_quarter_rate_link_is_no_bargain(load: Load) -> None:
    """The smallest failing input of experiments/flowlet_gap.py: three links did a little, the slow one nothing."""
    fabric = slower(CLOS, "leaf1-spine2", 4)
    selector = load(addresses(fabric))
    selector.select(selection("flowlet:gap=1s,choice=congestion", fabric))
    taken = {marks(selector, flow, 5)[0] for flow in flows(fabric, 100)}
    assert taken == {0x0000, 0x0200, 0x0300}


def test_weights_are_by_uplink_in_port_order() -> None:
    chosen = selection("wcmp:weights=0/2/1/1")
    for source, destination in product(("leaf1", "leaf2"), repeat=2):
        if source != destination:
            assert [way.mark >> 8 for way in chosen.routes[source, destination]] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("wcmp:weights=1/2", "policy wcmp: weights: 2 weights for the 4 uplinks from leaf"),
        ("wcmp:weights=0/0", "policy wcmp: weights: '0/0' gives no path any weight"),
        ("flowlet:gap=5", "policy flowlet: gap: '5' is not a delay"),
        ("flowlet:choice=best", "policy flowlet: choice: 'best' is none of random, local, congestion"),
        ("flowlet:slots=0", "policy flowlet: slots: 0 is not in 1..16384"),
    ],
)
def test_mistakes_are_named(spec: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        selection(spec)
    assert str(caught.value).startswith(message)
