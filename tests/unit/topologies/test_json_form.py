"""JSON and back is exact, through text, and what is not ours is refused."""

import json

import pytest

from topologies.errors import UserError
from topologies.graph import leaves, next_hops
from topologies.json_form import from_json, to_json
from topologies.registry import TOPOLOGIES, parse_topology

SPECS = [
    *TOPOLOGIES,
    "leaf_spine:cables=3,uplink_rate=400G",
    "fat_tree:k=6",
    "topologies/two_rates.yaml:mtu=1500",
    "topologies/ring_of_switches.yaml",
    "topologies/tapered_zones.yaml",
]


@pytest.mark.parametrize("spec", SPECS)
def test_round_trip(spec: str) -> None:
    topology = parse_topology(spec)
    back = from_json(json.loads(json.dumps(to_json(topology))))
    assert back == topology
    assert back.parameters == topology.parameters
    first, last = leaves(topology)[0].name, leaves(topology)[-1].name
    assert next_hops(back, first, last) == next_hops(topology, first, last)


@pytest.mark.parametrize(
    "change", [{"schema": "other/1"}, {"links": [{}]}, {"hosts": None}, {"hosts": [{"nme": "h1"}]}]
)
def test_refuses_other_forms(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match="not a topology in the form"):
        from_json({**to_json(parse_topology("star")), **change})


def test_a_wrong_address_is_refused() -> None:
    data = to_json(parse_topology("star:hosts=2"))
    data["links"][0]["a"]["ip"] = "10.0.0.256"
    with pytest.raises(UserError, match=r"10\.0\.0\.256"):
        from_json(data)


def test_a_form_that_cannot_be_built_is_refused() -> None:
    data = to_json(parse_topology("star:hosts=2"))
    data["links"][1]["a"]["ip"] = data["links"][0]["a"]["ip"]
    with pytest.raises(UserError, match="used twice"):
        from_json(data)
