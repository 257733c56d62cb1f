"""What the bytes of each training step waited for: a link, all links alike, or latency; from samples.  Pure."""

from collections.abc import Iterator, Mapping
from statistics import mean

from experiments.report.axes import BYTES, scaled
from experiments.report.bins import by_interface
from experiments.report.figure import Run
from experiments.report.table import Column, Table
from experiments.report.waits import job_records
from experiments.training.accounting import Span, account, under_way
from experiments.training.bottleneck import Bottleneck, Load, PortSeries, Verdict, of_steps


def port_series(run: Run) -> list[PortSeries]:
    """Of all ports; none where nothing was sampled, or by a version that kept no time of sending."""
    ports = run.series.ports
    if ports is None or "sending_ns" not in ports:
        return []
    return [
        PortSeries(
            interface=name, **{key: ports[key][rows] for key in PortSeries.__annotations__ if key != "interface"}
        )
        for name, rows in by_interface(ports, run.topology)
    ]


def job_bottlenecks(run: Run) -> Iterator[tuple[int, Mapping[int, Bottleneck], Mapping[int, float]]]:
    """Each job that trains: its number, step -> bottleneck, step -> ns that ranks stood still for the network."""
    ports = port_series(run)
    if not ports or run.series.ranks is None:
        return
    for job in sorted(set(run.series.ranks["job"].tolist())):
        records = job_records(run.series.ranks, job)
        if records is None:
            continue
        moving: dict[int, list[Span]] = {across[0].number: under_way(across) for across in zip(*records, strict=True)}
        stood: dict[int, list[int]] = {}
        for each in account(records):
            stood.setdefault(each.step, []).append(each.network_ns)
        found = of_steps(ports, moving)
        if found:
            yield job, found, {step: mean(values) for step, values in stood.items()}


def bottleneck_table(run: Run) -> Table | None:
    """One line per job and step."""
    cells = [
        (str(job), str(step), f"{stood[step] / 1e3:.1f}", f"{one.under_way_ns / 1e3:.1f}", *_cells(run, one))
        for job, found, stood in job_bottlenecks(run)
        for step, one in found.items()
    ]
    return _table("Bottlenecks, step by step", ("step", "stood still"), cells) if cells else None


def bottleneck_summary(run: Run) -> Table | None:
    """One line per job and verdict."""
    cells = []
    for job, found, stood in job_bottlenecks(run):
        for steps in grouped(found).values():
            worst = max(steps, key=lambda step: found[step].busiest.sending)
            still_us = mean(stood[step] for step in steps) / 1e3
            bytes_us = mean(found[step].under_way_ns for step in steps) / 1e3
            of_all = f"{len(steps)} of {len(found)}"
            cells.append((str(job), of_all, f"{still_us:.1f}", f"{bytes_us:.1f}", *_cells(run, found[worst])))
    return _table("Bottlenecks", ("steps", "stood still"), cells) if cells else None


def grouped(found: Mapping[int, Bottleneck]) -> dict[str, list[int]]:
    """Interface of a single bottleneck, or a verdict that names none -> the steps, most often first."""
    groups: dict[str, list[int]] = {}
    for step, one in found.items():
        name = one.busiest.interface if one.verdict is Verdict.LINK else one.verdict.value
        groups.setdefault(name, []).append(step)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def sentences(run: Run) -> Iterator[str]:
    """Of each job, what most of its steps waited for."""
    jobs = list(job_bottlenecks(run))
    for job, found, _ in jobs:
        steps = next(iter(grouped(found).values()))
        prefix = f"Job {job}: " if run.series.ranks is not None and len(set(run.series.ranks["job"])) > 1 else ""
        yield prefix + _sentence(run, [found[step] for step in steps], len(found))


def _sentence(run: Run, alike: list[Bottleneck], steps: int) -> str:
    one, count = alike[0].busiest.interface, f"{len(alike)} of {steps} steps"
    sending = mean(each.busiest.sending for each in alike)
    usual = mean(each.usual for each in alike)
    longest = max((each.longest for each in alike), key=lambda load: load.queue_bytes)
    queue = f"  The longest queue, {_bytes(longest.queue_bytes)}, was at {run.direction(longest.interface)}."
    queue = queue if longest.queue_bytes else ""
    if alike[0].verdict is Verdict.LATENCY:
        return (
            f"In {count} no link was the bottleneck: while bytes were under way, the busiest sent for {sending:.0%} of "
            f"the time; what ranks waited for was latency.{queue}"
        )
    if alike[0].verdict is Verdict.EVEN:
        return (
            f"In {count} all links were alike: the busiest sent for {sending:.0%} of the time under way, others for "
            f"{usual:.0%}.{queue}"
        )
    return (
        f"In {count} {run.direction(one)} (link {run.topology.link_of[one].name}) was the bottleneck: it sent for "
        f"{sending:.0%} of the time under way, others for {usual:.0%}; {_why(alike[0])}.{queue}"
    )


def _why(one: Bottleneck) -> str:
    if one.is_slow:
        return f"at {one.busiest.speed_gbps:.3g} Gb/s, where others send at {one.usual_gbps:.3g}"
    return f"it had {one.busiest.sending / one.usual:.1f} times as much to carry"


def _cells(run: Run, one: Bottleneck) -> tuple[str, ...]:
    return (
        one.verdict.value,
        _where(run, one.busiest),
        f"{one.busiest.sending:.0%}".removesuffix("%"),
        f"{one.usual:.0%}".removesuffix("%"),
        f"{one.busiest.speed_gbps:.1f}",
        f"{one.longest.queue_bytes / 1e3:.1f}",
        _where(run, one.longest) if one.longest.queue_bytes else "",
    )


def _where(run: Run, load: Load) -> str:
    return run.direction(load.interface)


def _bytes(size_bytes: int) -> str:
    divisor, unit = scaled(size_bytes, BYTES)
    return f"{size_bytes / divisor:.3g} {unit}"


def _table(title: str, own: tuple[str, str], cells: list[tuple[str, ...]]) -> Table:
    return Table(
        title=f"{title}: which port the bytes waited for",
        columns=(
            Column(name="job"),
            Column(name=own[0]),
            Column(name=own[1], unit="(us)"),
            Column(name="under way", unit="(us)"),
            Column(name="bottleneck", left=True),
            Column(name="busiest port", left=True),
            Column(name="sending", unit="(%)"),
            Column(name="others", unit="(%)"),
            Column(name="at", unit="(Gb/s)"),
            Column(name="longest queue", unit="(kB)"),
            Column(name="where", left=True),
        ),
        cells=tuple(cells),
        notes=(
            "Under way: all ranks have begun a collective and one has not ended it.  Shares are of that time, between "
            "the samples around a step.",
        ),
    )
