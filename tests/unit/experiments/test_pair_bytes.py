"""Bytes between pairs of hosts: what gloo's messages must add up to."""

from experiments.pair_bytes import expected
from experiments.workloads import messages
from experiments.workloads.messages import Message, wire_bytes


def test_a_message_sends_its_header_forward_and_one_back() -> None:
    assert expected([Message(2, 5, 1000)]) == {(2, 5): 1096, (5, 2): 48}


def test_pairs_add_up_to_what_each_rank_sends_and_receives() -> None:
    sent = [*messages.all_reduce(4, 100_000), *messages.all_to_all(4, 4096)]
    pairs = expected(sent)
    for rank, wire in enumerate(wire_bytes(sent, ranks=4)):
        assert sum(count for (source, _), count in pairs.items() if source == rank) == wire.tx
        assert sum(count for (_, destination), count in pairs.items() if destination == rank) == wire.rx
