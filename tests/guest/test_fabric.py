"""The fabric in the guest: how fast it is built, how exact its links are, and that it is what was asked for."""

from itertools import pairwise
from typing import Any

import pytest

from tests.guest.fabric_boot import REAL_CLOCK_FACTS, Gathered, gather

NIC_HOLDS_NS = 8000
"""The default interrupt moderation."""


@pytest.fixture(scope="module")
def facts(guest_kernel: object) -> Gathered:
    return gather()


@pytest.mark.parametrize(
    ("spec", "fact", "size", "most_s"),
    [("fat_tree:k=4", "built_k4", [20, 16, 48], 10), ("fat_tree:k=8", "built_k8", [80, 128, 384], 60)],
)
def test_a_fat_tree_is_up_in_time(facts: Gathered, spec: str, fact: str, size: list[int], most_s: float) -> None:
    assert facts[fact] == size
    assert facts.printed[f"END {spec}"] - facts.printed[f"BEGIN {spec}"] < most_s


def test_two_links_take_two_delays_and_two_serialisations_to_the_nanosecond(facts: Gathered) -> None:
    serialisation_ns = 142 * 8 // 100 + 1  # 100 B of payload at 100 Gb/s: 11.36 ns, which the port counts as 11
    assert facts["one_way"]["off"] == pytest.approx(2 * (1000 + serialisation_ns), abs=2)


def test_interrupt_moderation_adds_at_most_what_was_asked(facts: Gathered) -> None:
    late_ns = facts["one_way"]["8us"] - facts["one_way"]["off"]
    assert 0 < late_ns <= NIC_HOLDS_NS


def test_a_buffer_counts_bytes_and_not_packets(facts: Gathered) -> None:
    assert facts["burst"]["received"] == 100_000 // 9014
    assert facts["burst"]["dropped"] == 20 - 100_000 // 9014
    assert facts["buffer_counts_bytes"]["received"] == 600


@pytest.mark.parametrize("rate", ["10M", "100M", "1G", "2G", "10G", "100G", "400G"])
def test_a_link_serialises_at_its_rate_and_nothing_escapes_as_a_burst(facts: Gathered, rate: str) -> None:
    number, unit = float(rate[:-1]), {"M": 10**6, "G": 10**9}[rate[-1]]
    frame_ns = int(1514 * 8 * 10**9 // (number * unit))
    found = facts.packets(f"rate-{rate}/h2-eth0.pcapng", "frame.time_epoch")
    stamps = [_ns(second) for (second,) in found]
    gaps = [later - earlier for earlier, later in pairwise(stamps)]
    assert len(stamps) == 100
    assert set(gaps) == {frame_ns}


def _ns(seconds: str) -> int:
    whole, fraction = seconds.split(".")
    return int(whole) * 10**9 + int(fraction)


def test_books_balance_after_drops(facts: Gathered) -> None:
    burst = facts["burst"]
    assert burst["imbalances"] == []
    assert burst["sent"]["h1-eth0"] == burst["arrived"]["s1-eth1"] == 11
    assert burst["sent"]["s1-eth2"] == burst["arrived"]["h2-eth0"] == 11


def test_traffic_of_a_rail_leaves_by_its_nic(facts: Gathered) -> None:
    assert facts["links_of_several_nics"] == {
        "any to h2-eth0": ["h1-eth0"],
        "any to h2-eth1": ["h1-eth1"],
        "h1-eth0 to h2-eth0": ["h1-eth0"],
        "h1-eth0 to h2-eth1": ["h1-eth0"],
        "h1-eth1 to h2-eth0": ["h1-eth1"],
        "h1-eth1 to h2-eth1": ["h1-eth1"],
    }


def test_mininets_api_and_cli_work(facts: Gathered) -> None:
    _check_mininet(facts["mininet"])


def _check_mininet(mininet: dict[str, Any]) -> None:
    assert mininet["repr_starts_no_shell"]
    assert " 0% packet loss" in mininet["ping"]
    assert mininet["ping_all_lost"] == 0
    assert "alive" in mininet["after_interrupt"]
    assert "10.0.1.3/8" in mininet["popen"]
    assert mininet["pid"]
    assert "h1 h2 h3 s1" in mininet["cli"]
    assert " 0% packet loss" in mininet["cli"]


def test_a_link_goes_down_and_comes_back_with_everything_it_had(facts: Gathered) -> None:
    assert "100% packet loss" in facts["mininet"]["down"]
    assert not facts["mininet"]["is_up"]
    assert " 0% packet loss" in facts["mininet"]["up"]


def test_the_settings_are_in_force_as_other_programs_read_them(facts: Gathered) -> None:
    seen = facts["read_by_others"]
    root = seen["qdisc"][0]
    assert root["kind"] == "netem"
    assert root["options"]["rate"]["rate"] * 8 == 400 * 10**9
    assert "action drop" in seen["police"]
    assert "tcp_congestion_control = bbr" in seen["sysctls"]
    assert "tcp_rto_min_us = 5000" in seen["sysctls"]
    assert "67108864" in seen["sysctls"]
    assert "tcp-segmentation-offload: off" in seen["offloads"]
    assert "generic-segmentation-offload: off" in seen["offloads"]
    assert "generic-receive-offload: on" in seen["offloads"]
    assert "gso_max_segs 1 " in seen["link"]
    assert seen["in_force"]["nics"]["h1-eth0"]["gro_flush_timeout_ns"] == NIC_HOLDS_NS


def test_an_unknown_congestion_control_names_those_that_would_do(facts: Gathered) -> None:
    found = facts["unknown_congestion_control"]
    assert found["exit_code"] == 2
    assert "'foo'" in found["error"]
    assert "cubic" in found["error"]
    assert found["left"]["state"] == []


def test_the_real_clock_runs_the_same_code(guest_kernel: object) -> None:
    real = gather(*REAL_CLOCK_FACTS, time_travel=False)
    _check_mininet(real["mininet"])
    assert real["burst"]["faults"] == []
    assert "'foo'" in real["unknown_congestion_control"]["error"]
    stream = real["real_clock"]
    assert stream["in_force"]["rate_bps"] == 20_000_000
    assert stream["goodput_bps"] == pytest.approx(1448 / 1514 * 20e6, rel=0.05)
    assert stream["imbalances"] == []


def test_counters_are_served_while_the_fabric_is_there_and_not_otherwise(facts: Gathered) -> None:
    """To a process in the machine's namespace, which cannot see the fabric; what it gets is what ports counted."""
    (before, _), (during, page), (after, said) = facts["served"]["found"]
    assert (before, during, after) == (503, 200, 503)
    assert said.startswith("the fabric is not there yet, or no more")
    packets, size_bytes = facts["served"]["sent"]
    labels = '{interface="h1-eth0",peer="s1-eth1",class="all"}'
    assert f"fabric_port_sent_packets_total{labels} {packets}\n" in page
    assert f"fabric_port_sent_bytes_total{labels} {size_bytes}\n" in page
    assert packets >= 6
