"""Each bound holds on a good run and breaks, with the right sentence, on the smallest bad one."""

from typing import Any

import pytest

from experiments.bounds import (
    SHOWN,
    audited,
    conserved,
    correct,
    line_rate_bps,
    verdict,
    within_line_rate,
    within_utilisation,
)
from experiments.results import LinkUse, Row
from topologies.registry import parse_topology

MTU, HEADERS = 9000, 66
LIMIT_NS = 16_000_000 * 8 * 1.75 / 100 * 9014 / 8948
"""Of 16 MB over 8 ranks at the payload share of 100 Gb/s."""


def row(*, time_ns: float = 2_600_000, wrong: int = 0) -> Row:
    return Row.of(
        op="all_reduce", size_bytes=16_000_000, ranks=8, iteration=0, time_ns=int(time_ns), factor=1.75, wrong=wrong
    )


def link(**changes: Any) -> LinkUse:
    values: dict[str, Any] = {
        "name": "h1-eth0>s1-eth1",
        "rate_bps": 100 * 10**9,
        "tx_bytes": 1,
        "tx_packets": 10,
        "rx_packets": 10,
        "drops": 0,
        "utilisation": 0.5,
    }
    return LinkUse(**{**values, **changes})


def entry(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "op": "gather",
        "bytes": 200_000,
        "iteration": 1,
        "header_bytes_per_packet": HEADERS,
        "expected_tx_bytes": [0, 100_000],
        "tx_payload_bytes": [0, 100_000],
        "expected_rx_bytes": [100_000, 0],
        "rx_payload_bytes": [100_000, 0],
        "tx_packets": [10, 12],
        "rx_packets": [12, 10],
        "retransmitted_segments": [0, 0],
        "timeouts": [0, 0],
    }
    return {**values, **changes}


def test_a_good_run_breaks_nothing() -> None:
    topology = parse_topology("star:hosts=8")
    assert verdict(topology=topology, rows=[row()], links=[link()], sections={"audit": [entry()]}) == ()


def test_every_broken_bound_is_named_at_once() -> None:
    reasons = verdict(
        topology=parse_topology("star:hosts=8"),
        rows=[row(time_ns=1_000_000, wrong=3)],
        links=[link(rx_packets=9, utilisation=1.2)],
        sections={"audit": [entry(tx_payload_bytes=[0, 90_000])]},
    )
    assert len(reasons) == 5


def test_wrong_elements_are_counted_in_the_sentence() -> None:
    assert correct([row()]) == []
    assert correct([row(wrong=3)]) == ["all_reduce of 16000000 B, iteration 0: 3 wrong elements"]


def test_busbw_may_reach_the_payload_share_of_the_line_rate_and_no_more() -> None:
    def broken(time_ns: float) -> list[str]:
        return within_line_rate([row(time_ns=time_ns)], line_rate_bps=100 * 10**9, mtu=MTU, header_bytes=HEADERS)

    assert broken(LIMIT_NS * 1.0001) == []
    assert "busbw 12.4" in broken(LIMIT_NS * 0.999)[0]


def test_packets_may_not_vanish_on_a_cable_but_drops_in_a_queue_are_counted_before() -> None:
    assert conserved([link(drops=5)]) == []
    assert conserved([link(rx_packets=9)]) == ["link h1-eth0>s1-eth1: 10 packets left and 9 arrived"]


def test_no_link_carries_more_than_its_rate() -> None:
    assert within_utilisation([link(utilisation=1.005)]) == []
    assert within_utilisation([link(utilisation=1.02)]) == ["link h1-eth0>s1-eth1: 1.020 of its rate"]


@pytest.mark.parametrize(
    ("change", "breaks"),
    [
        ({}, False),
        ({"tx_payload_bytes": [0, 98_100]}, False),
        ({"tx_payload_bytes": [0, 97_900]}, True),
        ({"tx_payload_bytes": [0, 102_000 + 12 * 28]}, False),
        ({"tx_payload_bytes": [0, 102_400]}, True),
        ({"tx_payload_bytes": [0, 110_000], "retransmitted_segments": [0, 1]}, False),
        ({"rx_payload_bytes": [110_000, 0], "retransmitted_segments": [0, 1]}, False),
        ({"tx_payload_bytes": [0, 122_000], "retransmitted_segments": [0, 1]}, True),
        ({"rx_payload_bytes": [0, 0]}, True),
        ({"tx_payload_bytes": [281, 100_000]}, True),
    ],
)
def test_the_wire_carries_what_the_collective_needs(change: dict[str, Any], breaks: bool) -> None:
    found = audited([entry(**change)], mtu=MTU)
    assert bool(found) == breaks
    assert all("gather of 200000 B, iteration 1, " in sentence for sentence in found)


def test_many_broken_cases_are_summed_up() -> None:
    found = correct([row(wrong=1)] * (SHOWN + 3))
    assert len(found) == SHOWN + 1
    assert found[-1] == "and 3 more like it"


def test_the_line_rate_of_a_host_is_that_of_all_its_nics() -> None:
    assert line_rate_bps(parse_topology("star:hosts=2,rate=25G")) == 25 * 10**9
    assert line_rate_bps(parse_topology("rail:hosts=2,rails=4,rate=100G")) == 400 * 10**9
