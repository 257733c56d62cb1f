"""The machine's side of a run: check the request, boot the guest (or use this kernel), show the outcome.

request -> check -> run folder -> guest: script --inside request.json -> results.json -> tables and report.html
"""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import cast

from pydantic import BaseModel

from experiments.console import Console
from experiments.experiment import Experiment
from experiments.failure_schedule import parse_failures
from experiments.metrics_server import MetricsServer
from experiments.pcap import Captures, parse_captures
from experiments.port_plan import PortPlan, PortSettings
from experiments.request import HOST_PREFIX, PORT_PREFIX, Request
from experiments.run_folder import RunFolder, read_json, write_json
from experiments.series.sampling import parse_sampling
from experiments.settings import parse_all
from experiments.timeline import events_from
from testbed.host_settings import HostSettings
from testbed.port.fabric_port import FabricPort
from topologies.errors import MissingFeature, RunFailed, TestbedError, UserError
from topologies.json_form import to_json
from topologies.model import Topology
from topologies.parameters import naming
from topologies.registry import parse_topology
from topologies.units import parse_delay

GUEST_FOLDER = "/out"
"""Where the guest sees the run folder."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A request whose every word was found to mean something."""

    topology: Topology
    settings: BaseModel
    """An instance of the experiment's own Settings."""
    host: BaseModel
    captures: Captures


def check(experiment: Experiment, request: Request) -> Checked:
    """Parses all that the user wrote before anything is made.  Raises UserError."""
    topology = parse_topology(request.topology)
    settings, host, port = parse_all(
        (experiment.settings, request.settings, ""),
        (HostSettings, request.host, HOST_PREFIX),
        (PortSettings, request.port, PORT_PREFIX),
    )
    plan = PortPlan.of(
        policy=request.policy, topology=topology, seed=request.seed, kind=cast("PortSettings", port).kind
    )
    plan.steps(request.policy_changes)
    captures = parse_captures(request.pcap, plan)
    parse_sampling(request.sample, port_kind=plan.kind, clock=request.clock)
    if parse_failures(request.failures, topology) and plan.kind != FabricPort.name:
        raise UserError(f"--failure: ports of kind {plan.kind} cannot fail; leave port.kind out")
    events_from(request.events_from)
    with naming("--detection-delay"):
        parse_delay(request.detection_delay)
    plan.host_settings(request.host)
    if request.clock == "real":
        _check_machine(plan.kind)
    return Checked(topology=topology, settings=settings, host=host, captures=captures)


def _check_machine(port_kind: str) -> None:
    """Raises MissingFeature with everything that this kernel lacks for the real clock and this kind of port."""
    from testbed.doctor import FABRIC_PORTS, missing_for

    spared = FABRIC_PORTS.name if port_kind != FabricPort.name else None
    if missing := [check for check in missing_for("real") if check.name != spared]:
        lacking = "".join(f"\n  {check.name}: {check.remedy}" for check in missing)
        raise MissingFeature(
            f"--clock real: this machine lacks{lacking}",
            "./run doctor shows all that it needs, and --clock virtual needs none of it",
        )


def run(
    experiment: Experiment,
    request: Request,
    checked: Checked,
    folder: RunFolder,
    console: Console,
    metrics: MetricsServer | None = None,
) -> None:
    """Runs a checked request in `folder`.  Raises RunFailed or MissingFeature; the folder then says why."""
    request.write(folder.request)
    write_json(folder.topology, to_json(checked.topology))
    console.say(
        f"{experiment.name}: {checked.topology.name}, policy {request.policy}, seed {request.seed}, "
        f"{request.clock} clock, in {folder.path}"
    )
    if request.mn_cli and not sys.stdin.isatty():
        folder.commands.write_text(sys.stdin.read())
    try:
        # Mininet's prompt has the terminal to itself
        with nullcontext() if request.mn_cli else console.live():
            if request.clock == "virtual":
                _run_in_guest(request, folder, console)
            else:
                _run_here(experiment, request, checked, folder, console, metrics)
    except TestbedError as error:
        folder.results.unlink(missing_ok=True)
        if not folder.error.exists():  # the guest's side knows best what kind of failure it was
            write_json(
                folder.error, {"kind": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
            )
        raise
    write_json(folder.wall, {"total_s": console.elapsed_s, "marks_s": console.marks})
    _conclude(folder, console, checked.captures)


def _run_in_guest(request: Request, folder: RunFolder, console: Console) -> None:
    from controller.selector.build import built
    from testbed.cache import cache_dir
    from testbed.guest.machine import Boot, boot

    built(cache=cache_dir())  # here, once: what a guest compiles is gone when it halts
    code = boot(
        Boot(
            command=(sys.executable, request.script, "--inside", f"{GUEST_FOLDER}/{folder.request.name}"),
            run_dir=folder.path,
            seed=request.seed,
            environment={"FABRIC_TESTBED_CACHE": str(cache_dir())},
            interactive=request.mn_cli and not folder.commands.exists(),
        ),
        on_line=partial(console.progress, logged=True),
    )
    if code != 0:
        raise _failure(folder, code)


def _failure(folder: RunFolder, code: int) -> TestbedError:
    """The error that the guest's side wrote down, as itself again."""
    if not folder.error.exists():
        return RunFailed(f"the experiment ended with exit code {code} in the guest; {folder.log} has what it said")
    found = read_json(folder.error)
    error = TestbedError(found["message"])
    error.exit_code = found["exit_code"]
    return error


def _run_here(
    experiment: Experiment,
    request: Request,
    checked: Checked,
    folder: RunFolder,
    console: Console,
    metrics: MetricsServer | None,
) -> None:
    from experiments import inside

    inside.run_inside(experiment, request, checked.settings, folder, say=console.progress, metrics=metrics)


def _conclude(folder: RunFolder, console: Console, captures: Captures) -> None:
    """Tables for the terminal, report.html for the browser, both from the folder alone."""
    from experiments import report
    from experiments.pcap_merge import write_run_capture
    from experiments.series.tables import write_series
    from experiments.trace_file import write_trace

    if not folder.results.exists():
        raise RunFailed(f"the run ended without results; {folder.log} has what it said")
    write_series(folder)
    write_trace(folder)
    write_run_capture(folder, captures.files)
    for table in report.tables(folder):
        console.say(table)
    report.write_page(folder)
    verdict = read_json(folder.results)
    if not verdict["valid"]:
        raise RunFailed("the run is not valid: " + "; ".join(verdict["reasons"]))
    console.say(f"\n{console.elapsed_s:.1f} s of wall time.  Report: {folder.report}")
