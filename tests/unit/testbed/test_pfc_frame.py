"""802.1Qbb frames as bytes, there and back, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.port.pfc_frame import duration_ns, parse_pfc, pfc_frame
from topologies.errors import UserError

SOURCE = bytes.fromhex("02000a000101")


def test_as_the_standard_draws_it() -> None:
    assert pfc_frame(source=SOURCE, quanta={3: 65535}).hex() == (
        "0180c2000001" + "02000a000101" + "8808" + "0101" + "0008" + "0000" * 3 + "ffff" + "0000" * 4 + "00" * 26
    )


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 65535), max_size=8))
def test_there_and_back(quanta: dict[int, int]) -> None:
    assert parse_pfc(pfc_frame(source=SOURCE, quanta=quanta)) == quanta


@given(st.binary(max_size=80))
def test_anything_else_is_none(frame: bytes) -> None:
    if frame[12:16] != bytes.fromhex("88080101"):
        assert parse_pfc(frame) == {}


def test_a_frame_cut_short_or_of_another_opcode_is_none() -> None:
    whole = pfc_frame(source=SOURCE, quanta={3: 7})
    assert parse_pfc(whole[:33]) == {}
    assert parse_pfc(whole[:34]) == {3: 7}
    assert parse_pfc(whole[:14] + b"\x00\x01" + whole[16:]) == {}


@pytest.mark.parametrize("quanta", [{8: 1}, {-1: 1}, {0: 65536}, {0: -1}])
def test_nonsense_is_refused(quanta: dict[int, int]) -> None:
    with pytest.raises(UserError, match=r"there are classes 0\.\.7 and 0\.\.65535 quanta"):
        pfc_frame(source=SOURCE, quanta=quanta)


def test_a_quantum_is_512_bit_times() -> None:
    assert duration_ns(65535, 100 * 10**9) == 335_539
    assert duration_ns(1, 10**9) == 512
