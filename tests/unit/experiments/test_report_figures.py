"""Figures of a run's inside: samples in steps of time, everything to scale, absence told with its reason."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments import report
from experiments.report.axes import Axis, numbers, span
from experiments.report.bins import bin_ports
from experiments.report.figure import Absent, Figure, Run
from experiments.report.figures import FIGURES
from experiments.report.figures.completion import steps
from experiments.report.figures.fabric import draw_fabric
from experiments.report.figures.steps import chosen
from experiments.report.series import COLUMNS, WHOLE_PORT, Series, read_series
from experiments.results import read_results
from experiments.series import schema
from tests.unit.experiments.report_folders import PERIOD_NS, busy_folder, port, rank, results, write
from topologies.errors import UserError
from topologies.registry import parse_topology

STAR = parse_topology("star:hosts=3,rate=100G")
BYTES = 125_000
"""What a link of 100 Gb/s carries in a period of 10 us."""


def read(folder: Path) -> Series:
    return read_series(folder / "series")


def test_utilisation_follows_the_counters_and_the_window_the_bytes(tmp_path: Path) -> None:
    sent = [0, 0, BYTES, BYTES + BYTES // 2, BYTES + BYTES // 2, BYTES + BYTES // 2]
    write(tmp_path, "ports", [port("s1-eth1", number, sent_bytes=value) for number, value in enumerate(sent)])
    ports = read(tmp_path).ports
    assert ports is not None
    bins = bin_ports(ports, STAR)
    assert bins is not None
    assert bins.edges_ns.tolist() == [PERIOD_NS, 2 * PERIOD_NS, 3 * PERIOD_NS]
    assert bins.utilisation.tolist() == [[1.0, 0.5]]


def test_slivers_before_and_after_the_traffic_are_not_shown(tmp_path: Path) -> None:
    """Handshakes long before, and connections that end long after: 100 B each beside 10 MB."""
    sent = [0, 100, *[100] * 50, 5 * 10**6, 10**7, *[10**7] * 50, 10**7 + 100]
    write(tmp_path, "ports", [port("s1-eth1", number, sent_bytes=value) for number, value in enumerate(sent)])
    ports = read(tmp_path).ports
    assert ports is not None
    bins = bin_ports(ports, STAR)
    assert bins is not None
    assert bins.edges_ns.tolist() == [51 * PERIOD_NS, 52 * PERIOD_NS, 53 * PERIOD_NS]


def test_many_samples_become_few_steps_that_keep_bytes_events_and_peaks(tmp_path: Path) -> None:
    samples = 1001
    rows = [
        port("s1-eth1", number, sent_bytes=number * BYTES // 4, dropped_packets=number // 10, queue_bytes=number % 777)
        for number in range(samples)
    ]
    write(tmp_path, "ports", rows)
    ports = read(tmp_path).ports
    assert ports is not None
    bins = bin_ports(ports, STAR, most=50)
    assert bins is not None
    assert bins.steps == 50
    assert np.allclose(bins.utilisation, 0.25, atol=1e-6)
    assert bins.events["dropped_packets"].sum() == 100
    assert bins.queue_bytes.max() == 776


def test_a_high_water_mark_covers_the_steps_since_the_sample_before(tmp_path: Path) -> None:
    """One port is sampled at every period, another only at the end: its mark may have been at any time."""
    rows = [port("s1-eth1", number, sent_bytes=number * BYTES) for number in range(5)]
    rows += [port("s1-eth2", 0, sent_bytes=0), port("s1-eth2", 4, sent_bytes=9, queue_bytes=700)]
    write(tmp_path, "ports", rows)
    ports = read(tmp_path).ports
    assert ports is not None
    bins = bin_ports(ports, STAR)
    assert bins is not None
    assert bins.queue_bytes[1].tolist() == [700.0] * 4


def test_rows_of_single_classes_are_left_to_others(tmp_path: Path) -> None:
    rows = [port("s1-eth1", 0, sent_bytes=0), {**port("s1-eth1", 0, sent_bytes=7), "class": 3}]
    write(tmp_path, "ports", rows)
    ports = read(tmp_path).ports
    assert ports is not None
    assert ports["sent_bytes"].tolist() == [0]


def test_without_samples_every_figure_says_why_it_is_not_drawn() -> None:
    run = Run(results(STAR), STAR, read_series(Path("/nowhere/series")))
    found = [draw(run) for draw in FIGURES]
    assert all(isinstance(figure, Absent) for figure in found)
    whys = {figure.why for figure in found if isinstance(figure, Absent)}
    assert "this run recorded no series/ports.parquet" in whys
    assert "No slider: this run recorded no series/ports.parquet" in draw_fabric(run).note


def test_every_figure_is_drawn_of_a_run_that_has_everything(tmp_path: Path) -> None:
    folder = busy_folder(tmp_path / "x", STAR, samples=60, ranks=3)
    run = Run(read_results(folder.results), STAR, read(folder.path))
    found = [draw(run) for draw in FIGURES]
    assert [figure.title for figure in found if isinstance(figure, Absent)] == []
    for figure in found:
        assert isinstance(figure, Figure)
        picture = ElementTree.fromstring(figure.svg)
        words = [text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert any("(" in word or "share" in word or "/" in word for word in words), f"{figure.title}: no unit"


def test_the_slider_has_a_colour_for_every_cable_and_step(tmp_path: Path) -> None:
    folder = busy_folder(tmp_path / "x", STAR, samples=60, ranks=3)
    figure = draw_fabric(Run(results(STAR), STAR, read(folder.path)))
    assert sorted(re.findall(r'data-link="(\d+)"', figure.svg)) == ["0", "1", "2"]
    classes = re.findall(r'"(\d{59})"', figure.svg)
    assert classes == ["3" * 59] * 3  # half of the rate, in the class from 50%


def test_what_a_report_needs_is_what_the_schema_says() -> None:
    for name, columns in COLUMNS.items():
        assert set(columns) <= set(schema.FILES[name].names)
    assert WHOLE_PORT == schema.WHOLE_PORT


def test_files_of_the_schema_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "series").mkdir()
    row = {**port("s1-eth1", 7, sent_bytes=9), "sent_packets": 1, "sending_ns": 0}
    table = pa.Table.from_pylist([row], schema=schema.PORTS)
    pq.write_table(table, tmp_path / "series" / "ports.parquet")
    ports = read(tmp_path).ports
    assert ports is not None
    assert (ports["interface"][0], ports["sent_bytes"][0]) == ("s1-eth1", 9)
    pq.write_table(schema.PORTS.empty_table(), tmp_path / "series" / "ports.parquet")
    assert read(tmp_path).missing["ports"] == "series/ports.parquet has no rows"


def test_a_file_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "ports.parquet").write_text("no Parquet")
    with pytest.raises(UserError, match=r"ports\.parquet"):
        read(tmp_path)
    write(tmp_path, "ports", [{"time_ns": 1}])
    with pytest.raises(UserError, match="has no column interface"):
        read(tmp_path)


def test_of_many_ranks_the_one_that_computed_longest_is_shown(tmp_path: Path) -> None:
    rows = [rank(number, "compute", "x", (0, 900 if number == 77 else 100)) for number in range(128)]
    write(tmp_path, "ranks", rows)
    ranks = read(tmp_path).ranks
    assert ranks is not None
    shown = chosen(ranks, np.arange(128))
    assert 77 in shown
    assert len(shown) <= 24


def test_a_distribution_keeps_its_ends_when_it_is_thinned() -> None:
    points = steps(list(range(5000)), most=100)
    assert len(points) <= 102
    assert [points[0], points[-1]] == [(0, 0.0), (4999, 1.0)]


def test_axes_have_round_ticks_inside_their_range() -> None:
    assert span("x", [0.0, 7.3]).ticks() == [0, 2, 4, 6]
    assert span("x", [3, 4000], log=True).ticks() == [10, 100, 1000]
    assert Axis(label="x", low=5, high=5).ticks() == [5]
    assert numbers([0, 0.5, 1]) == ["0.0", "0.5", "1.0"]
    assert numbers([100, 200]) == ["100", "200"]


def test_the_page_of_128_hosts_stays_small(tmp_path: Path) -> None:
    fabric = parse_topology("leaf_spine:leaves=8,hosts=16,spines=4")
    folder = busy_folder(tmp_path / "x", fabric, samples=400, ranks=128)
    assert report.write_page(folder).stat().st_size < 1_000_000
