"""The language of traffic patterns: what each line means, and how a wrong one is refused."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads.patterns import MOST, Flow, parse
from topologies.errors import UserError

HOSTS = [f"h{number}" for number in range(1, 9)]


def flows(text: str, *, seed: int = 1, hosts: list[str] = HOSTS) -> list[tuple[int, str, str, int]]:
    return [(it.start_ns, it.source, it.destination, it.size_bytes) for it in parse(text, hosts, seed)]


def test_one_flow() -> None:
    assert parse("at 1ms h1 -> h2 10MB  # the elephant", HOSTS, 1) == (
        Flow(start_ns=1_000_000, source="h1", destination="h2", size_bytes=10_000_000, pattern="flow", line=1),
    )


@given(count=st.integers(2, 40), seed=st.integers(0, 2**32 - 1))
def test_a_permutation_gives_everybody_one_to_send_to_and_one_to_receive_from(count: int, seed: int) -> None:
    hosts = [f"h{number}" for number in range(count)]
    found = flows("at 0 permutation 1MB", seed=seed, hosts=hosts)
    assert sorted(source for _, source, _, _ in found) == sorted(hosts)
    assert sorted(target for _, _, target, _ in found) == sorted(hosts)
    assert all(source != target for _, source, target, _ in found)


def test_all_to_all_is_every_ordered_pair() -> None:
    found = {(source, target) for _, source, target, _ in flows("at 0 all_to_all 5 among h1,h3,h4")}
    assert found == {(one, two) for one in ("h1", "h3", "h4") for two in ("h1", "h3", "h4") if one != two}


def test_incast_draws_or_takes_its_senders() -> None:
    drawn = flows("at 0 incast 3 -> h2 1kB")
    assert len({source for _, source, _, _ in drawn} - {"h2"}) == 3
    assert {target for _, _, target, _ in drawn} == {"h2"}
    assert [source for _, source, _, _ in flows("at 0 incast h5,h3 -> h2 1kB")] == ["h5", "h3"]
    assert [source for _, source, _, _ in flows("at 0 incast all -> h2 1kB")] == ["h1", *HOSTS[2:]]


def test_a_shuffle_is_every_mapper_to_every_reducer_and_nobody_is_both() -> None:
    found = flows("at 0 shuffle h1,h2 -> h3,h4,h5 7")
    assert [(source, target) for _, source, target, _ in found] == [
        (source, target) for source in ("h1", "h2") for target in ("h3", "h4", "h5")
    ]
    drawn = flows("at 0 shuffle 4 -> 4 7")
    assert len(drawn) == 16
    assert {source for _, source, _, _ in drawn} | {target for _, _, target, _ in drawn} == set(HOSTS)


def test_repetitions_are_relative_nest_and_draw_anew() -> None:
    text = "repeat 2 every 10ms\n repeat 3 every 1ms\n  at 100us h1 -> h2 5\n end\n at 5ms permutation 6\nend"
    found = flows(text)
    starts = Counter(start // 1000 for start, _, _, size in found if size == 5)
    assert starts == Counter({100: 1, 1100: 1, 2100: 1, 10_100: 1, 11_100: 1, 12_100: 1})
    first, second = ([it[1:] for it in found if it[0] == start and it[3] == 6] for start in (5_000_000, 15_000_000))
    assert len(first) == len(second) == 8
    assert first != second


def test_flows_come_in_the_order_of_their_starts() -> None:
    assert [start for start, *_ in flows("at 3us h1 -> h2 1; at 1us h2 -> h3 1; at 2us h3 -> h4 1")] == [
        1000,
        2000,
        3000,
    ]


def test_the_seed_of_the_text_goes_before_that_of_the_run() -> None:
    lots = "at 0 permutation 1MB"
    assert flows(f"seed 7; {lots}", seed=1) == flows(lots, seed=7) != flows(lots, seed=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("at 0 h1 -> h9 1MB", "line 1: at 0 h1 -> h9 1MB: unknown host 'h9'; known: h1, h2"),
        ("# first\nat 0 h1 -> h1 1MB", "line 2: at 0 h1 -> h1 1MB: h1 cannot send to itself"),
        ("at 0 h1 h2 1MB", "unknown pattern 'h1'; known: HOST -> HOST SIZE, all_to_all, flow, incast"),
        ("at 0 h1 -> h2", "write it as `h1 -> h2 10MB`"),
        ("at 5 h1 -> h2 1MB", "'5' is not a delay"),
        ("at 0 h1 -> h2 1potato", "'1potato' is not a size"),
        ("at 0 h1 -> h2 0", "a flow has at least 1 byte"),
        ("at 0 incast 8 -> h1 1kB", "8 hosts: there are 7 to draw from"),
        ("at 0 incast h1,h2 -> h1 1kB", "h1 cannot send to itself"),
        ("at 0 incast h2,h2 -> h1 1kB", "h2,h2 names a host twice"),
        ("at 0 incast 2 -> h1,h2 1kB", "h1,h2 are 2 hosts where one is wanted"),
        ("at 0 permutation 1MB among h1", "needs at least two hosts"),
        ("at 0 permutation 1MB of h1,h2", "write it as `permutation 10MB` or `permutation 10MB among h1,h2,h3`"),
        ("go 0 permutation 1MB", "write `at TIME PATTERN ... SIZE`"),
        ("repeat 2 every 1ms; at 0 permutation 1MB", "line 1: this repeat has no end"),
        ("at 0 permutation 1MB; end", "line 2: end: there is no repeat for it to end"),
        ("repeat two every 1ms; end", "line 1: repeat two every 1ms: write `repeat N every TIME`"),
        ("repeat 0 every 1ms; end", "line 1: 0 repetitions are not in"),
        ("repeat 2 every 1; end", "line 1: '1' is not a delay"),
        ("at 0 permutation 1MB; seed 3", "line 2: seed 3: seed stands before all other lines"),
        ("# nothing", "a schedule needs at least one line that begins with `at`"),
        ("repeat 1000 every 1ms; at 0 permutation 1MB; end", f"line 2: more than {MOST} flows by here"),
    ],
)
def test_a_wrong_line_is_named_with_what_would_do(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, HOSTS, 1)
    assert words in str(caught.value)
