"""Tables and the page: pure functions of results, right figures in the right columns, one file that loads nothing."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from experiments import report
from experiments.report import measurements, network
from experiments.report.figure import Run
from experiments.report.figures.fabric import overall
from experiments.report.series import Series
from experiments.report.table import Column, Table
from experiments.results import Claim, FlowPath, LinkUse, Results, Row, write_results
from experiments.run_folder import RunFolder, write_json
from topologies.errors import UserError
from topologies.json_form import to_json
from topologies.registry import parse_topology

TOPOLOGY = parse_topology("leaf_spine:leaves=2,hosts=2,spines=2")


def row(op: str = "all_reduce", size: int = 4000, time_ns: int = 1000, iteration: int = 0, ranks: int = 4) -> Row:
    return Row.of(op=op, size_bytes=size, ranks=ranks, iteration=iteration, time_ns=time_ns, factor=1.5, wrong=0)


def link(name: str, *, tx_bytes: int = 1_000_000, utilisation: float = 0.5, drops: int = 0) -> LinkUse:
    return LinkUse(
        name=name, rate_bps=10**11, tx_bytes=tx_bytes, tx_packets=9, rx_packets=9, drops=drops, utilisation=utilisation
    )


LINKS = (
    link("h1-eth0>leaf1-eth1", utilisation=0.9),
    link("leaf1-eth1>h1-eth0", utilisation=0.1),
    link("leaf1-eth3>spine1-eth1", tx_bytes=3_000_000, utilisation=0.3, drops=7),
    link("leaf1-eth4>spine2-eth1", tx_bytes=1_000_000),
)
FLOW = FlowPath(
    src="10.0.1.1",
    dst="10.0.2.1",
    proto="tcp",
    sport=4000,
    dport=5000,
    mark=1,
    packets=10,
    bytes=2_000_000,
    path=("h1-eth0", "leaf1-eth3", "spine1-eth2", "leaf2-eth1"),
)


def results(**changes: Any) -> Results:
    values: dict[str, Any] = {
        "valid": True,
        "experiment": "all_reduce",
        "topology": "leaf_spine:leaves=2,hosts=2,spines=2",
        "policy": "ecmp",
        "seed": 1,
        "clock": "virtual",
        "ranks": 4,
        "rows": (row(), row(time_ns=3000, iteration=1)),
        "links": LINKS,
        "paths": (FLOW,),
        "claims": (Claim(claim="it is <fast>", expected="1", measured="2", holds=False),),
        "incast": [{"senders": 4, "mean_us": 1.5, "each_bytes": 32000}],
    }
    return Results(**{**values, **changes})


def test_the_nccl_table_has_its_columns_and_means_over_iterations() -> None:
    (table,) = measurements.nccl_tables([row(), row(time_ns=3000, iteration=1)])
    names = "size count type redop root time algbw busbw #wrong"
    assert [column.name for column in table.columns] == names.split()
    assert table.cells == (("4000", "1000", "float", "sum", "-1", "2.00", "2.000", "3.000", "0"),)
    assert "Avg bus bandwidth    : 3.0000" in table.notes


def test_counts_are_per_rank_where_ranks_hold_parts_and_roots_are_named() -> None:
    (table,) = measurements.nccl_tables([row(op="gather")])
    assert table.cells[0][:5] == ("4000", "250", "float", "none", "0")


def test_operations_come_in_their_own_order_and_strangers_last() -> None:
    tables = measurements.nccl_tables([row(op="incast"), row(op="send_recv"), row(op="all_reduce")])
    assert [table.title.split(",")[0] for table in tables] == ["all_reduce", "send_recv", "incast"]


def test_a_printed_table_lines_up() -> None:
    table = Table(
        title="t",
        columns=(Column(name="a", unit="(x)"), Column(name="bb", left=True)),
        cells=(("100", "z"), ("2", "yy")),
    )
    assert table.text().splitlines() == ["# t", "#   a  bb", "# (x)", "  100  z", "    2  yy"]


def test_the_busiest_links_come_first_and_tiers_show_their_imbalance() -> None:
    table = network.links_table(LINKS, TOPOLOGY, most=2)
    assert [cells[:2] for cells in table.cells] == [("h1-eth0", "leaf1-eth1"), ("leaf1-eth4", "spine2-eth1")]
    assert "7 drops in all" in table.title
    assert network.imbalance(LINKS, TOPOLOGY) == {"leaf to spine": 1.5}


def test_links_table_shows_only_what_happened_marks_and_pauses_included() -> None:
    marked = LINKS[0].model_copy(update={"marks": 12, "paused_us": 3.25})
    table = network.links_table((marked, *LINKS[1:]), TOPOLOGY, most=2)
    names = [column.name for column in table.columns]
    assert [names[6], names[7]] == ["marks", "paused"]
    assert table.cells[0][6:8] == ("12", "3.25")
    assert table.cells[1][6:8] == ("0", "0")
    assert "7 drops, 12 marks in all" in table.title
    assert "marks" not in [column.name for column in network.links_table(LINKS, TOPOLOGY, most=2).columns]


def test_paths_are_told_by_the_names_of_nodes() -> None:
    table = network.paths_table([FLOW], TOPOLOGY, most=5)
    assert table.cells == (("h1 > h3", "tcp 4000 > 5000", "2.00", "10", "h1 leaf1 spine1 leaf2 h3"),)


def test_an_experiments_own_section_becomes_a_table_with_units() -> None:
    (table,) = measurements.own_tables(results())
    assert [(column.name, column.unit) for column in table.columns] == [
        ("senders", ""),
        ("mean", "(us)"),
        ("each", "(B)"),
    ]
    assert table.cells == (("4", "1.5", "32000"),)


def test_a_cable_has_the_utilisation_of_its_busier_direction() -> None:
    found = overall(Run(results(), TOPOLOGY, Series()))
    assert sorted(found.values()) == [(0.3, "leaf1-eth3"), (0.5, "leaf1-eth4"), (0.9, "h1-eth0")]


class Outside(HTMLParser):
    """Collects every address that a page would load by itself, and checks that its elements are closed."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name == "src" or (name == "href" and tag == "link")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path)
    write_results(made.results, results())
    write_json(made.topology, to_json(TOPOLOGY))
    write_json(made.manifest, {"in_force": {"hosts": {"cc": "cubic"}}, "real": ["TCP"], "modelled": ["time <virtual>"]})
    return made


def test_the_page_is_one_well_formed_file_that_loads_nothing(folder: RunFolder) -> None:
    text = report.write_page(folder).read_text()
    parser = Outside()
    parser.feed(text)
    assert parser.loads == []
    assert parser.open == []
    assert not re.search(r"url\(|@import|<script [^>]*src", text)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_page_says_what_a_reader_must_know(folder: RunFolder) -> None:
    text = report.write_page(folder).read_text()
    for part in (
        "Valid",
        "it is &lt;fast&gt;",
        "h1 leaf1 spine1 leaf2 h3",
        "in_force.hosts.cc",
        "time &lt;virtual&gt;",
        "<svg",
    ):
        assert part in text
    assert text.index("Valid") < text.index("busbw")


def test_an_invalid_run_says_so_before_any_figure(folder: RunFolder) -> None:
    write_results(folder.results, results(valid=False, reasons=("3 wrong elements",)))
    text = report.write_page(folder).read_text()
    assert text.index("do not use these figures") < text.index("3 wrong elements") < text.index("busbw")


def test_equal_folders_give_equal_pages(folder: RunFolder) -> None:
    first = report.write_page(folder).read_bytes()
    assert report.write_page(folder).read_bytes() == first


def test_the_terminal_shows_operations_own_sections_links_and_claims(folder: RunFolder) -> None:
    text = "\n".join(report.tables(folder))
    for part in ("# all_reduce, 4 ranks, in place", "# Incast", "# Busiest links", "# FAILS: it is <fast>"):
        assert part in text


def test_a_folder_of_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no results\.json"):
        report.write_page(RunFolder(tmp_path))
