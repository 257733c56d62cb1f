"""When the books of a link balance."""

from dataclasses import replace

from testbed.counters import Counters, Direction, InterfaceCounters, imbalances, join
from testbed.port.interface import PortCounters

PORT = PortCounters(sent_packets=10, sent_bytes=10_000, dropped_packets=3, backlog_packets=0, backlog_bytes=0)
IDLE = PortCounters(sent_packets=0, sent_bytes=0, dropped_packets=0, backlog_packets=0, backlog_bytes=0)
SENDER = Counters(tx_packets=10, tx_bytes=10_000, rx_packets=0, rx_bytes=0, tx_dropped=0, rx_dropped=0, port=PORT)
RECEIVER = Counters(tx_packets=0, tx_bytes=0, rx_packets=10, rx_bytes=10_000, tx_dropped=0, rx_dropped=0, port=IDLE)
LINK = [Direction(name="h1-s1", sender="h1-eth0", receiver="s1-eth1")]


def _check(sender: Counters = SENDER, receiver: Counters = RECEIVER) -> list[str]:
    return imbalances(LINK, {"h1-eth0": sender, "s1-eth1": receiver})


def test_what_was_sent_and_not_dropped_arrived() -> None:
    assert _check() == []


def test_a_lost_packet_is_named_with_its_link() -> None:
    (said,) = _check(receiver=replace(RECEIVER, rx_packets=9))
    assert said.startswith("h1-s1 (h1-eth0 to s1-eth1):")
    assert "9 arrived" in said


def test_lost_bytes_are_found_where_packets_agree() -> None:
    assert "9999 B arrived" in _check(receiver=replace(RECEIVER, rx_bytes=9_999))[0]


def test_packets_under_way_are_not_a_fault_but_said() -> None:
    assert "still queued" in _check(sender=replace(SENDER, port=replace(PORT, backlog_packets=1)))[0]


def test_bytes_include_the_ethernet_header_whoever_counted() -> None:
    """The smallest failing input: one full frame to a NIC with GRO on, which counts 9,000 B of 9,014."""
    sent = InterfaceCounters(rx_packets=0, tx_packets=1, rx_bytes=0, tx_bytes=9_000, rx_dropped=0, tx_dropped=0)
    arrived = InterfaceCounters(rx_packets=1, tx_packets=0, rx_bytes=9_000, tx_bytes=0, rx_dropped=0, tx_dropped=0)
    one = replace(PORT, sent_packets=1, sent_bytes=9_014)
    sender, receiver = join(sent, one, polls=False, peer_polls=True), join(arrived, IDLE, polls=True, peer_polls=False)
    assert sender.tx_bytes == receiver.rx_bytes == 9_014
    assert _check(sender, receiver) == []


def test_what_a_host_drops_while_its_cable_is_unplugged_never_reached_the_port() -> None:
    """The smallest failing input: five packets that the stack dropped were taken for lost behind the port."""
    unplugged = replace(SENDER, tx_dropped=5)
    assert _check(unplugged) == []
    assert (unplugged.refused_packets, unplugged.unplugged_packets) == (0, 5)


def test_what_the_cable_refused_left_the_port() -> None:
    refused = replace(SENDER, tx_packets=8, tx_dropped=3)
    assert _check(refused, replace(RECEIVER, rx_packets=8)) == []
    assert (refused.refused_packets, refused.unplugged_packets) == (2, 1)


def test_more_on_the_cable_than_the_port_released_is_a_fault() -> None:
    assert (
        "10 were dropped" in _check(replace(SENDER, tx_packets=11, tx_dropped=10), replace(RECEIVER, rx_packets=11))[0]
    )
