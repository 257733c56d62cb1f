"""Where a step's time went: spans against brute force, and records made by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.training.accounting import Span, account, common, length, stragglers, summary, union, without
from experiments.training.timeline import Interval, Kind, StepRecord

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def instants(spans: list[Span]) -> set[int]:
    """Half-open spans as the whole numbers in them."""
    return {instant for start, end in spans for instant in range(start, end)}


def interval(kind: Kind, name: str, start_ns: int, end_ns: int, size_bytes: int = 0) -> Interval:
    return Interval(kind=kind, name=name, start_ns=start_ns, end_ns=end_ns, size_bytes=size_bytes)


def compute(start_ns: int, end_ns: int) -> Interval:
    return interval(Kind.COMPUTE, "layer", start_ns, end_ns)


def sent(name: str, start_ns: int, end_ns: int, size_bytes: int = 8) -> Interval:
    return interval(Kind.COMMUNICATION, name, start_ns, end_ns, size_bytes)


def step(end_ns: int, *intervals: Interval, number: int = 0) -> StepRecord:
    return StepRecord(number=number, start_ns=0, end_ns=end_ns, intervals=intervals)


@given(SPANS)
def test_a_union_holds_the_same_instants_disjoint_and_in_order(spans: list[Span]) -> None:
    found = union(spans)
    assert instants(found) == instants(spans)
    assert all(one[1] < other[0] for one, other in pairwise(found))
    assert length(found) == len(instants(spans))


@given(SPANS, SPANS)
def test_common_and_without_are_those_of_sets(one: list[Span], other: list[Span]) -> None:
    left, right = union(one), union(other)
    assert instants(common(left, right)) == instants(one) & instants(other)
    assert instants(without(left, right)) == instants(one) - instants(other)
    assert length(common(left, right)) + length(without(left, right)) == length(left)


def test_communication_is_hidden_waited_for_or_the_networks() -> None:
    """Rank 0 computes until 40 and sends from 30; rank 1 begins at 60: 10 hidden, 20 waiting, 30 network, 10 idle."""
    early = step(100, compute(0, 40), sent("bucket", 30, 90))
    late = step(100, compute(0, 60), sent("bucket", 60, 90))
    first, second = account([[early], [late]])
    assert (first.compute_ns, first.overlapped_ns, first.waiting_ns, first.network_ns, first.idle_ns) == (
        40,
        10,
        20,
        30,
        10,
    )
    assert (second.compute_ns, second.overlapped_ns, second.waiting_ns, second.network_ns, second.idle_ns) == (
        60,
        0,
        0,
        30,
        10,
    )
    assert first.halting == pytest.approx(0.5)
    assert first.as_dict()["waiting_us"] == pytest.approx(0.02)


def test_time_is_the_networks_when_one_of_several_collectives_has_been_begun_by_all() -> None:
    mine = step(100, sent("a", 0, 50), sent("b", 10, 100))
    theirs = step(100, sent("a", 0, 50), sent("b", 70, 100))
    first = account([[mine], [theirs]])[0]
    assert (first.waiting_ns, first.network_ns, first.sent_bytes) == (20, 80, 16)


@given(st.lists(st.tuples(st.sampled_from(list(Kind)), st.integers(0, 50), st.integers(0, 50)), max_size=6))
def test_the_parts_of_a_step_add_up(drawn: list[tuple[Kind, int, int]]) -> None:
    intervals = [interval(kind, str(at), min(a, b), max(a, b)) for at, (kind, a, b) in enumerate(drawn)]
    found = account([[step(50, *intervals)]])[0]
    assert found.compute_ns + found.exposed_ns + found.idle_ns == found.step_ns
    assert found.waiting_ns == 0


def test_the_last_to_begin_is_the_straggler_and_a_tie_names_nobody() -> None:
    records = [
        [step(9, sent("a", 0, 5), sent("b", 5, 9)), step(9, sent("a", 0, 5))],
        [step(9, sent("a", 2, 5), sent("b", 5, 9)), step(9, sent("a", 1, 5))],
        [step(9, sent("a", 1, 5), sent("b", 5, 9)), step(9, sent("a", 3, 5))],
    ]
    assert stragglers(records) == {1: 1, 2: 1}


def test_a_summary_leaves_warm_up_out() -> None:
    records = [[step(1000, number=-1), step(100, compute(0, 50), sent("a", 50, 75)), step(300, compute(0, 300))]]
    (row,) = summary(account(records))
    assert (row["steps"], row["step_us"], row["compute_us"]) == (2, 0.2, 0.175)
    assert row["halting"] == round(25 / 400, 4)
