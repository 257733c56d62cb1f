"""Faults that users report of emulated networks (research note, P01 to P25): the fabric's share, each as a test.

P16 (discovery that floods LLDP) has none: the topology comes from the builder, and nothing here sends LLDP.
P21 (names beyond 15 characters) is refused by the topology before anything is made: tests/unit/topologies.
"""

import pytest

from tests.guest.fabric_boot import Gathered, gather

PAYLOAD_SHARE = 1448 / 1514
"""Of a full frame at an MTU of 1500 with TCP timestamps, as tc counts it."""


@pytest.fixture(scope="module")
def facts(guest_kernel: object) -> Gathered:
    return gather()


@pytest.mark.parametrize(
    ("what", "setting"),
    [("qdisc", "rate_bps"), ("sysctl", "tcp_sack"), ("neighbour", "10.0.1.2"), ("mtu", "mtu")],
)
def test_p01_what_is_not_in_force_is_an_error_that_names_it(facts: Gathered, what: str, setting: str) -> None:
    said = facts["tampered"][what]
    assert said is not None
    assert setting in said
    assert "h1" in said
    assert "asked for" in said


@pytest.mark.parametrize("rate", ["2G", "400G"])
def test_p02_rates_above_one_gigabit_are_honoured(facts: Gathered, rate: str) -> None:
    in_force = facts["rates"][rate]["in_force"]
    assert in_force["rate_bps"] == int(rate[:-1]) * 10**9


def test_p03_a_slow_link_behind_a_fast_one_is_filled(facts: Gathered) -> None:
    assert facts["bottleneck_fills"]["goodput_bps"] >= 0.85 * PAYLOAD_SHARE * 100e6


def test_p04_no_frame_is_longer_than_the_mtu(facts: Gathered) -> None:
    lengths = {int(length) for (length,) in facts.packets("ecn-off/h1-eth0.pcapng", "frame.len")}
    assert max(lengths) == 9014


def test_p05_the_delay_stage_drops_nothing(facts: Gathered) -> None:
    assert facts["delay_loses_nothing"] == {"received": 10_000, "imbalances": []}
    assert facts["burst"]["netem_dropped"] == 0


def test_p06_what_is_in_flight_is_not_in_the_queue(facts: Gathered) -> None:
    assert facts["delay_is_no_queue"] == {"received": 1000, "drops": 0}


@pytest.mark.parametrize("rate", ["10M", "100M", "1G"])
def test_p07_the_same_link_is_accepted_at_every_rate(facts: Gathered, rate: str) -> None:
    found = facts["rates"][rate]
    assert found["received"] == 100
    assert found["in_force"]["buffer_bytes"] == 200_000


def test_p08_ecn_is_asked_for_answered_and_on_the_data(facts: Gathered) -> None:
    fields = ("tcp.flags.syn", "tcp.flags.ack", "tcp.flags.ece", "tcp.flags.cwr", "ip.dsfield.ecn", "tcp.len")
    on = facts.packets("ecn-on/h1-eth0.pcapng", *fields)
    assert on[0][:4] == ("1", "0", "1", "1")
    assert on[1][:3] == ("1", "1", "1")
    assert {packet[4] for packet in on if packet[5] != "0"} == {"2"}
    off = facts.packets("ecn-off/h1-eth0.pcapng", *fields)
    assert off[0][:4] == ("1", "0", "0", "0")
    assert {packet[4] for packet in off} == {"0"}


def test_p09_socket_buffers_do_not_cap_a_flow(facts: Gathered) -> None:
    flow = facts["buffers_do_not_cap"]
    assert flow["goodput_bps"] >= 0.9 * 8948 / 9014 * 1e9
    assert flow["rwnd_limited_us"] < 0.05 * flow["busy_us"]
    assert flow["sndbuf_limited_us"] < 0.05 * flow["busy_us"]


def test_p10_tcp_connects_and_checksums_are_right(facts: Gathered) -> None:
    for start in facts["tcp_all_pairs"]:
        assert start["checksum_errors"] == 0


def test_p14_an_unused_fabric_is_silent(facts: Gathered) -> None:
    assert facts["silence"] == {"captured": 0, "counted": 0}


def test_p15_a_broadcast_is_flooded_nowhere(facts: Gathered) -> None:
    assert facts["no_storm"] == {"between_switches": 0}


def test_p19_the_first_probe_of_ten_cold_starts_succeeds(facts: Gathered) -> None:
    starts = facts["tcp_all_pairs"]
    assert len(starts) == 10
    assert [start["failures"] for start in starts] == [0] * 10
    assert {start["attempts"] for start in starts} == {12}


def test_p19_a_switch_that_cannot_be_made_is_named(facts: Gathered) -> None:
    refused = facts["refused_bridge"]
    assert "switch lo" in refused["error"]
    assert "File exists" in refused["error"]
    assert refused["seconds"] < 30
    assert refused["left"]["state"] == []


def test_p20_every_switch_has_its_own_datapath_id(facts: Gathered) -> None:
    ids = facts["datapath_ids"]
    assert {"p1e1", "p1a1", "p2e1", "c1"} <= ids.keys()
    assert len(set(ids.values())) == len(ids) == 20


@pytest.mark.parametrize("end", ["normal", "exception", "SIGTERM", "SIGINT", "after_kills"])
def test_p22_nothing_is_left_behind(facts: Gathered, end: str) -> None:
    assert facts["leaves_nothing"][end] == facts["leaves_nothing"]["before"]


def test_p22_the_run_after_a_kill_works_five_times_out_of_five(facts: Gathered) -> None:
    kills = facts["leaves_nothing"]["kills"]
    assert len(kills) == 5
    for after in kills:
        assert after["pairs"] == {"attempts": 2, "failures": 0, "checksum_errors": 0}
        assert len(after["state"]) == 1


def test_p25_a_packet_is_received_after_it_was_sent(facts: Gathered) -> None:
    sent = facts.packets("burst/h1-eth0.pcapng", "frame.time_epoch")
    arrived = facts.packets("burst/h2-eth0.pcapng", "frame.time_epoch")
    assert [float(b[0]) > float(a[0]) for a, b in zip(sent, arrived, strict=True)] == [True] * 11
