"""A figure of bars: to scale, in groups, well formed."""

from xml.etree import ElementTree

from experiments.report.bars import BAR, svg

ASKED = {"groups": ["broken"], "label": "policy", "value": "share", "most": 1.0, "title": "a < b"}
RECORDS = [
    {"policy": "ecmp", "broken": "none", "share": 0.5},
    {"policy": "te", "broken": "none", "share": 1.0},
    {"policy": "ecmp", "broken": "uplink", "share": 0.25},
]


def test_bars_are_to_scale_and_in_groups() -> None:
    picture = ElementTree.fromstring(svg(RECORDS, ASKED))
    space = "{http://www.w3.org/2000/svg}"
    assert [float(bar.attrib["width"]) for bar in picture.iter(f"{space}rect")] == [BAR / 2, BAR, BAR / 4]
    words = [text.text for text in picture.iter(f"{space}text")]
    assert words == ["broken none", "ecmp", "0.50", "te", "1.00", "broken uplink", "ecmp", "0.25"]
    assert picture.find(f"{space}title") is not None


def test_what_is_above_the_mark_still_fits() -> None:
    picture = ElementTree.fromstring(svg([{"policy": "x", "broken": "none", "share": 2.0}], ASKED))
    space = "{http://www.w3.org/2000/svg}"
    line = next(picture.iter(f"{space}line"))
    assert float(line.attrib["x1"]) < float(picture.attrib["width"])
    assert [float(bar.attrib["width"]) for bar in picture.iter(f"{space}rect")] == [BAR]
