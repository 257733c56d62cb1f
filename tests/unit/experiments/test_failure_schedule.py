"""Schedules of failures: what people write, and what they are told when it means nothing."""

from fractions import Fraction
from pathlib import Path

import pytest

from experiments.failure_schedule import Loss, Rate, State, link_called, parse_failures, read_failures
from topologies.errors import UserError
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,spines=2,hosts=1,cables=2")


def test_every_kind_of_failure_in_order_of_time() -> None:
    text = """
    # a comment
    at 9ms link leaf1-spine2 up
    at 2ms link leaf1-spine2 down      # pulled
    at 3ms link spine1-leaf1 rate 25G
    at 4us link h1-leaf1 loss 0.1%
    """
    found = parse_failures(text, FABRIC)
    assert [(it.at_ns, it.links, it.deed) for it in found] == [
        (4_000, ("h1-leaf1",), Loss(share=Fraction(1, 1000))),
        (2_000_000, ("leaf1-spine2",), State(up=False)),
        (3_000_000, ("leaf1-spine1",), Rate(rate_bps=25 * 10**9)),
        (9_000_000, ("leaf1-spine2",), State(up=True)),
    ]
    assert [it.words for it in found][1] == "link leaf1-spine2 down"


def test_a_flap_is_down_for_the_first_half_of_each_period() -> None:
    found = parse_failures("at 2ms link leaf1-spine2 flap 3x every 1ms", FABRIC)
    assert [(it.at_ns, it.deed) for it in found] == [
        (2_000_000, State(up=False)),
        (2_500_000, State(up=True)),
        (3_000_000, State(up=False)),
        (3_500_000, State(up=True)),
        (4_000_000, State(up=False)),
        (4_500_000, State(up=True)),
    ]


def test_a_switch_is_all_its_cables() -> None:
    (found,) = parse_failures("at 1ms switch spine1 down", FABRIC)
    assert found.links == ("leaf1-spine1", "leaf1-spine1.2", "leaf2-spine1", "leaf2-spine1.2")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("leaf1-spine2", "leaf1-spine2"), ("spine2-leaf1", "leaf1-spine2"), ("spine2-leaf1.2", "leaf1-spine2.2")],
)
def test_either_end_may_be_named_first(written: str, meant: str) -> None:
    assert link_called(written, FABRIC) == meant


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("at 2ms link leaf1-spine9 down", "leaf1-spine1, leaf1-spine1.2, leaf1-spine2, leaf1-spine2.2"),
        ("at 2ms link leaf9-spine9 down", "unknown link 'leaf9-spine9'; known: h1-leaf1"),
        ("at 2ms switch spine9 down", "unknown switch"),
        ("at 2ms link leaf1-spine2 melt", "'melt' is nothing that can happen to it; write at TIME link A-B down"),
        ("at 2 link leaf1-spine2 down", "'2' is not a"),
        ("at 2ms link leaf1-spine2 rate fast", "'fast' is not a rate"),
        ("at 2ms link leaf1-spine2 rate 0G", "would carry nothing"),
        ("at 2ms link leaf1-spine2 loss 101%", "more than 100% cannot be lost"),
        ("at 2ms link leaf1-spine2 loss 1", "nothing that can happen"),
        ("at 2ms link leaf1-spine2 flap 0x every 1ms", "a flap happens 1 to"),
        ("at 2ms switch spine1 rate 25G", "a switch goes down or up"),
        ("2ms link leaf1-spine2 down", "write at TIME link A-B"),
        ("at 2ms cable leaf1-spine2 down", "write at TIME link A-B"),
    ],
)
def test_what_means_nothing_is_refused_with_what_would_do(line: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_failures(line, FABRIC)
    assert words in str(refused.value)


def test_file_and_command_line_are_one_schedule(tmp_path: Path) -> None:
    file = tmp_path / "failures.txt"
    file.write_text("at 2ms link leaf1-spine2 down\n")
    text = read_failures(file, ["at 1ms link leaf1-spine1 down"])
    assert [it.links[0] for it in parse_failures(text, FABRIC)] == ["leaf1-spine1", "leaf1-spine2"]
    assert read_failures(None, []) == ""
    with pytest.raises(UserError, match="--failures"):
        read_failures(tmp_path / "absent", [])
