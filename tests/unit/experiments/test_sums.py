"""Samples and captures are held to the ports' counters."""

from dataclasses import replace

from experiments.sums import COUNTED, SHOWN, sums_faults
from testbed.capture import Captured
from testbed.counters import Counters
from testbed.port.interface import PortCounters
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=2")
IDLE = Counters(
    tx_packets=0,
    tx_bytes=0,
    rx_packets=0,
    rx_bytes=0,
    tx_dropped=0,
    rx_dropped=0,
    port=PortCounters(sent_packets=0, sent_bytes=0, dropped_packets=0, backlog_packets=0, backlog_bytes=0),
)
BUSY = replace(IDLE, tx_packets=7, port=replace(IDLE.port, sent_packets=7, sent_bytes=700, marked_packets=3))
PORTS = [end.name for end in STAR.interfaces()]
BEFORE = dict.fromkeys(PORTS, IDLE)
AFTER = {**BEFORE, "s1-eth1": BUSY, "h1-eth0": replace(BUSY, tx_packets=5)}
SAMPLED = {**dict.fromkeys(COUNTED, 0), "sent_bytes": 700, "sent_packets": 7, "marked_packets": 3}


def check(sampled: dict[str, dict[str, int]] | None = None, **captured: int) -> list[str]:
    files = {name.replace("_", "-"): Captured(packets=count, dropped=0) for name, count in captured.items()}
    return sums_faults(BEFORE, AFTER, sampled=sampled, captured=files, topology=STAR)


def test_records_that_agree_are_no_fault() -> None:
    assert check({"s1-eth1": SAMPLED}, s1_eth1=12, h1_eth0=12, s1_eth2=0) == []
    assert check() == []


def test_a_sum_of_samples_that_differs_is_named_with_port_and_quantity() -> None:
    assert check({"s1-eth1": {**SAMPLED, "marked_packets": 2}}) == [
        "s1-eth1: samples add up to 2 marked_packets, the port counted 3"
    ]


def test_a_packet_that_a_capture_has_not_is_missed() -> None:
    assert check(h1_eth0=11) == ["h1-eth0: its capture has 11 packets, 12 passed"]


def test_not_everything_is_said() -> None:
    said = check({name: dict.fromkeys(COUNTED, 9) for name in PORTS})
    assert len(said) == SHOWN + 1
    assert said[-1] == f"and {len(PORTS) * len(COUNTED) - SHOWN} more sums like these"
