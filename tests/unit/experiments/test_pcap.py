"""The words of `--pcap` mean interfaces, packets and times; a wrong one is named beside those that would do."""

import pytest

from experiments.pcap import MOST_SNAP_BYTES, Captures, capture_points, parse_captures
from experiments.port_plan import PortPlan
from testbed.capture import SNAP_BYTES, Window
from testbed.packet_filter import EVERYTHING, Selection
from topologies.errors import UnknownName, UserError
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,hosts=1,spines=1")
PLAN = PortPlan.of(policy="roce:classes=8:1/46:6", topology=FABRIC, seed=1)


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


def test_without_a_word_more_everything_is_kept() -> None:
    assert parse_captures("hosts", PLAN) == Captures(
        interfaces=("h1-eth0", "h2-eth0"), selection=EVERYTHING, window=None, snap_bytes=SNAP_BYTES, files="both"
    )


def test_words_compose() -> None:
    assert parse_captures("h1,h2-eth0:class=1/6, window=2ms-8ms,snap=96,files=run", PLAN) == Captures(
        interfaces=("h1-eth0", "h2-eth0"),
        selection=Selection(dscps=frozenset({8, 46}), paused=frozenset({1, 6})),
        window=Window(begin_ns=2_000_000, end_ns=8_000_000),
        snap_bytes=96,
        files="run",
    )


def test_the_data_class_is_every_dscp_that_no_other_has() -> None:
    (index,) = {index for index in range(8) if index not in (1, 6)} & set(PLAN.decisions["h1-eth0"].dscp_classes)
    found = parse_captures(f"hosts:class={index}", PLAN).selection
    assert found == Selection(dscps=frozenset(range(64)) - {8, 46}, paused=frozenset({index}))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hosts:dscp=8", Selection(dscps=frozenset({8}))),
        ("hosts:window=-8ms", Window(begin_ns=0, end_ns=8_000_000)),
        ("hosts:window=2ms-", Window(begin_ns=2_000_000, end_ns=None)),
        ("hosts:snap=full", MOST_SNAP_BYTES),
    ],
)
def test_a_word_at_a_time(words: str, expected: object) -> None:
    found = parse_captures(words, PLAN)
    assert expected in (found.selection, found.window, found.snap_bytes)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("hosts:colour=red", "unknown key of --pcap 'colour'; known: class, dscp, files, snap, window"),
        ("hosts:class", "--pcap hosts:class: 'class' is not key=value"),
        ("hosts:class=9", r"class: 9 is not in 0\.\.7"),
        ("hosts:class=5", r"no packet is in class 5: the policy uses 1, 3, 6; another needs classes="),
        ("hosts:dscp=64", r"dscp: 64 is not in 0\.\.63"),
        ("hosts:dscp=8,class=3", "leave one of them out"),
        ("hosts:window=2ms", "window: '2ms' is not BEGIN-END; write for instance 2ms-8ms, 2ms- or -8ms"),
        ("hosts:window=8ms-2ms", "window: '8ms-2ms' ends before it begins"),
        ("hosts:window=2-8ms", "window: .*'2'"),
        ("hosts:snap=10", r"snap: 10 is not in 64\.\.16384"),
        ("hosts:files=some", "unknown files of --pcap 'some'; known: both, each, run"),
        ("none:snap=96", "nothing is captured"),
        ("h9:snap=96", "unknown capture point 'h9'"),
    ],
)
def test_a_wrong_word_is_named_with_what_would_do(words: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_captures(words, PLAN)
