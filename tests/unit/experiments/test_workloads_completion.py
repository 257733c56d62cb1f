"""Flow completion times against an idle fabric, and percentiles by size class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads.completion import by_class, ideal_ns, percentile, size_class
from topologies.registry import parse_topology

HEADERS = 66


def ideal(topology: str, source: str, destination: str, size_bytes: int) -> float:
    return ideal_ns(parse_topology(topology), source, destination, size_bytes, header_bytes=HEADERS)


def test_one_frame_is_serialised_on_every_link() -> None:
    """1 us of delay and (1000 + 66) B at 100 Gb/s on each of two links."""
    assert ideal("star:hosts=2,rate=100G,delay=1us", "h1", "h2", 1000) == pytest.approx(2 * (1000 + 85.28))


def test_a_long_flow_is_serialised_once_and_its_last_frame_again_on_each_link() -> None:
    """10 frames of 8,948 B and one of 520 B: 11 headers; then the last frame on the second link."""
    wire, last = 90_000 + 11 * HEADERS, 520 + HEADERS
    assert ideal("star:hosts=2,rate=100G,delay=1us", "h1", "h2", 90_000) == pytest.approx(2000 + (wire + last) * 0.08)


def test_racks_are_two_links_further() -> None:
    fabric = "leaf_spine:leaves=2,hosts=2,spines=2,rate=100G,delay=1us"
    apart = ideal(fabric, "h1", "h3", 1000) - ideal(fabric, "h1", "h2", 1000)
    assert apart == pytest.approx(2 * (1000 + 85.28))


@given(values=st.lists(st.floats(0, 1e6), min_size=1), percent=st.integers(1, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_classes_begin_above_the_bound_of_the_one_before() -> None:
    assert [size_class(size) for size in (1, 10_000, 10_001, 10_000_000, 10_000_001)] == [
        "up to 10 kB",
        "up to 10 kB",
        "up to 100 kB",
        "up to 10 MB",
        "above 10 MB",
    ]


def test_a_table_has_the_classes_that_occur_and_all_flows_together() -> None:
    table = by_class([(100, 10.0, 1.5), (100, 30.0, 2.5), (20_000_000, 1000.0, 1.0)])
    assert [(line["size"], line["flows"], line["mean_fct_us"], line["p99_slowdown"]) for line in table] == [
        ("up to 10 kB", 2, 20.0, 2.5),
        ("above 10 MB", 1, 1000.0, 1.0),
        ("all", 3, 346.667, 2.5),
    ]
