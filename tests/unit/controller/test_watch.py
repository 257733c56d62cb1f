"""Reading what netlink says about traffic control that was deleted."""

from struct import pack

import pytest

from controller.selector.watch import removed

DELQDISC, NEWQDISC, DELTFILTER, NEWLINK = 37, 36, 45, 16
CLSACT, INGRESS, EGRESS, ROOT = 0xFFFFFFF1, 0xFFFFFFF2, 0xFFFFFFF3, 0xFFFFFFFF


def message(kind: int, index: int, parent: int, attributes: bytes = b"") -> bytes:
    body = pack("=B3xiIII", 0, index, 0, parent, 0) + attributes
    return pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body + bytes(-len(body) % 4)


@pytest.mark.parametrize(
    ("kind", "parent", "ours"),
    [
        (DELQDISC, CLSACT, True),
        (DELTFILTER, INGRESS, True),
        (DELTFILTER, EGRESS, False),
        (DELQDISC, ROOT, False),
        (NEWQDISC, CLSACT, False),
        (NEWLINK, CLSACT, False),
    ],
)
def test_only_what_takes_our_filter_away_counts(kind: int, parent: int, ours: bool) -> None:
    assert removed(message(kind, 7, parent)) == ({7} if ours else set())


def test_several_messages_in_one_packet_are_all_read() -> None:
    stream = message(DELQDISC, 1, CLSACT, b"odd") + message(NEWLINK, 2, 0) + message(DELTFILTER, 3, INGRESS)
    assert removed(stream) == {1, 3}


@pytest.mark.parametrize("stream", [b"", bytes(15), bytes(16), message(DELQDISC, 1, CLSACT)[:20]])
def test_a_torn_packet_is_no_trouble(stream: bytes) -> None:
    assert removed(stream) == set()
