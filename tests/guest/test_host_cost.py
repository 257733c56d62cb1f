"""The cost of the hosts' software: exact latency per message, and the slower of software and link per byte."""

import pytest

from testbed.workers.counters import header_bytes
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

MESSAGE_US, FEED_GBPS = 100.0, 40.0
LINKS, DELAY_US, FRAME_BYTES = 2, 1.0, 106
"""Of the echo: its path, and its frame (64 B of datagram)."""


@pytest.fixture(scope="module")
def costly(run_experiment: RunExperiment) -> Run:
    """Two hosts at 100 Gb/s; 100 us a message, 200 us a megabyte."""
    return run_experiment(
        "baseline",
        *("--topology", "star:hosts=2", "--set", "flow=200M"),
        *("--set", f"host.message_cost={MESSAGE_US:g}us", "--set", "host.byte_cost=200us"),
    ).succeeded()


def test_a_message_and_its_answer_pay_once_each(costly: Run) -> None:
    """To 10 ns: the links, serialised at the software's rate at the host and the link's at the switch; two costs."""
    once_us = LINKS * DELAY_US + FRAME_BYTES * 8e-3 * (1 / FEED_GBPS + 1 / 100)
    for echo in costly.results.sections["echoes"]:
        assert echo["rtt_us"] == pytest.approx(2 * (once_us + MESSAGE_US), abs=0.01)


def test_bytes_leave_at_the_softwares_rate(costly: Run) -> None:
    """A flow of many packets pays the message's cost once: it still fills what the software feeds."""
    share = (9014 - header_bytes(timestamps=True)) / 9014
    assert costly.results.sections["flow"]["goodput_gbps"] == pytest.approx(FEED_GBPS * share, rel=0.005)


def test_it_is_said_and_in_force(costly: Run) -> None:
    ports = costly.manifest["in_force"]["ports"]
    assert ports["h1-eth0"]["delay_ns"] == 101_000
    assert ports["h1-eth0"]["rate_bps"] == 40 * 10**9
    assert ports["s1-eth1"]["delay_ns"] == 1000
    assert "hosts' software: 100us per message, 200us per MB" in costly.manifest["modelled"]
