"""COMPARE runs of one experiment: what was asked differently, and what that changed, in tables and one page."""

from collections.abc import Sequence

from experiments.report.compare.changes import asked_table, change_table, network, operations, sections
from experiments.report.compare.overlays import overlays
from experiments.report.compare.runs import Compared, read_runs
from experiments.report.page import environment
from experiments.report.table import Table


def tables(runs: Sequence[Compared]) -> list[Table]:
    """What was asked for first, then operations, the experiment's own sections, the network as a whole."""
    own = [dict(sections(each.results)) for each in runs]
    found = [
        asked_table(runs),
        change_table("Operations", runs, [operations(each.results) for each in runs]),
        *(
            change_table(name.replace("_", " ").capitalize(), runs, [each.get(name, {}) for each in own])
            for name in own[0]
        ),
        change_table("The network as a whole", runs, [network(each.results) for each in runs]),
    ]
    return [table for table in found if table is not None]


def page(runs: Sequence[Compared]) -> str:
    """compare.html as text."""
    return (
        environment()
        .get_template("compare/compare.html.j2")
        .render(runs=runs, tables=tables(runs), figures=overlays(runs))
    )


__all__ = ["Compared", "page", "read_runs", "tables"]
