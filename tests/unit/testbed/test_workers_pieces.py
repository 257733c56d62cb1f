"""The pure pieces of workers: the board, messages, counters, and who is to blame."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.workers.board import Board, Entry, Phase
from testbed.workers.channel import Arrived, Decoder, Leave, Message, Returned, encode
from testbed.workers.counters import HostCounters, header_bytes, parse_interfaces, parse_protocols, read_header_bytes
from testbed.workers.fates import Fate, behind, culprit, describe_exit, stack, tail


def test_a_board_gives_back_what_each_rank_wrote() -> None:
    board = Board(3)
    entry = Entry(phase=Phase.WORKING, operations=7, since_ns=123, size_bytes=2**40, name="all_reduce")
    board.write(1, entry)
    assert board.read(1) == entry
    assert board.read(0) == board.read(2) == Entry()


def test_a_board_shows_an_interrupted_write_as_such() -> None:
    board = Board(2)
    board.write(0, Entry(phase=Phase.IDLE, name="x"))
    board._memory[0] |= 1  # what a rank killed between its stores leaves
    assert board.read(0) is None
    assert board.read(1) is not None
    board.write(0, Entry(phase=Phase.IDLE, name="y"))
    read = board.read(0)
    assert read is not None
    assert read.name == "y"


def test_a_boards_image_changes_with_every_write() -> None:
    board = Board(2)
    entry = Entry(phase=Phase.IDLE)
    images = {board.image()}
    for _ in range(3):
        board.write(1, entry)
        images.add(board.image())
    assert len(images) == 4


def test_a_name_too_long_for_the_board_is_cut() -> None:
    board = Board(1)
    board.write(0, Entry(name="n" * 100))
    read = board.read(0)
    assert read is not None
    assert read.name == "n" * 64


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(1, 50))
def test_messages_survive_any_fragmentation(values: list[bytes], piece: int) -> None:
    sent = [Returned(value=value) for value in values]
    stream = b"".join(encode(message) for message in sent)
    decoder, received = Decoder(), []
    for start in range(0, len(stream), piece):
        received += list(decoder.feed(stream[start : start + piece]))
    assert received == sent


def test_messages_of_every_kind_are_told_apart() -> None:
    messages: list[Message] = [Arrived(label="start"), Leave(), Returned(value=None)]
    assert list(Decoder().feed(b"".join(encode(message) for message in messages))) == messages
    with pytest.raises((pickle.PicklingError, AttributeError)):
        encode(Returned(value=lambda: None))


DEV = """Inter-|   Receive                      |  Transmit
 face |bytes    packets errs drop ...     |bytes    packets errs drop ...
    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0
h1-eth0:12345678901 9 0 0 0 0 0 0 777 5 0 0 0 0 0 0
"""


def test_interfaces_are_read_even_where_a_number_touches_the_colon() -> None:
    assert parse_interfaces(DEV) == {"lo": (100, 1, 100, 1), "h1-eth0": (12345678901, 9, 777, 5)}


def test_protocol_counters_are_read_by_name() -> None:
    text = "TcpExt: A TCPTimeouts B\nTcpExt: 1 22 3\nIpExt: InOctets\nIpExt: 4\n"
    assert parse_protocols(text) == {"TcpExt": {"A": 1, "TCPTimeouts": 22, "B": 3}, "IpExt": {"InOctets": 4}}


def counters(**values: int) -> HostCounters:
    names = ("tx_bytes", "tx_packets", "rx_bytes", "rx_packets", "retransmitted_segments", "timeouts", "loss_probes")
    return HostCounters(**{**dict.fromkeys(names, 0), **values})


def test_payload_is_bytes_less_headers_and_an_ack_has_none() -> None:
    seen = counters(tx_bytes=2 * 9014 + 3 * 66, tx_packets=5, rx_bytes=66, rx_packets=1)
    assert seen.tx_payload_bytes(66) == 2 * 8948
    assert seen.rx_payload_bytes(66) == 0
    assert (seen - counters(tx_packets=4)).tx_packets == 1


def test_headers_depend_on_timestamps(tmp_path: Path) -> None:
    assert (header_bytes(timestamps=True), header_bytes(timestamps=False)) == (66, 54)
    sysctl = tmp_path / "tcp_timestamps"
    for text, expected in (("0\n", 54), ("1\n", 66), ("2\n", 66)):
        sysctl.write_text(text)
        assert read_header_bytes(sysctl=sysctl) == expected


def fate(at_ns: int, *, died: bool = False) -> Fate:
    return Fate(error="x", at_ns=at_ns, died=died)


def test_the_culprit_is_who_died_then_who_failed_first() -> None:
    assert culprit({0: fate(5), 1: fate(3), 2: fate(9, died=True)}) == 2
    assert culprit({0: fate(5), 1: fate(3)}) == 1
    assert culprit({4: fate(3), 1: fate(3)}) == 1


def entry(operations: int, phase: Phase) -> Entry:
    return Entry(operations=operations, phase=phase)


@pytest.mark.parametrize(
    ("entries", "stopped", "expected"),
    [
        ([entry(3, Phase.WORKING), entry(2, Phase.WORKING), entry(3, Phase.WORKING)], (), (1,)),
        ([entry(3, Phase.WORKING), entry(3, Phase.IDLE), entry(3, Phase.WORKING)], (), (1,)),
        ([entry(3, Phase.WAITING), entry(3, Phase.WORKING), entry(3, Phase.WAITING)], (), (1,)),
        ([entry(3, Phase.WORKING)] * 3, (2,), (2,)),
        ([entry(3, Phase.WORKING)] * 3, (), (0, 1, 2)),
        ([entry(3, Phase.WORKING), None, entry(2, Phase.WORKING)], (), (1,)),
        ([entry(1, Phase.FINISHED), entry(5, Phase.WAITING), entry(5, Phase.IDLE)], (), (2,)),
        ([entry(0, Phase.STARTING), entry(0, Phase.IDLE), entry(0, Phase.WAITING)], (), (0, 1)),
    ],
)
def test_who_holds_a_stuck_job_up(
    entries: list[Entry | None], stopped: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert behind(entries, [rank in stopped for rank in range(len(entries))]) == expected


def test_exits_are_told_in_words() -> None:
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(0) == "exited with code 0 before its program returned"


def test_the_innermost_frames_are_shown_from_the_last_dump() -> None:
    dump = "Current thread 0x{} (most recent call first):\n"
    log = "hello\n" + dump.format(1) + "  File a\n" + dump.format(2) + "  File b\n  File c\n"
    assert stack(log) == "    File b\n    File c"
    assert stack("hello\n") == ""
    assert tail("1\n2\n3\n", lines=2) == "    2\n    3"


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.WORKING, "in reduce of 8 bytes"),
        (Phase.IDLE, "after reduce of 8 bytes"),
        (Phase.WAITING, "waiting for the other ranks at reduce"),
        (Phase.FINISHED, "after its program returned"),
    ],
)
def test_places_are_told_in_words(phase: Phase, words: str) -> None:
    assert Entry(phase=phase, name="reduce", size_bytes=8).words() == words
