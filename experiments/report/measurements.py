"""Tables of what was measured: nccl-tests' columns, the byte audit, claims, and an experiment's own sections.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from experiments.report.table import Column, Table
from experiments.results import Claim, Results, Row
from experiments.workloads.messages import ELEMENT_BYTES
from experiments.workloads.operations import OPERATIONS

_NCCL_COLUMNS = (
    Column(name="size", unit="(B)"),
    Column(name="count", unit="(elements)"),
    Column(name="type"),
    Column(name="redop"),
    Column(name="root"),
    Column(name="time", unit="(us)"),
    Column(name="algbw", unit="(GB/s)"),
    Column(name="busbw", unit="(GB/s)"),
    Column(name="#wrong"),
)


def nccl_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """One table per operation with the columns of nccl-tests, one line per size and number of ranks, means of its rows.

    nccl-tests prints each column twice, out of place and in place; torch offers one of the two per operation.
    """
    for op, of_op in groupby(sorted(rows, key=lambda row: _order(row.op)), key=lambda row: row.op):
        found = list(of_op)
        lines = [list(line) for _, line in groupby(sorted(found, key=_size), key=_size)]
        wrong = sum(row.wrong for row in found)
        busbw = sum(_mean_busbw(line) for line in lines) / len(lines)
        in_place = op in {"all_reduce", "broadcast", "reduce"}
        ranks = sorted({row.ranks for row in found})
        yield Table(
            title=f"{op}, {_listed(ranks)} ranks, {'in' if in_place else 'out of'} place",
            columns=_NCCL_COLUMNS,
            cells=tuple(_nccl_line(line) for line in lines),
            notes=(
                f"Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}",
                f"Avg bus bandwidth    : {busbw:.4f}",
            ),
        )


def _order(op: str) -> int:
    return list(OPERATIONS).index(op) if op in OPERATIONS else len(OPERATIONS)


def _size(row: Row) -> tuple[int, int]:
    return row.ranks, row.bytes


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _mean_us(rows: Sequence[Row]) -> float:
    return sum(row.time_us for row in rows) / len(rows)


def _mean_busbw(rows: Sequence[Row]) -> float:
    """Of the mean time, as nccl-tests computes it, not the mean of the rates."""
    return rows[0].busbw_GBps * rows[0].time_us / _mean_us(rows)


def _nccl_line(rows: Sequence[Row]) -> tuple[str, ...]:
    first, time_us = rows[0], _mean_us(rows)
    operation = OPERATIONS.get(first.op)
    holders = first.ranks if operation is not None and operation.split else 1
    return (
        str(first.bytes),
        str(first.bytes // ELEMENT_BYTES // holders if operation is not None else first.bytes),
        "float" if operation is not None else "byte",
        "sum" if operation is not None and operation.reduces else "none",
        "0" if operation is not None and operation.rooted else "-1",
        f"{time_us:.2f}",
        f"{first.algbw_GBps * first.time_us / time_us:.3f}",
        f"{_mean_busbw(rows):.3f}",
        str(sum(row.wrong for row in rows)),
    )


def claims_text(claims: Sequence[Claim]) -> str:
    """What the experiment says must be seen, and what was: two lines each, for a terminal."""
    return "\n".join(
        f"# {'holds' if it.holds else 'FAILS'}: {it.claim}\n#        expected {it.expected}; measured {it.measured}"
        for it in claims
    )


def section_table(name: str, records: Sequence[Mapping[str, object]]) -> Table:
    """A section of an experiment's own, one line per record: field names become headings, `time_us` is time (us)."""
    fields = list(dict.fromkeys(field for record in records for field in record))
    return Table(
        title=name.replace("_", " ").capitalize(),
        columns=tuple(_column(field, records) for field in fields),
        cells=tuple(tuple(_cell(record.get(field)) for field in fields) for record in records),
    )


_UNITS = {"us": "(us)", "ns": "(ns)", "bytes": "(B)", "GBps": "(GB/s)", "bps": "(b/s)", "percent": "(%)"}


def _column(field: str, records: Sequence[Mapping[str, object]]) -> Column:
    words, _, last = field.rpartition("_")
    left = any(isinstance(record.get(field), str) for record in records)
    if words and last in _UNITS:
        return Column(name=words.replace("_", " "), unit=_UNITS[last], left=left)
    return Column(name=field.replace("_", " "), unit=_UNITS.get(field, ""), left=left)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"
    return str(value)


OWN_SECTIONS = frozenset({"audit"})
"""Shown in their own way, not as they are."""


def own_tables(results: Results) -> Iterator[Table]:
    """The sections that an experiment added, as far as they are lists of flat records."""
    for name, section in results.sections.items():
        if name in OWN_SECTIONS or not isinstance(section, list) or not section:
            continue
        if all(isinstance(record, dict) and _is_flat(record) for record in section):
            yield section_table(name, section)


def _is_flat(record: Mapping[str, object]) -> bool:
    return not any(isinstance(value, dict | list) for value in record.values())


def audit_table(results: Results) -> Table | None:
    """Per row: how far the wire's payload was from what the collective needs, at the rank where it was furthest."""
    audit = results.sections.get("audit", [])
    if not audit:
        return None
    cells = []
    for entry in audit:
        off = [
            (got - want) / want
            for way in ("tx", "rx")
            for want, got in zip(entry[f"expected_{way}_bytes"], entry[f"{way}_payload_bytes"], strict=True)
            if want
        ]
        cells.append(
            (
                entry["op"],
                str(entry["bytes"]),
                str(entry["iteration"]),
                str(max(entry["expected_tx_bytes"])),
                f"{max(off, key=abs, default=0.0) * 100:+.3f}",
                str(sum(entry["retransmitted_segments"])),
                str(sum(entry["timeouts"])),
            )
        )
    header = audit[0]["header_bytes_per_packet"]
    return Table(
        title="Byte audit: payload on the wire against what gloo must send",
        columns=(
            Column(name="op", left=True),
            Column(name="size", unit="(B)"),
            Column(name="iteration"),
            Column(name="most sent by a rank", unit="(B)"),
            Column(name="worst rank off by", unit="(%)"),
            Column(name="retransmissions"),
            Column(name="timeouts"),
        ),
        cells=tuple(cells),
        notes=(
            f"{header} B of headers were taken off every packet; SACK blocks and retransmissions count as payload.",
        ),
    )
