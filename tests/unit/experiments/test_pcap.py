"""The words of `--pcap` mean interfaces."""

import pytest

from experiments.pcap import capture_points
from topologies.errors import UnknownName
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,hosts=1,spines=1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("none", ()),
        ("hosts", ("h1-eth0", "h2-eth0")),
        ("h2,leaf1-eth1", ("leaf1-eth1", "h2-eth0")),
        ("spine1", ("spine1-eth1", "spine1-eth2")),
    ],
)
def test_words_become_interfaces(words: str, expected: tuple[str, ...]) -> None:
    assert set(capture_points(words, FABRIC)) == set(expected)


def test_all_is_every_interface() -> None:
    assert capture_points("all", FABRIC) == tuple(end.name for end in FABRIC.interfaces())


def test_an_unknown_word_lists_those_that_would_do() -> None:
    with pytest.raises(UnknownName, match="unknown capture point 'leaf9'; known: all"):
        capture_points("leaf9", FABRIC)
