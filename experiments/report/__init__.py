"""REPORT a run: tables for the terminal and one page for the browser, from the run folder and from nothing else."""

from collections.abc import Iterator
from pathlib import Path

from experiments.report import measurements, network, page
from experiments.report.bottlenecks import bottleneck_summary
from experiments.report.figure import Run
from experiments.report.series import read_series
from experiments.results import read_results
from experiments.run_folder import RunFolder, read_json
from topologies.json_form import from_json

BUSIEST_SHOWN = 10


def tables(folder: RunFolder) -> Iterator[str]:
    """What the terminal shows after a run: operations, the experiment's own sections, the busiest links, claims."""
    results, topology = read_results(folder.results), from_json(read_json(folder.topology))
    for table in measurements.nccl_tables(results.rows):
        yield table.text() + "\n"
    for table in measurements.own_tables(results):
        yield table.text() + "\n"
    waited_for = bottleneck_summary(Run(results, topology, read_series(folder.path / "series")))
    if waited_for is not None:
        yield waited_for.text() + "\n"
    if results.links:
        yield network.links_table(results.links, topology, most=BUSIEST_SHOWN).text() + "\n"
    if results.claims:
        yield measurements.claims_text(results.claims) + "\n"


def write_page(folder: RunFolder) -> Path:
    """Makes report.html anew.  Raises UserError where the folder is not that of a finished run."""
    results, topology = read_results(folder.results), from_json(read_json(folder.topology))
    manifest = read_json(folder.manifest)
    pcaps = sorted(path.name for path in folder.pcap.glob("*.pcapng")) if folder.pcap.is_dir() else []
    folder.report.write_text(
        page.render(results, topology, manifest, pcaps=pcaps, series=read_series(folder.path / "series"))
    )
    return folder.report
