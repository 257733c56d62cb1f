"""Filters as the kernel runs them: the six kinds of instruction that they are made of, done by hand."""

import struct

import pytest

from testbed.packet_filter import EVERYTHING, Selection, program

ALL_DSCPS = frozenset(range(64))


def kept(selection: Selection, packet: bytes, *, keep_bytes: int = 96) -> int:
    """What the program returns of a packet; fails where it jumps out of itself or reads beyond the packet."""
    instructions, accumulator, at = program(selection, keep_bytes=keep_bytes), 0, 0
    while True:
        code, if_true, if_false, constant = instructions[at]
        at += 1
        match code:
            case 0x28:
                (accumulator,) = struct.unpack_from("!H", packet, constant)
            case 0x30:
                accumulator = packet[constant]
            case 0x74:
                accumulator >>= constant
            case 0x15:
                at += if_true if accumulator == constant else if_false
            case 0x45:
                at += if_true if accumulator & constant else if_false
            case 0x06:
                return constant


def ipv4(dscp: int, ecn: int = 3) -> bytes:
    return bytes(12) + b"\x08\x00\x45" + bytes([dscp << 2 | ecn]) + bytes(50)


def pause(mask: int) -> bytes:
    return bytes(12) + b"\x88\x08\x01\x01" + struct.pack("!H", mask) + bytes(42)


def test_everything_is_one_instruction() -> None:
    assert program(EVERYTHING, keep_bytes=96) == [(0x06, 0, 0, 96)]


@pytest.mark.parametrize("wanted", [frozenset({0}), frozenset({8, 46}), ALL_DSCPS - {8}, ALL_DSCPS])
def test_just_these_code_points_are_kept_whatever_their_marks(wanted: frozenset[int]) -> None:
    selection = Selection(dscps=wanted)
    for ecn in range(4):
        assert {dscp for dscp in ALL_DSCPS if kept(selection, ipv4(dscp, ecn))} == wanted
    assert kept(selection, ipv4(min(wanted))) == 96


def test_pauses_of_a_class_are_kept_with_it() -> None:
    selection = Selection(dscps=frozenset({8, 46}), paused=frozenset({1, 3}))
    assert [mask for mask in range(256) if not kept(selection, pause(mask))] == [
        mask for mask in range(256) if not mask & 0b1010
    ]
    assert kept(Selection(dscps=frozenset({8})), pause(255)) == 0


def test_other_protocols_are_in_no_class() -> None:
    assert kept(Selection(dscps=ALL_DSCPS, paused=frozenset(range(8))), bytes(12) + b"\x08\x06" + bytes(46)) == 0


def test_nothing_at_all_is_kept_of_0_bytes() -> None:
    assert kept(Selection(dscps=ALL_DSCPS), ipv4(0), keep_bytes=0) == 0
