"""Tables of captures: files made by our own writer, packets made by hand."""

import struct
from pathlib import Path

import pytest

from experiments.pcap_reading import frames
from experiments.pcap_tables import flow_rows, port_rows, read_traffic, text
from experiments.run_folder import RunFolder, write_json
from testbed.pcapng import Direction, InterfaceBlock, file_head, file_tail, packet
from topologies.errors import UserError
from topologies.json_form import to_json
from topologies.registry import parse_topology

IN, OUT = Direction.INBOUND, Direction.OUTBOUND
STAR = parse_topology("star:hosts=2")
FLOW = "10.0.1.1:5000>10.0.1.2:6000"


def segment(sequence: int, size: int, *, ecn: int = 2) -> bytes:
    """Ethernet, IPv4 and TCP headers; the payload was not kept."""
    total = 20 + 20 + size
    addresses = bytes([10, 0, 1, 1, 10, 0, 1, 2])
    ip = struct.pack("!BBHHHBBH", 0x45, ecn, total, 0, 0, 64, 6, 0) + addresses
    tcp = struct.pack("!HHIIBBHHH", 5000, 6000, sequence % 2**32, 0, 5 << 4, 16, 0, 0, 0)
    return bytes(12) + b"\x08\x00" + ip + tcp


def pfc(mask: int, *quanta: int) -> bytes:
    times = [*quanta, *[0] * (8 - len(quanta))]
    return bytes(12) + b"\x88\x08\x01\x01" + struct.pack("!H8H", mask, *times) + bytes(26)


def capture(folder: Path, *packets: tuple[bytes, Direction]) -> RunFolder:
    (folder / "pcap").mkdir()
    head = file_head(InterfaceBlock(name="h1-eth0", description="", speed_bps=10**9, snap_bytes=128))
    blocks = [packet(1000 * at, data, len(data) + 100, way) for at, (data, way) in enumerate(packets)]
    tail = file_tail(stamp_ns=0, received=len(packets), dropped=0)
    (folder / "pcap" / "h1-eth0.pcapng").write_bytes(head + b"".join(blocks) + tail)
    write_json(RunFolder(folder).topology, to_json(STAR))
    return RunFolder(folder)


def test_retransmissions_and_reordering_are_told_apart(tmp_path: Path) -> None:
    """100 is lost to us at first and comes late; 200 is sent twice."""
    begins = (0, 200, 100, 300, 200)
    (row,) = flow_rows(read_traffic(capture(tmp_path, *((segment(begin, 100), OUT) for begin in begins))).ports)
    assert (row["flow"], row["packets"], row["again"], row["reordered"]) == (FLOW, 5, 1, 1)


def test_sequence_numbers_wrap(tmp_path: Path) -> None:
    begins = range(2**32 - 250, 2**32 + 250, 100)
    (row,) = flow_rows(read_traffic(capture(tmp_path, *((segment(begin, 100), OUT) for begin in begins))).ports)
    assert (row["packets"], row["again"], row["reordered"]) == (5, 0, 0)


def test_marks_are_a_share_of_segments_with_payload(tmp_path: Path) -> None:
    packets = [(segment(0, 100, ecn=3), OUT), (segment(100, 100), OUT), (segment(200, 0, ecn=0), OUT)]
    (row,) = flow_rows(read_traffic(capture(tmp_path, *packets)).ports)
    assert (row["ce_percent"], row["ect_percent"]) == (50.0, 100.0)


def test_pauses_by_direction(tmp_path: Path) -> None:
    made = capture(tmp_path, (pfc(1, 65535), OUT), (pfc(1, 0), OUT), (pfc(8, 0, 0, 0, 100), IN), (segment(0, 9), IN))
    (row,) = port_rows(read_traffic(made).ports)
    assert [row[name] for name in ("xoff_out", "xon_out", "xoff_in", "xon_in", "flows")] == [1, 1, 1, 0, 0]
    assert [frame.pauses for frame in frames(made.pcap / "h1-eth0.pcapng")] == [(65535,), (0,), (100,), ()]


def test_rates_and_sizes_are_of_the_wire(tmp_path: Path) -> None:
    """Two frames of 154 B, 1 us apart: what was kept is shorter."""
    (row,) = flow_rows(read_traffic(capture(tmp_path, (segment(0, 100), OUT), (segment(100, 100), OUT))).ports)
    assert (row["bytes"], row["gbps"]) == (308, 2.464)
    assert text([row]).splitlines()[0].split()[:3] == ["interface", "flow", "packets"]


def test_what_is_no_capture_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no captures; run it with --pcap"):
        read_traffic(RunFolder(tmp_path))
    made = capture(tmp_path, (segment(0, 100), OUT))
    path = made.pcap / "h1-eth0.pcapng"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(UserError, match="middle of a packet"):
        read_traffic(made)
    path.write_bytes(b"\xd4\xc3\xb2\xa1" + whole)
    with pytest.raises(UserError, match="not a capture of ours"):
        read_traffic(made)
