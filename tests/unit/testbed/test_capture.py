"""Capture files without a kernel: blocks that tshark reads, and packets in the order in which they passed."""

import io
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from testbed.capture import HOLD_NS, Capture, Captured, Tap, Window, _File
from testbed.packet_ring import Packet, PacketRing, RingReader
from testbed.pcapng import Direction, InterfaceBlock, file_head, file_tail, packet

FRAME = bytes.fromhex("02000a00010202000a0001010800") + bytes(50)
BLOCK = InterfaceBlock(name="h1-eth0", description="h1-eth0 to s1-eth1", speed_bps=10**11, snap_bytes=128)


def _tap(device: str) -> Tap:
    return Tap(interface="h1-eth0", description="", rate_bps=10**11, device=device, namespace=None, delay_ns=1000)


class _Reader:
    def __init__(self, *packets: Packet) -> None:
        self._packets = list(packets)

    def read(self) -> Iterator[Packet]:
        packets, self._packets = self._packets, []
        yield from packets


def _file(device: str, *packets: Packet) -> tuple[_File, io.BytesIO]:
    stream = io.BytesIO()
    return _File(
        tap=_tap(device), ring=cast(PacketRing, None), stream=stream, reader=cast(RingReader, _Reader(*packets))
    ), stream


def _stamps(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        _kind, length, _interface, high, low = struct.unpack_from("<IIIII", data, at)
        found.append(high << 32 | low)
        at += length
    return found


def test_tshark_reads_a_file_without_complaint(tmp_path: Path) -> None:
    file = tmp_path / "one.pcapng"
    stamp = 1_767_225_611_000_055_739
    file.write_bytes(
        file_head(BLOCK)
        + packet(stamp, FRAME, 9014, Direction.OUTBOUND)
        + packet(stamp + 1, FRAME + b"abc", 9014, Direction.INBOUND)
        + file_tail(stamp_ns=stamp + 1, received=2, dropped=0)
    )
    fields = ("frame.time_epoch", "frame.len", "frame.cap_len", "frame.interface_name", "frame.packet_flags_direction")
    argv = ["tshark", "-n", "-r", str(file), "-T", "fields", *(word for field in fields for word in ("-e", field))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if not line.startswith("Running as user")] == []
    assert done.stdout.splitlines() == [
        "1767225611.000055739\t9014\t64\th1-eth0\t0x00000002",
        "1767225611.000055740\t9014\t67\th1-eth0\t0x00000001",
    ]


def test_a_departure_is_stamped_before_its_way_through_the_cable() -> None:
    """Tapped at the switch end: arriving there at 5,000 ns means having left the NIC at 4,000."""
    file, stream = _file("s1-eth1", (5000, False, 64, FRAME))
    file.read()
    file._write(file.last_ns)
    assert _stamps(stream.getvalue()) == [4000]


def test_packets_are_sorted_across_directions() -> None:
    """The smallest failing input: an arrival at 4,500, then a departure that the tap saw at 5,000: it left at 4,000."""
    file, stream = _file("s1-eth1", (4500, True, 64, FRAME), (5000, False, 64, FRAME))
    file.read()
    file._write(file.last_ns)
    assert _stamps(stream.getvalue()) == [4000, 4500]


def test_nothing_is_written_that_could_still_be_overtaken() -> None:
    file, stream = _file("s1-eth1", (4500, True, 64, FRAME), (5000, True, 64, FRAME))
    file.read()
    assert _stamps(stream.getvalue()) == []
    file._write(file.last_ns)
    assert _stamps(stream.getvalue()) == [4500, 5000]


def test_a_file_is_complete_when_every_packet_is_accounted_for() -> None:
    file, _stream = _file("s1-eth1", (1, True, 64, FRAME))
    file.seen, file.dropped = 3, 2
    assert not file.complete
    file.read()
    assert file.complete


class _Ring:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_a_window_holds_stamps_and_not_arrivals(tmp_path: Path) -> None:
    """Departures seen at 3,000 and 5,000 ns left at 2,000 and 4,000: the first is in [2,000, 4,000), the second not."""
    arrived = [(at_ns, False, 64, FRAME) for at_ns in (2999, 3000, 4999, 5000)]
    file, stream = _file("s1-eth1", *arrived)
    file.ring = cast(PacketRing, ring := _Ring())
    file.place(Window(begin_ns=1000, end_ns=3000).placed(1000))
    file.read()
    file._write(file.last_ns)
    assert _stamps(stream.getvalue()) == [2000, 3999]
    assert (file.packets, file.written) == (4, 2), "all are accounted for, two are in the file"
    assert ring.stopped, "behind the window nothing is taken from the wire"


def test_packets_wait_for_a_window_whose_place_is_not_known() -> None:
    """At most a second: what is older than that cannot be within."""
    file, stream = _file(
        "s1-eth1", (500, True, 64, FRAME), (HOLD_NS, True, 64, FRAME), (HOLD_NS + 600, True, 64, FRAME)
    )
    file.window = None
    file.read()
    assert _stamps(stream.getvalue()) == []
    assert len(file.pending) == 2
    file.place(Window().placed(HOLD_NS + 1))
    file._write(file.last_ns)
    assert _stamps(stream.getvalue()) == [HOLD_NS + 600]


def test_a_window_that_never_came_is_a_fault(tmp_path: Path) -> None:
    window = Window(begin_ns=2_000_000)
    capture = Capture(interfaces=[_tap("s1-eth1")], directory=tmp_path, window=window)
    assert capture.faults() == ["the captures' window never began: no rank began an operation"]
    capture._start_ns, capture._end_ns = 5_000_000, 6_500_000
    assert capture.faults() == ["the captures' window begins at 2 ms; the run ended at 1.5"]
    capture._end_ns = 7_000_000
    assert capture.faults() == []


def test_dropped_packets_are_a_fault(tmp_path: Path) -> None:
    with Capture(interfaces=[], directory=tmp_path / "none") as capture:
        pass
    assert capture.faults() == []
    assert not (tmp_path / "none").exists()
    capture._captured = {"h1-eth0": Captured(packets=10, dropped=1)}
    assert "h1-eth0" in capture.faults()[0]


@pytest.mark.parametrize("size", range(60, 68))
def test_blocks_are_padded(size: int) -> None:
    block = packet(0, bytes(size), size, Direction.INBOUND)
    assert len(block) % 4 == 0
    assert struct.unpack_from("<I", block, 4)[0] == struct.unpack_from("<I", block, len(block) - 4)[0] == len(block)
