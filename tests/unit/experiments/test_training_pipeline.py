"""What a step must take, profiles of devices, buckets and the line through them."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.buckets import Line, straightness
from experiments.ddp import ways
from experiments.training import pipeline
from experiments.training.data_parallel import filled
from experiments.training.device import BACKWARD_FLOP, FORWARD_FLOP, Cost, Device, read_profile
from experiments.training.timeline import Interval, Kind, StepRecord
from topologies.errors import UserError


def record(number: int, start_ns: int, end_ns: int, *buckets: tuple[int, int, int]) -> StepRecord:
    """`buckets` are start, end, size."""
    sent = tuple(
        Interval(kind=Kind.COMMUNICATION, name=f"b{at}", start_ns=start, end_ns=end, size_bytes=size)
        for at, (start, end, size) in enumerate(buckets)
    )
    return StepRecord(number=number, start_ns=start_ns, end_ns=end_ns, intervals=sent)


def test_a_bucket_leaves_when_it_is_ready_and_the_one_before_it_is_through() -> None:
    """60 ns of communication, 1:2: ready at 10 and 20, through at 30 and 70."""
    assert pipeline.overlapped_ns(40, 60, ready_ns=[10, 20], sizes_bytes=[1, 2]) == pytest.approx(70)
    assert pipeline.overlapped_ns(90, 60, ready_ns=[10, 20], sizes_bytes=[1, 2]) == 90
    assert pipeline.serial_ns(40, 60) == 100


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9)), min_size=1, max_size=6), st.integers(0, 100))
def test_overlap_lies_between_the_longer_part_and_the_sum(drawn: list[tuple[int, int]], communication: int) -> None:
    ready, sizes = zip(*sorted(drawn), strict=True)
    found = pipeline.overlapped_ns(100, communication, ready_ns=ready, sizes_bytes=sizes)
    assert max(100, communication) - 1e-6 <= found <= pipeline.serial_ns(100, communication) + 1e-6


def test_a_step_is_counted_from_start_to_start() -> None:
    ranks = [
        [record(-1, 0, 9), record(0, 10, 20), record(1, 20, 32)],
        [record(-1, 0, 9), record(0, 12, 21), record(1, 21, 34)],
    ]
    assert pipeline.step_ns(ranks) == pytest.approx((10 + 14) / 2)


def test_buckets_are_read_off_the_steps_that_count() -> None:
    ranks = [
        [
            record(-1, 0, 9, (1, 2, 3)),
            record(0, 10, 20, (12, 13, 8), (14, 19, 4)),
            record(1, 20, 30, (24, 26, 8), (26, 29, 4)),
        ]
    ]
    assert pipeline.buckets(ranks) == ([3, 5], [8, 4])


def test_of_buckets_sent_at_one_instant_the_first_to_be_through_is_not_the_first() -> None:
    """The smallest failing input: rank 0's second bucket overtook its first in one step of several."""
    overtaken = record(1, 20, 30, (24, 27, 8), (24, 26, 4))
    swapped = StepRecord(number=1, start_ns=20, end_ns=30, intervals=tuple(reversed(overtaken.intervals)))
    assert pipeline.buckets([[record(0, 10, 20, (14, 16, 8), (14, 17, 4)), swapped]]) == ([4, 4], [8, 4])


def test_steps_with_other_buckets_are_refused_by_number() -> None:
    """DDP cuts anew after its first step; without warm-up that one was counted, and zip() said nothing useful."""
    ranks = [[record(0, 0, 9, (1, 2, 12)), record(1, 10, 20, (12, 13, 8), (14, 19, 4))]]
    with pytest.raises(ValueError, match="step 1 has other buckets than step 0"):
        pipeline.buckets(ranks)


def test_overlap_needs_a_step_of_warm_up() -> None:
    with pytest.raises(UserError, match="warmup=0"):
        ways(["on", "off"], 0)
    with pytest.raises(UserError, match="overlap=maybe"):
        ways(["maybe"], 1)
    assert ways(["off"], 0) == ["off"]
    assert ways(["on"], 1) == ["on"]


def test_a_layer_costs_its_flop_or_what_the_profile_says(tmp_path: Path) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text("head: {forward: 120us, backward: 1ms}\n")
    device = Device(flop_per_s=1e12, profile=read_profile(path))
    assert device.cost("head", parameters=1, tokens=1) == Cost(forward_ns=120_000, backward_ns=1_000_000)
    expected = Cost(forward_ns=FORWARD_FLOP * 10_000, backward_ns=BACKWARD_FLOP * 10_000)
    assert device.cost("block0", parameters=10_000, tokens=1000) == expected


def test_a_slow_device_takes_longer_and_jitter_repeats_with_its_seed() -> None:
    assert Device(flop_per_s=1, slowdown=2.5).lots().duration_ns(100) == 250
    lots = Device(flop_per_s=1, jitter=0.2, seed=3).lots()
    draws = [lots.duration_ns(1000) for _ in range(20)]
    again = Device(flop_per_s=1, jitter=0.2, seed=3).lots()
    assert [again.duration_ns(1000) for _ in range(20)] == draws
    assert len(set(draws)) > 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("head: {forward: 1us}\n", "head"),
        ("head: {forward: 1us, backward: 2us}\nblock0: 3\n", "block0"),
        ("block1: {forward: 1us, backward: soon}\n", "block1"),
        ("- 1\n", "write lines like"),
        ("a: [\n", "gpu.yaml"),
    ],
)
def test_a_faulty_profile_is_named_with_its_layer(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "gpu.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)


def test_a_profile_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing\.yaml"):
        read_profile(tmp_path / "missing.yaml")


@given(st.integers(-9, 9), st.integers(1, 9), st.sets(st.integers(0, 99), min_size=2))
def test_points_on_a_line_give_it_back(offset: int, slope: int, abscissae: set[int]) -> None:
    line = Line.through([(x, offset + slope * x) for x in sorted(abscissae)])
    assert line.offset == pytest.approx(offset, abs=1e-6)
    assert line.slope == pytest.approx(slope)
    assert line.straightness == pytest.approx(1)


def test_straightness_is_the_share_of_the_variance_explained() -> None:
    assert straightness([1, 2, 3], [2, 2, 2]) == 0
    assert straightness([1, 2, 3], [1, 2, 4]) == pytest.approx(0.5)


@given(st.lists(st.integers(1, 20), max_size=12), st.integers(4, 80))
def test_buckets_keep_the_order_and_close_when_they_are_full(elements: list[int], capacity_bytes: int) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(number)) for number in elements]
    groups = filled(parameters, capacity_bytes)
    assert [id(each) for group in groups for each in group] == [id(each) for each in parameters]
    for group in groups:
        assert sum(4 * each.numel() for each in group[:-1]) < capacity_bytes
    for group in groups[:-1]:
        assert sum(4 * each.numel() for each in group) >= capacity_bytes
