"""The pause tree from frames alone: levels, causes, first times, and how long each port was told to stop."""

from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads.pfc.pause_tree import Branch, pause_tree, paused_ns
from testbed.pause_tap import Pause
from testbed.port.pfc_frame import duration_ns
from topologies.registry import parse_topology

RATE = 100 * 10**9
LONGEST_NS = duration_ns(65535, RATE)
FABRIC = parse_topology("leaf_spine:leaves=2,hosts=2,spines=1")
"""h1, h2 under leaf1, h3, h4 under leaf2; leaf1-eth3 = spine1-eth1, leaf2-eth3 = spine1-eth2."""


def frame(at_ns: int, port: str, quanta: int = 65535) -> Pause:
    return Pause(at_ns=at_ns, port=port, index=3, quanta=quanta)


def tree(*frames: Pause, end_ns: int = 10**6) -> list[Branch]:
    return pause_tree(FABRIC, "leaf2-eth2", frames, end_ns=end_ns)


def test_from_the_congested_port_back_to_the_hosts() -> None:
    found = tree(
        frame(10, "leaf2-eth3"), frame(15, "leaf2-eth1"), frame(20, "spine1-eth1"), frame(30, "leaf1-eth1"),
        frame(100, "leaf2-eth3", 0), frame(110, "spine1-eth1", 0), frame(130, "leaf1-eth1", 0),
    )  # fmt: skip
    assert [(each.level, each.port, each.paused, each.cause) for each in found] == [
        (1, "leaf2-eth3", "spine1-eth2", "leaf2-eth2"),
        (1, "leaf2-eth1", "h3-eth0", "leaf2-eth2"),
        (2, "spine1-eth1", "leaf1-eth3", "spine1-eth2"),
        (3, "leaf1-eth1", "h1-eth0", "leaf1-eth3"),
    ]
    assert [each.first_ns for each in found] == [10, 15, 20, 30]
    assert [each.paused_ns for each in found] == [90, LONGEST_NS, 90, 100]


def test_a_pause_that_came_before_its_switch_was_paused_has_no_cause() -> None:
    found = tree(frame(10, "leaf2-eth3"), frame(5, "spine1-eth1"))
    assert [(each.port, each.level, each.cause) for each in found] == [
        ("spine1-eth1", 0, ""),
        ("leaf2-eth3", 1, "leaf2-eth2"),
    ]


def test_a_port_that_never_stopped_anybody_is_left_out() -> None:
    assert tree(frame(10, "leaf2-eth3", 0)) == []
    assert tree() == []


def test_refreshes_lengthen_a_pause_and_are_counted() -> None:
    half = LONGEST_NS // 2
    (found,) = tree(frame(0, "leaf2-eth3"), frame(half, "leaf2-eth3"), end_ns=10 * LONGEST_NS)
    assert (found.pauses, found.paused_ns) == (2, half + LONGEST_NS)


def test_a_pause_under_way_counts_up_to_the_end() -> None:
    (found,) = tree(frame(100, "leaf2-eth3"), end_ns=1100)
    assert found.paused_ns == 1000


@given(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from((0, 1, 100, 400))), max_size=20))
def test_paused_time_is_that_of_a_port_looked_at_every_nanosecond(steps: list[tuple[int, int]]) -> None:
    """Against the plainest model there is; at 512 Gb/s a quantum takes 1 ns."""
    steps.sort()
    frames, end_ns = [frame(at, "leaf2-eth3", quanta) for at, quanta in steps], 3200
    until, told, slow = 0, 0, 0
    for now in range(end_ns):
        while told < len(frames) and frames[told].at_ns <= now:
            until, told = frames[told].at_ns + frames[told].quanta, told + 1
        slow += now < until
    assert paused_ns(frames, rate_bps=512 * 10**9, end_ns=end_ns) == slow
