"""Textbook times of collectives as gloo runs them."""

import pytest

from experiments.workloads.cost_models import LINK_TIMES, ideal_ns
from topologies.errors import UnknownName


@pytest.mark.parametrize(("ranks", "time"), [(1, 0), (2, 1), (4, 3), (8, 6), (16, 10)])
def test_a_broadcast_takes_half_l_times_l_plus_1(ranks: int, time: float) -> None:
    """facts.md 4.3: measured 3.0 and 6.2 for 4 and 8 ranks."""
    assert LINK_TIMES["broadcast"](ranks, 4) == time


def test_a_reduce_is_a_ring_and_an_incast() -> None:
    assert LINK_TIMES["reduce"](8, 8 * 1024**2) == pytest.approx(7 / 8 + 7 / 8)
    assert LINK_TIMES["reduce"](8, 64 * 1024**2) == pytest.approx(62 / 64 + 7 / 8)


def test_times_scale_with_size_and_rate() -> None:
    assert ideal_ns("all_reduce", ranks=4, size_bytes=10**6, payload_bps=8e9) == pytest.approx(1.5e6)
    assert ideal_ns("all_reduce", ranks=4, size_bytes=10**6, payload_bps=80e9) == pytest.approx(1.5e5)


def test_a_barrier_has_no_model() -> None:
    with pytest.raises(UnknownName, match="cost model"):
        ideal_ns("barrier", ranks=4, size_bytes=0, payload_bps=1e9)
