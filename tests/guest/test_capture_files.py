"""Captures in the guest: complete, exact, readable by Wireshark's own tools, and equal when the runs are."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.guest.fabric_boot import Gathered, gather

DELAY_NS, FRAME_NS = 1000, 721
"""100 Gb/s, 1 us, 9,014 B."""


@pytest.fixture(scope="module")
def facts(guest_kernel: object) -> Gathered:
    return gather()


def _stamps(facts: Gathered, interface: str) -> list[int]:
    found = facts.packets(f"burst/{interface}.pcapng", "frame.time_epoch")
    return [int(stamp.replace(".", "")) for (stamp,) in found]


def test_every_packet_is_in_the_file_and_none_was_dropped(facts: Gathered) -> None:
    burst = facts["burst"]
    assert burst["faults"] == []
    for name, captured in burst["captured"].items():
        assert captured == {"packets": burst["sent"][name] + burst["arrived"][name], "dropped": 0}


def test_files_name_their_interface_and_keep_the_headers(facts: Gathered) -> None:
    fields = ("frame.interface_name", "frame.len", "frame.cap_len", "frame.packet_flags_direction")
    sent = facts.packets("burst/h1-eth0.pcapng", *fields)
    arrived = facts.packets("burst/s1-eth1.pcapng", *fields)
    assert set(sent) == {("h1-eth0", "9014", "128", "0x00000002")}
    assert set(arrived) == {("s1-eth1", "9014", "128", "0x00000001")}


def test_stamps_say_when_the_last_bit_passes_the_interface(facts: Gathered) -> None:
    left, at_switch = _stamps(facts, "h1-eth0"), _stamps(facts, "s1-eth1")
    left_switch, arrived = _stamps(facts, "s1-eth2"), _stamps(facts, "h2-eth0")
    assert {b - a for a, b in zip(left, at_switch, strict=True)} == {DELAY_NS}
    forwarded = {b - a for a, b in zip(at_switch, left_switch, strict=True)}
    assert forwarded <= {FRAME_NS, FRAME_NS + 1}  # the guest's timers are up to 1 ns late
    assert {b - a for a, b in zip(left_switch, arrived, strict=True)} == {DELAY_NS}
    assert {b - a for a, b in pairwise(left)} == {FRAME_NS}


def test_stamps_never_go_back_where_both_directions_share_a_file(facts: Gathered) -> None:
    stamps = [float(stamp) for (stamp,) in facts.packets("ecn-off/h1-eth0.pcapng", "frame.time_epoch")]
    assert len(stamps) > 100
    assert stamps == sorted(stamps)


def test_the_kernel_keeps_what_was_selected_and_the_writer_what_is_in_the_window(facts: Gathered) -> None:
    """Six of twenty-five: DSCP 8 at 1.5 and 2.5 ms, told apart by their sizes."""
    assert facts["selected"] == {"captured": {"packets": 6, "dropped": 0}, "faults": []}
    fields = ("ip.dsfield.dscp", "udp.length", "frame.cap_len")
    found = facts.packets("selected/h1-eth0.pcapng", *fields)
    assert found == [("8", str(8 + 101), "64")] * 3 + [("8", str(8 + 102), "64")] * 3


def test_equal_runs_give_equal_files(guest_kernel: object) -> None:
    first, second = (gather("burst", "ecn", attempt=attempt) for attempt in (1, 2))
    files = sorted(path.relative_to(first.folder) for path in first.folder.glob("*/*.pcapng"))
    assert Path("ecn-on/h1-eth0.pcapng") in files
    assert [path for path in files if (first.folder / path).read_bytes() != (second.folder / path).read_bytes()] == []
