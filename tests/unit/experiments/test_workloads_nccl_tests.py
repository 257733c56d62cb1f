"""nccl.txt has nccl-tests' columns to the character, and the sweep its options."""

import pytest

from experiments.collectives import Settings
from experiments.results import Row
from experiments.settings import parse_settings
from experiments.workloads.nccl_tests import Sweep, text
from topologies.errors import UserError

SWEEP = Sweep(begin_bytes=1048576, end_bytes=2097152, step="2(factor)", iterations=2, warmup=1)
HEADINGS = """\
#                                                              out-of-place                       in-place..........
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s).......
""".replace(".", " ").splitlines()
"""Copied from the output of nccl-tests; the dots are its blanks at the ends of lines."""
LINES = """\
     1048576        262144     float     sum      -1      N/A     N/A     N/A    N/A    105.9    9.90   17.33      0
     4194304        131072     float    none      -1    12346    0.34    0.30      0      N/A     N/A     N/A    N/A
""".splitlines()


def row(op: str, size_bytes: int, iteration: int, time_us: float, *, factor: float, ranks: int = 8) -> Row:
    return Row.of(
        op=op,
        size_bytes=size_bytes,
        ranks=ranks,
        iteration=iteration,
        time_ns=round(time_us * 1000),
        factor=factor,
        wrong=0,
    )


def test_headings_are_those_of_nccl_tests() -> None:
    lines = text([row("all_reduce", 1048576, 0, 100, factor=1.75)], SWEEP).splitlines()
    assert lines[1] == (
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 1 iters: 2 agg iters: 1 "
        "validation: 1 graph: 0"
    )
    assert lines[3:6] == HEADINGS


def test_lines_are_those_of_nccl_tests_with_the_way_that_torch_lacks_left_open() -> None:
    rows = [row("all_reduce", 1048576, number, time_us, factor=1.75) for number, time_us in enumerate((104.0, 107.8))]
    rows += [row("all_to_all", 4194304, 0, 12_345.6, factor=0.875)]
    lines = [line for line in text(rows, SWEEP).splitlines() if not line.startswith("#")]
    assert lines == LINES


def test_each_operation_ends_with_its_mean_bandwidth_and_what_was_wrong() -> None:
    rows = [row("broadcast", 1000, 0, 1, factor=1), row("broadcast", 3000, 0, 1, factor=1)]
    found = text(rows, SWEEP)
    assert "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 2 \n#\n" in found
    bad = rows[0].model_copy(update={"wrong": 3})
    assert "# Out of bounds values : 3 FAILED" in text([bad], SWEEP)


def sizes(**given: str) -> list[int]:
    return list(parse_settings(Settings, given).sizes())


def test_sizes_grow_by_a_factor_or_by_a_step() -> None:
    assert sizes(begin="8", end="100", factor="2") == [8, 16, 32, 64]
    assert sizes(begin="1M", end="3M", step="1M") == [1_000_000, 2_000_000, 3_000_000]


def test_growing_in_two_ways_is_refused() -> None:
    with pytest.raises(UserError, match="give one of them"):
        sizes(begin="1M", end="3M", step="1M", factor="2")
