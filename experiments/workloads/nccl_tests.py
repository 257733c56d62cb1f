"""The measured sweep as nccl-tests prints it, column by column, so that tools which read its output read ours.  Pure.

#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    16777216       4194304     float     sum      -1      N/A     N/A     N/A    N/A    412.0   40.72   71.26      0

Torch offers each collective in one of the two ways; the other's columns say N/A.  (Layout: nccl-tests src/common.cu.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

from experiments.results import Row
from experiments.workloads.messages import ELEMENT_BYTES
from experiments.workloads.operations import OPERATIONS

IN_PLACE = {"all_reduce", "broadcast", "reduce"}
WIDTHS = (12, 12, 8, 6, 6, 7, 6, 6, 5, 7, 6, 6, 5)
"""Of the columns; two spaces before each but the first."""
_HEADINGS = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
_UNITS = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What was asked for, in nccl-tests' options."""

    begin_bytes: int
    """-b"""
    end_bytes: int
    """-e"""
    step: str
    """-f as `16(factor)`, or -i as `1048576(bytes)`."""
    iterations: int
    """-n"""
    warmup: int
    """-w"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One size of one operation: a line of the table."""

    size_bytes: int
    count: int
    """Elements per rank."""
    redop: str
    root: int
    time_us: float
    """Mean of the iterations."""
    algbw: float
    """GB/s of 1e9 bytes."""
    busbw: float
    wrong: int


def measured(op: str, rows: Sequence[Row]) -> Measured:
    """The iterations of one size.  Operations that nccl-tests does not know have no reduction and no root."""
    first, operation = rows[0], OPERATIONS.get(op)
    holders = first.ranks if operation is not None and operation.split else 1
    return Measured(
        size_bytes=first.bytes,
        count=first.bytes // ELEMENT_BYTES // holders,
        redop="sum" if operation is not None and operation.reduces else "none",
        root=0 if operation is not None and operation.rooted else -1,
        time_us=mean(row.time_us for row in rows),
        algbw=_algbw(rows),
        busbw=_algbw(rows) * _factor(first),
        wrong=sum(row.wrong for row in rows),
    )


def text(rows: Sequence[Row], sweep: Sweep) -> str:
    """A block like a run of nccl-tests for each operation, in the order in which they ran."""
    blocks = [_block(op, list(of_op), sweep) for op, of_op in groupby(rows, key=lambda row: row.op)]
    return "\n".join(line for block in blocks for line in block) + "\n"


def _block(op: str, rows: Sequence[Row], sweep: Sweep) -> Iterator[str]:
    yield f"# Collective test starting: {op}_perf"
    yield (
        f"# nThread 1 nGpus 1 minBytes {sweep.begin_bytes} maxBytes {sweep.end_bytes} step: {sweep.step} "
        f"warmup iters: {sweep.warmup} iters: {sweep.iterations} agg iters: 1 validation: 1 graph: 0"
    )
    yield "#"
    yield f"#{'out-of-place':>74}{'in-place':>31}{'':10}"
    for words in (_HEADINGS, _UNITS):
        yield "#" + _line(words)[1:]
    rates = []
    for _, of_size in groupby(rows, key=lambda row: row.bytes):
        line = list(of_size)
        yield _line(_cells(op, line))
        rates.append(_algbw(line) * _factor(line[0]))
    wrong = sum(row.wrong for row in rows)
    yield f"# Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}"
    yield f"# Avg bus bandwidth    : {mean(rates):g} "
    yield "#"


def _algbw(rows: Sequence[Row]) -> float:
    """Of the mean time, in GB/s of 1e9 bytes."""
    return rows[0].bytes / mean(row.time_us for row in rows) / 1e3


def _factor(row: Row) -> float:
    """busbw / algbw: the convention's, or for an operation of an experiment's own what its rows say."""
    if row.op in OPERATIONS:
        return OPERATIONS[row.op].factor(row.ranks)
    return row.busbw_GBps / row.algbw_GBps if row.algbw_GBps else 1.0


def _line(cells: Sequence[str]) -> str:
    # `#wrong` is one wider than its column and takes a space of the gap before it
    return "".join(cell.rjust(width + 2) for cell, width in zip(cells, WIDTHS, strict=True))[2:]


def _cells(op: str, rows: Sequence[Row]) -> tuple[str, ...]:
    line = measured(op, rows)
    found = (_time(line.time_us), f"{line.algbw:.2f}", f"{line.busbw:.2f}", str(line.wrong))
    absent = ("N/A",) * 4
    return (
        str(line.size_bytes),
        str(line.count),
        "float",
        line.redop,
        str(line.root),
        *((*absent, *found) if op in IN_PLACE else (*found, *absent)),
    )


def _time(time_us: float) -> str:
    """As many digits as nccl-tests shows: no decimals from 10 ms, one from 100 us, two below."""
    return f"{time_us:.{0 if time_us >= 10_000 else 1 if time_us >= 100 else 2}f}"
