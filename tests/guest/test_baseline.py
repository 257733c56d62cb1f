"""The figures that all others rest on: round trips, one flow, 100 and 400 Gb/s, leaf to leaf."""

import pytest

from experiments.bounds import ETHERNET_HEADER_BYTES
from experiments.results import Results
from testbed.workers.counters import header_bytes
from tests.guest.conftest import RunExperiment

MTU = 9000
FLOW_BYTES = 1_000_000_000
ECHO_FRAME_BYTES = 64 + 14 + 20 + 8
"""The datagram of the experiment with its Ethernet, IPv4 and UDP headers."""
DELAY_US = 1.0


@pytest.fixture(scope="module", params=[100e9, 400e9], ids=["100G", "400G"])
def rate_bps(request: pytest.FixtureRequest) -> float:
    """Of every link of the fabric."""
    return float(request.param)


@pytest.fixture(scope="module")
def results(rate_bps: float, run_experiment: RunExperiment) -> Results:
    """One run answers for both figures at one rate."""
    fabric = f"leaf_spine:rate={rate_bps / 1e9:g}G,delay=1us,mtu={MTU}"
    return run_experiment("baseline", "--topology", fabric, "--set", f"flow={FLOW_BYTES}").succeeded().results


def test_a_round_trip_takes_what_its_links_take(results: Results, rate_bps: float) -> None:
    """Over n links: n x 2 x (1 us + serialisation), within 2%."""
    links = [echo["links"] for echo in results.sections["echoes"]]
    assert links == [2, 4], "one pair below a leaf, one across the spines"
    for echo in results.sections["echoes"]:
        expected_us = echo["links"] * 2 * (DELAY_US + ECHO_FRAME_BYTES * 8e6 / rate_bps)
        assert echo["rtt_us"] == pytest.approx(expected_us, rel=0.02)


def test_one_flow_fills_its_links(results: Results, rate_bps: float) -> None:
    """Goodput after slow start at least 0.97 of the payload share of the line rate, and never above that share.

    The receiver reads in blocks of 1 MiB, so that its clock is out by one block in 600 MB: 0.002.
    """
    frame_bytes = MTU + ETHERNET_HEADER_BYTES
    share = (frame_bytes - header_bytes(timestamps=True)) / frame_bytes
    goodput = results.sections["flow"]["goodput_gbps"] * 1e9
    assert 0.97 * share * rate_bps <= goodput <= 1.002 * share * rate_bps


def test_nothing_was_lost_or_sent_twice(results: Results) -> None:
    """The bytes on the sender's link are those of the flow with its headers, and not one drop in the fabric."""
    links = {link.name.partition(">")[0]: link for link in results.links}
    assert sum(link.drops for link in results.links) == 0
    segment_bytes = MTU + ETHERNET_HEADER_BYTES - header_bytes(timestamps=True)
    least_bytes = FLOW_BYTES + FLOW_BYTES // segment_bytes * header_bytes(timestamps=True)
    assert least_bytes <= links["h1-eth0"].tx_bytes <= 1.002 * least_bytes


def test_the_flow_is_in_the_table_of_paths(results: Results) -> None:
    """Both ways, from NIC to the far leaf; each way over one spine."""
    (there,) = [path for path in results.paths if path.bytes > FLOW_BYTES]
    (back,) = [path for path in results.paths if (path.dst, path.dport) == (there.src, there.sport)]
    assert there.path[0] == "h1-eth0"
    assert [name.split("-")[0] for name in there.path][1::2] == ["leaf1", "leaf4"]
    assert [name.split("-")[0] for name in back.path][1::2] == ["leaf4", "leaf1"]
    assert len(there.path) == len(back.path) == 4
