"""A run for other people's tools: `./run export DIR --format NAME` writes files into DIR/export, from the folder alone.

    csv          rows, links, paths and series, a file each                     csv_files.py
    hpcc         fct.txt, qlen.txt, pfc.txt, topology.txt of HPCC's simulator    hpcc.py
    nccl         nccl-tests' table and JSON, one of each per operation           nccl.py
    prometheus   metrics.prom: the last sample, for a textfile collector         prometheus.py

A run need not have what a file is made of: then that file is left out, and it is said why.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from experiments.export.csv_files import export_csv
from experiments.export.hpcc import export_hpcc
from experiments.export.nccl import export_nccl
from experiments.export.prometheus import export_prometheus
from experiments.export.written import Written
from experiments.run_folder import RunFolder
from topologies.errors import UnknownName

FORMATS: Final[Mapping[str, Callable[[RunFolder], Written]]] = MappingProxyType(
    {"csv": export_csv, "hpcc": export_hpcc, "nccl": export_nccl, "prometheus": export_prometheus}
)


def export(run: RunFolder, format_name: str) -> Written:
    """Raises UnknownName for a format, UserError where the folder is not that of a finished run."""
    if format_name not in FORMATS:
        raise UnknownName("format", format_name, FORMATS)
    return FORMATS[format_name](run)
