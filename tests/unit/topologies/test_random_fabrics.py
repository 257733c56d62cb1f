"""Fabrics that nobody drew: random cabling through the file format, with random cables cut."""

import json

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.description import describe
from topologies.drawing import draw
from topologies.file import read_text
from topologies.graph import distance, distances, leaves, next_hops, path_count, paths
from topologies.json_form import from_json, to_json
from topologies.model import Topology


@st.composite
def fabrics(draw_from: st.DrawFn) -> Topology:
    """Up to six switches cabled at random, not always in one piece, and up to eight hosts."""
    switches = [f"s{number}" for number in range(1, draw_from(st.integers(1, 6)) + 1)]
    hosts = [f"h{number}" for number in range(1, draw_from(st.integers(1, 8)) + 1)]
    links: list[object] = [[host, draw_from(st.sampled_from(switches))] for host in hosts]
    pairs = [(a, b) for a in switches for b in switches if a < b]
    chosen = draw_from(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    links += [{"ends": list(pair), "rate": draw_from(st.sampled_from(["25G", "100G", "400G"]))} for pair in chosen]
    text = yaml.safe_dump({"hosts": hosts, "switches": switches, "links": draw_from(st.permutations(links))})
    return read_text(text, where="random.yaml", name="random")


@settings(deadline=None, max_examples=100)
@given(fabrics(), st.data())
def test_next_hops_form_a_shortest_path_graph_whatever_is_cut(topology: Topology, data: st.DataObject) -> None:
    down = frozenset(data.draw(st.lists(st.sampled_from(sorted(topology.link_named)), max_size=4)))
    for leaf in leaves(topology):
        reach = distances(topology, leaf.name, down)
        for switch in topology.switches:
            hops = next_hops(topology, switch.name, leaf.name, down)
            assert bool(hops) == (switch.name in reach and switch != leaf)
            for end in hops:
                assert topology.link_of[end.name].name not in down
                assert reach[topology.peer_of[end.name].node] == reach[switch.name] - 1


@settings(deadline=None, max_examples=100)
@given(fabrics())
def test_paths_json_and_picture_cope(topology: Topology) -> None:
    assert from_json(json.loads(json.dumps(to_json(topology)))) == topology
    assert draw(topology) == draw(topology)
    assert list(describe(topology).lines())
    pairs = [(a, b) for a in leaves(topology) for b in leaves(topology)]
    assert describe(topology).cut_off_pairs == sum(path_count(topology, a.name, b.name) == 0 for a, b in pairs)
    for one in leaves(topology):
        for other in leaves(topology):
            listed = paths(topology, one.name, other.name)
            assert len(listed) == path_count(topology, one.name, other.name)
            assert all(len(path) == distance(topology, one.name, other.name) for path in listed)
