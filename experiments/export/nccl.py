"""What a run measured as nccl-tests prints it (nccl_tests.py), and as its `-J` writes it, per operation.

    nccl.txt               every operation, a block each
    nccl_all_reduce.json   version 2 of nccl-tests' JSON: config, results, out_of_bounds, average_bus_bandwidth, errors

Fields that are NCCL's or CUDA's own are there, because readers ask for them, and say what is true of us: nccl_version
0, devices that are ranks of gloo.  Times are those of the run's own clock.  (Layout: nccl-tests src/util.cu.)
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from statistics import mean
from typing import Any, Final

import pyarrow.parquet as pq

from experiments.export.written import Written
from experiments.results import Row, read_results
from experiments.run_folder import RunFolder, read_json
from experiments.workloads import nccl_tests
from experiments.workloads.nccl_tests import IN_PLACE, Sweep

JSON_VERSION: Final = 2
_TIME: Final = "%Y-%m-%d %H:%M:%S"


def export_nccl(run: RunFolder) -> Written:
    """Raises UserError where the folder is not that of a finished run."""
    results, asked = read_results(run.results), read_json(run.manifest)
    written = Written.into(run)
    if not results.rows:
        written.left_out["nccl.txt"] = f"{results.experiment} measures no operations of a size in a time"
        return written
    warmup = int(asked.get("settings", {}).get("warmup", 0))
    written.add("nccl.txt", nccl_tests.text(results.rows, sweep_of(results.rows, warmup)))
    times, hosts = _times(run), [host["name"] for host in read_json(run.topology)["hosts"]]
    for op, rows in _by_op(results.rows).items():
        document = as_json(op, rows, sweep_of(rows, warmup), hosts=hosts, times=times)
        written.add(f"nccl_{op}.json", json.dumps(document, indent=1) + "\n")
    return written


def sweep_of(rows: Sequence[Row], warmup: int) -> Sweep:
    """As nccl-tests' options would ask for these sizes; sizes that no option asks for are steps of 0 bytes."""
    sizes = sorted({row.bytes for row in rows})
    factors = {after / before for before, after in pairwise(sizes) if before}
    steps = {after - before for before, after in pairwise(sizes)}
    if len(factors) == 1 and (factor := factors.pop()).is_integer():
        step = f"{int(factor)}(factor)"
    else:
        step = f"{steps.pop() if len(steps) == 1 else 0}(bytes)"
    iterations = 1 + max(row.iteration for row in rows)
    return Sweep(begin_bytes=sizes[0], end_bytes=sizes[-1], step=step, iterations=iterations, warmup=warmup)


def as_json(op: str, rows: Sequence[Row], sweep: Sweep, *, hosts: Sequence[str], times: tuple[str, str]) -> Any:
    """One operation, as a run of nccl-tests would report it."""
    results = [_result(op, list(of_size)) for _, of_size in groupby(rows, key=lambda row: row.bytes)]
    wrong = sum(row.wrong for row in rows)
    bandwidths = [(result["in_place"] or result["out_of_place"])["bus_bw"] for result in results]
    return {
        "version": JSON_VERSION,
        "start_time": times[0],
        "args": [f"{op}_perf", "-b", str(sweep.begin_bytes), "-e", str(sweep.end_bytes), "-n", str(sweep.iterations)],
        "env": [],
        "nccl_version": 0,
        "config": _config(sweep, rows[0].ranks, hosts),
        "results": results,
        "out_of_bounds": {"count": wrong, "okay": str(wrong == 0).lower()},
        "average_bus_bandwidth": {"bandwidth": round(mean(bandwidths), 6), "okay": "unchecked"},
        "errors": [],
        "end_time": times[1],
    }


def _config(sweep: Sweep, ranks: int, hosts: Sequence[str]) -> dict[str, Any]:
    number, _, unit = sweep.step.partition("(")
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": sweep.begin_bytes,
        "maximum_bytes": sweep.end_bytes,
        ("step_factor" if unit.startswith("factor") else "step_bytes"): int(number),
        "warmup_iters": sweep.warmup,
        "iterations": sweep.iterations,
        "aggregated_iterations": 1,
        "validation": 1,
        "graph": 0,
        "blocking_collectives": "false",
        "per_iter_timing": "false",
        "parallel_init": "false",
        "devices": list(_devices(ranks, hosts)),
    }


def _devices(ranks: int, hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    for rank in range(ranks):
        host = hosts[rank] if rank < len(hosts) else "?"
        yield {
            "rank": rank,
            "group": 0,
            "pid": 0,
            "hostname": host,
            "device": 0,
            "device_hex": "0000:00:00",
            "device_info": "gloo on a CPU",
        }


def _result(op: str, rows: Sequence[Row]) -> dict[str, Any]:
    line = nccl_tests.measured(op, rows)
    body = {
        "time": round(line.time_us, 6),
        "alg_bw": round(line.algbw, 6),
        "bus_bw": round(line.busbw, 6),
        "nwrong": float(line.wrong),
    }
    return {
        "size": line.size_bytes,
        "count": line.count,
        "type": "float",
        "redop": line.redop,
        "root": f"{line.root:6d}",
        "out_of_place": None if op in IN_PLACE else body,
        "in_place": body if op in IN_PLACE else None,
        "actual_iterations": len(rows),
        "experiment_name": f"{op}_perf",
    }


def _by_op(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.op, []).append(row)
    return found


def _times(run: RunFolder) -> tuple[str, str]:
    """Of the run's clock: when it began, and when its last rank was done."""
    about = run.series / "about.json"
    start_ns = int(read_json(about).get("wall_start_ns", 0)) if about.exists() else 0
    ranks, took_ns = run.series / "ranks.parquet", 0
    if ranks.exists():
        took_ns = max(pq.read_table(ranks, columns=["end_ns"])["end_ns"].to_pylist(), default=0)
    first, last = (f"{datetime.fromtimestamp(at // 10**9, UTC):{_TIME}}" for at in (start_ns, start_ns + took_ns))
    return first, last
