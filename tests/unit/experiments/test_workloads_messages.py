"""What gloo sends: formulas of facts.md 4.3 in the large, and the exact arithmetic of segments in the small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads import messages
from experiments.workloads.messages import Message, wire_bytes
from experiments.workloads.operations import OPERATIONS, operation_named
from topologies.errors import UnknownName, UserError

MB = 1_000_000
HALF_A_PERCENT = 0.005


def sent(op: str, ranks: int, size_bytes: int) -> list[int]:
    """Per rank, without gloo's own headers."""
    totals = [0] * ranks
    for message in OPERATIONS[op].messages(ranks, size_bytes):
        totals[message.src] += message.size_bytes
    return totals


def received(op: str, ranks: int, size_bytes: int) -> list[int]:
    totals = [0] * ranks
    for message in OPERATIONS[op].messages(ranks, size_bytes):
        totals[message.dst] += message.size_bytes
    return totals


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
@pytest.mark.parametrize(
    ("op", "share"),
    [
        ("all_reduce", lambda n: 2 * (n - 1) / n),
        ("reduce_scatter", lambda n: 2 * (n - 1) / n),
        ("all_gather", lambda n: (n - 1) / n),
        ("all_to_all", lambda n: (n - 1) / n),
        ("send_recv", lambda n: 1.0),
    ],
)
def test_symmetric_operations_load_every_rank_alike(ranks: int, op: str, share: object) -> None:
    size = operation_named(op).size_bytes(48 * MB, ranks)
    for totals in (sent(op, ranks, size), received(op, ranks, size)):
        assert totals == pytest.approx([share(ranks) * size] * ranks, rel=HALF_A_PERCENT)  # type: ignore[operator]


@pytest.mark.parametrize(("ranks", "shares"), [(4, [2, 1, 0, 0]), (8, [3, 2, 1, 1, 0, 0, 0, 0])])
def test_broadcast_is_a_binomial_tree(ranks: int, shares: list[int]) -> None:
    assert sent("broadcast", ranks, MB) == [share * MB for share in shares]
    assert received("broadcast", ranks, MB) == [0, *[MB] * (ranks - 1)]


def test_gather_and_scatter_load_the_root_only() -> None:
    assert received("gather", 8, 8 * MB) == sent("scatter", 8, 8 * MB) == [7 * MB, *[0] * 7]
    assert sent("gather", 8, 8 * MB) == received("scatter", 8, 8 * MB) == [0, *[MB] * 7]


def test_reduce_matches_what_was_measured_for_eight_ranks() -> None:
    """facts.md 4.3: root .88 / 1.75 of S, others 1.0 / .88."""
    size = 8 * MB
    assert [round(total / size, 2) for total in sent("reduce", 8, size)] == [0.88, *[1.0] * 7]
    assert [round(total / size, 2) for total in received("reduce", 8, size)] == [1.75, *[0.88] * 7]


def test_reduce_of_more_than_2_mib_per_rank_sends_more_than_a_ring_needs() -> None:
    """64 segments of 1 MiB for 8 ranks: 62 are passed on where 56 would do (confirmed on the wire)."""
    size = 64 * 1024**2
    assert sent("reduce", 8, size)[0] == 62 * 1024**2


@given(st.sampled_from(sorted(OPERATIONS)), st.integers(1, 20), st.integers(0, 40 * MB))
def test_nothing_is_lost_or_negative_and_nobody_writes_to_himself(op: str, ranks: int, wanted: int) -> None:
    operation = operation_named(op)
    size = wanted // (4 * ranks) * 4 * ranks
    found = list(operation.messages(ranks, size))
    assert all(message.size_bytes >= 0 and message.src != message.dst for message in found)
    assert all(0 <= message.src < ranks and 0 <= message.dst < ranks for message in found)
    wire = wire_bytes(found, ranks=ranks)
    assert sum(it.tx for it in wire) == sum(it.rx for it in wire)


@given(st.integers(2, 16), st.integers(1, 5 * MB))
def test_an_all_reduce_passes_every_byte_on_2p_minus_2_times(ranks: int, elements: int) -> None:
    """Whatever the size: also where the last segments are cut or empty."""
    size = 4 * elements
    assert sum(sent("all_reduce", ranks, size)) == 2 * (ranks - 1) * size


def test_each_message_costs_three_headers() -> None:
    one, other = wire_bytes([Message(0, 1, 1000)], ranks=2)
    assert (one.tx, one.rx, other.tx, other.rx) == (1096, 48, 48, 1096)


def test_barrier_takes_log2_rounds() -> None:
    assert len(list(messages.barrier(8, 0))) == 3 * 8
    assert len(list(messages.barrier(9, 0))) == 4 * 9
    assert list(messages.barrier(1, 0)) == []


def test_sizes_are_rounded_to_what_divides() -> None:
    assert operation_named("all_gather").size_bytes(1003, 8) == 992
    assert operation_named("all_reduce").size_bytes(1003, 8) == 1000
    assert operation_named("barrier").size_bytes(1003, 8) == 0
    with pytest.raises(UserError, match="less than one float32 for each of 8 ranks"):
        operation_named("gather").size_bytes(28, 8)
    with pytest.raises(UnknownName, match="allreduce"):
        operation_named("allreduce")


@pytest.mark.parametrize(
    ("op", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("broadcast", 1.0), ("send_recv", 1.0), ("gather", 0.875)],
)
def test_bus_bandwidth_factors_are_those_of_nccl_tests(op: str, factor: float) -> None:
    assert operation_named(op).factor(8) == factor
