"""Raw statistics as columns, and high-water marks that several readers share."""

import struct

import pytest

from testbed.port import netlink
from testbed.port.peaks import Peaks
from testbed.port.reading import CLASS_FIELDS, PORT_FIELDS, decode_columns
from topologies.errors import InternalError


def reading(mask: int, now_ns: int) -> bytes:
    """A port whose fields count up from `now_ns`, and 100 higher for each class."""
    used = [index for index in range(8) if mask >> index & 1]
    port = netlink._PORT_XSTATS.pack(1, mask, *range(now_ns, now_ns + 20))
    return port + b"".join(
        netlink._CLASS_XSTATS.pack(*range(now_ns + 100 * index, now_ns + 100 * index + 32), 0) for index in used
    )


def test_columns_are_what_the_slow_decoder_says() -> None:
    """Field by field, by its name."""
    raw = reading(0b1001, 7)
    stats, columns = netlink.decode_stats(raw), decode_columns([raw], PORT_FIELDS, CLASS_FIELDS)
    for name in PORT_FIELDS:
        assert columns.port[name].tolist() == [getattr(stats, name)], name
    for index in (0, 3):
        for name in CLASS_FIELDS:
            if name == "state":
                continue
            unit = name.removeprefix("dropped_")
            if unit != name:
                unit, _, cause = unit.partition("_")
                expected = getattr(getattr(stats.classes[index], f"dropped_{unit}"), cause)
            else:
                expected = getattr(stats.classes[index], name)
            assert columns.classes[index][name].tolist() == [expected], name


def test_a_class_is_zero_before_its_first_use() -> None:
    columns = decode_columns([reading(0b1, 1), reading(0b1001, 2), reading(0b1001, 3)], ["now_ns"], ["sent_bytes"])
    assert columns.port["now_ns"].tolist() == [1, 2, 3]
    assert columns.classes[0]["sent_bytes"].tolist() == [4, 5, 6]
    assert columns.classes[3]["sent_bytes"].tolist() == [0, 305, 306]


@pytest.mark.parametrize("wrong", [struct.pack("=II", 2, 0) + bytes(152), reading(1, 1)[:-8]])
def test_other_statistics_are_refused(wrong: bytes) -> None:
    with pytest.raises(InternalError, match="other statistics than version 1"):
        decode_columns([wrong], ["now_ns"], [])


def test_peaks_are_over_all_readers_during_and_after() -> None:
    peaks, others = Peaks(), {"a": 0}
    assert peaks.note("a", 5) == 5
    with peaks.shared_with(lambda: others):
        others["a"] = 9
        assert peaks.note("a", 3) == 9
        assert peaks.note("b", 1) == 1
        others["a"] = 12
    assert peaks.note("a", 0) == 12
