"""The picture: well formed, the same every time, nothing on top of anything, colours that mean what the legend says."""

from itertools import combinations
from xml.etree import ElementTree

import pytest

from topologies.drawing import SCALE, draw
from topologies.errors import UnknownName, UserError
from topologies.file import read_text
from topologies.layout import LEFT, Box, plan
from topologies.registry import TOPOLOGIES, parse_topology

SPECS = [
    *TOPOLOGIES,
    "star:hosts=1",
    "star:hosts=64",
    "dumbbell:hosts=1",
    "leaf_spine:leaves=16,hosts=8,spines=8",
    "leaf_spine:leaves=12,hosts=1,spines=2",
    "leaf_spine:leaves=1,hosts=1,spines=16",
    "fat_tree:k=8",
    "rail:hosts=16,rails=8",
    "topologies/two_rates.yaml",
    "topologies/ring_of_switches.yaml",
    "topologies/tapered_zones.yaml",
]
SVG = "{http://www.w3.org/2000/svg}"


def overlap(one: Box, other: Box) -> bool:
    return (
        abs(one.x - other.x) < (one.width + other.width) / 2 and abs(one.y - other.y) < (one.height + other.height) / 2
    )


@pytest.mark.parametrize("spec", SPECS)
def test_no_label_on_another_and_all_inside(spec: str) -> None:
    topology = parse_topology(spec)
    layout = plan(topology)
    assert set(layout.boxes) == {node.name for node in topology.nodes}
    for (name, one), (other_name, other) in combinations(layout.boxes.items(), 2):
        assert not overlap(one, other), f"{name} and {other_name}"
    for name, box in layout.boxes.items():
        assert box.width >= 7 * len(name), name
        assert box.left >= LEFT - 1, name
        assert box.right <= layout.width, name
        assert box.top >= 0, name
        assert box.bottom <= layout.height, name


@pytest.mark.parametrize("spec", SPECS)
def test_every_node_and_cable_is_there_once_and_the_text_is_stable(spec: str) -> None:
    topology = parse_topology(spec)
    text = draw(topology)
    assert text == draw(parse_topology(spec))
    root = ElementTree.fromstring(text)
    labels = [element.text for element in root.iter(f"{SVG}text")]
    for node in topology.nodes:
        assert labels.count(node.name) == 1
    tips = [(element.text or "").partition(":")[0] for element in root.iterfind(f"{SVG}g/{SVG}path/{SVG}title")]
    assert sorted(tips) == sorted(link.name for link in topology.links)
    assert "#" not in text  # ink is the page's


def test_a_faster_cable_is_wider() -> None:
    root = ElementTree.fromstring(draw(parse_topology("leaf_spine:uplink_rate=400G")))
    widths = {
        (path.findtext(f"{SVG}title") or "").partition(":")[0]: float(path.attrib["stroke-width"])
        for path in root.iterfind(f"{SVG}g/{SVG}path")
    }
    assert widths["leaf1-spine1"] == pytest.approx(2 * widths["h1-leaf1"])


@pytest.mark.parametrize(
    ("share", "number"), [(0, 0), (0.0099, 0), (0.01, 1), (0.3, 2), (0.5, 3), (0.75, 4), (1.02, 4)]
)
def test_utilisation_has_the_colour_of_its_class(share: float, number: int) -> None:
    root = ElementTree.fromstring(draw(parse_topology("star"), utilisation={"h3-s1": share}))
    strokes = {
        (path.findtext(f"{SVG}title") or "").partition(":")[0]: path.attrib.get("stroke")
        for path in root.iterfind(f"{SVG}g/{SVG}path")
    }
    assert strokes["h3-s1"] == SCALE[number][2]
    assert strokes["h1-s1"] is None
    legend = [rect.attrib["fill"] for rect in root.iter(f"{SVG}rect") if "fill" in rect.attrib]
    assert legend == [colour for _, _, colour in SCALE]


def test_unknown_links_and_negative_shares_are_refused() -> None:
    with pytest.raises(UnknownName, match="unknown link 'h9-s1'"):
        draw(parse_topology("star"), utilisation={"h9-s1": 0.5})
    for share in (-0.1, float("nan")):
        with pytest.raises(UserError, match="link h1-s1"):
            draw(parse_topology("star"), utilisation={"h1-s1": share})


def test_a_name_from_a_file_cannot_break_the_page() -> None:
    text = "{name: '<script>&', hosts: [h1], switches: [s1], links: [[h1, s1]]}"
    picture = draw(read_text(text, where="f.yaml", name="f"))
    assert "<script>" not in picture
    assert (ElementTree.fromstring(picture).findtext(f"{SVG}title") or "").startswith("<script>&: ")
