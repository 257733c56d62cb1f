"""Routing of tokens to experts: drawn by Zipf's law, limited by capacity, and the messages that follow."""

import pytest

from experiments.training.routing import Gate, all_to_all, arriving, between_ranks, layer_messages, leaving, transposed
from experiments.workloads.messages import Message, wire_bytes
from topologies.errors import UserError


def gate(**changes: object) -> Gate:
    defaults = {"experts": 8, "top_k": 2, "capacity_factor": 1.25, "skew": 0.0, "seed": 3}
    return Gate(**{**defaults, **changes})  # type: ignore[arg-type]


def test_capacity_is_the_factor_times_the_even_share() -> None:
    assert gate().capacity(64) == 20
    assert gate(capacity_factor=1.0, top_k=1).capacity(65) == 9
    assert gate(capacity_factor=None).capacity(64) is None


def test_biases_follow_zipf_in_the_order_of_popularity() -> None:
    from math import exp

    skewed = gate(skew=1.5)
    order, biases = skewed.popularity(), skewed.biases()
    assert sorted(order) == list(range(8))
    assert [exp(biases[expert]) for expert in order] == pytest.approx([place**-1.5 for place in range(1, 9)])
    assert gate().biases() == [0.0] * 8


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"top_k": 9}, "top_k=9"), ({"capacity_factor": -1.0}, "capacities=-1"), ({"skew": -1.0}, "skews")],
)
def test_gates_that_cannot_be_are_refused_with_the_setting(changes: dict[str, object], word: str) -> None:
    with pytest.raises(UserError, match=word):
        gate(**changes)


def test_tokens_between_ranks_and_what_arrives() -> None:
    table = [[1, 2, 3, 4], [5, 6, 7, 8]]
    counts = between_ranks(table)
    assert counts == [[3, 7], [11, 15]]
    assert transposed(counts) == [[3, 11], [7, 15]]
    assert arriving(counts) == [11, 7]
    assert leaving(counts) == [7, 11]


def test_uneven_all_to_all_has_a_message_for_every_pair_also_empty_ones() -> None:
    assert list(all_to_all([[1, 0], [2, 3]], 10)) == [Message(0, 1, 0), Message(1, 0, 20)]


def test_a_layer_sends_every_token_there_and_back_twice() -> None:
    table = [[4, 1, 0], [2, 2, 2], [0, 5, 1]]
    wire = wire_bytes(layer_messages(table, token_bytes=256), ranks=3)
    counts = between_ranks(table)
    headers, numbers = 5 * 2 * 144, 2 * 8
    for rank in range(3):
        tokens = 2 * (arriving(counts)[rank] + leaving(counts)[rank])
        assert wire[rank].tx == wire[rank].rx == headers + numbers + 256 * tokens
