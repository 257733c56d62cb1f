"""A table as a value: cells of text under headings, to be printed on a terminal or set in a page."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Column:
    """Heading, unit below it, alignment."""

    name: str
    unit: str = ""
    left: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells are text already: what a number looks like is decided here, once."""

    title: str
    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """For a terminal: comment lines begin with #, as in nccl-tests, so that tools which read its output can."""
        heads = [tuple(column.name for column in self.columns), tuple(column.unit for column in self.columns)]
        lines = [*heads, *self.cells] if any(heads[1]) else [heads[0], *self.cells]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        headings = len(lines) - len(self.cells)
        printed = [
            ("# " if number < headings else "  ")
            + "  ".join(
                cell.ljust(width) if column.left else cell.rjust(width)
                for cell, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for number, line in enumerate(lines)
        ]
        return "\n".join([f"# {self.title}", *printed, *(f"# {note}" for note in self.notes)])
