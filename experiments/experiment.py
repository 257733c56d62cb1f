"""An experiment is a plain script: a docstring with a drawing, a Settings class, a `run`, and one call of `main`.

    EXPERIMENT = Experiment(name="all_reduce", question="...", settings=Settings, run=run)

    if __name__ == "__main__":
        main(EXPERIMENT)

The same script runs twice: on the machine it reads the command line, checks all of it and boots a guest; in the
guest (`--inside`) it builds the fabric and runs `run`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments import run_folder
from experiments.console import Console, fail
from experiments.failure_schedule import read_failures
from experiments.port_plan import PortSettings
from experiments.request import HOST_PREFIX, PORT_PREFIX, Clock, Request, named_script, read_policy_file, split_settings
from experiments.settings import Settings, describe_settings, parse_settings
from testbed.host_settings import HostSettings
from topologies.errors import TestbedError, UserError

if TYPE_CHECKING:
    from experiments.lab import Lab


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What an experiment script declares."""

    name: str
    question: str
    """One line: what a user learns from it.  `./run list` prints it."""
    settings: type[Settings]
    run: Callable[["Lab", Any], None]
    """Called in the guest once the fabric carries traffic; the second argument is an instance of `settings`."""
    topology: str = "leaf_spine"
    policy: str = "ecmp"
    host: Mapping[str, str] = field(default_factory=dict)
    """Host settings that this experiment starts from where the user does not say otherwise."""
    failures: Sequence[str] = ()
    """What breaks where the user does not say otherwise."""
    events_from: str = "run"
    """Where times of failures and of the policy file count from: `run`, or the first `operation`."""
    sample: str = Request.sample
    """What `--sample` is where the user does not say otherwise."""
    needs_torch: bool = True
    """False spares the guest an import of three seconds."""


TopologyOption = Annotated[str, typer.Option(help="Fabric: NAME or FILE.yaml, then :key=value,... (see ./run list).")]
PolicyOption = Annotated[
    str, typer.Option(help="Ports and paths: PRESET or load balancer[:key=value,...] (see ./run list).")
]
PolicyFileOption = Annotated[
    Path | None, typer.Option(help="Changes of ports while the run is under way: `at 5ms: ecn.kmin=100kB`, or YAML.")
]
ClockOption = Annotated[
    str, typer.Option(help="virtual: exact, in the guest, without root.  real: this machine's kernel, as root.")
]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same packets.", min=0, max=2**32 - 1)]
FailuresOption = Annotated[
    Path | None, typer.Option(help="File of failures, a line each, as `--failure` takes them.", show_default=False)
]
FailureOption = Annotated[
    list[str],
    typer.Option(
        "--failure",
        help="What breaks when, repeatable: `at 2ms link leaf1-spine2 down` (or up, rate 25G, loss 0.1%, "
        "flap 10x every 1ms), `at 2ms switch spine1 down`.",
        show_default=False,
    ),
]
EventsFromOption = Annotated[
    str,
    typer.Option(
        help="Times of failures and of the policy file count from the start of the `run`, or of its first `operation`."
    ),
]
DetectionDelayOption = Annotated[
    str, typer.Option(help="How long a link must be down, or up again, before the controller believes it.")
]
SetOption = Annotated[list[str], typer.Option("--set", help="key=value, repeatable; the keys are listed below.")]
PcapOption = Annotated[
    str,
    typer.Option(
        help="Capture at: none, hosts, all, or NAME,... of hosts, switches or interfaces; which packets after a colon: "
        "`hosts:class=3,window=2ms-8ms,snap=96` (also dscp=, files=both|each|run)."
    ),
]
SampleOption = Annotated[
    str,
    typer.Option(
        help="Look at every port and socket each PERIOD (10us), `adaptive`, or `off`.  [auto: adaptive, if that takes "
        "nothing of the run's time]"
    ),
]
MetricsOption = Annotated[
    int | None,
    typer.Option(
        help="Serve counters to Prometheus at http://127.0.0.1:PORT/metrics while the run lasts (--clock real).",
        metavar="PORT",
        show_default=False,
    ),
]
OutOption = Annotated[Path | None, typer.Option(help="The run's folder (new or empty).  [default: runs/TIME-NAME]")]
MnCliOption = Annotated[bool, typer.Option("--mn-cli", help="Open Mininet's CLI on the fabric after the experiment.")]
InsideOption = Annotated[Path | None, typer.Option("--inside", hidden=True)]


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> None:
    """Runs the script's command line and exits with 0, 1 (run failed), 2 (user's mistake) or 3 (machine lacks)."""
    script = Path(sys.argv[0]).resolve()
    application = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @application.command(help=_help(experiment), epilog=_epilog(experiment))
    def command(
        topology: TopologyOption = experiment.topology,
        policy: PolicyOption = experiment.policy,
        policy_file: PolicyFileOption = None,
        failures: FailuresOption = None,
        failure: FailureOption = [],  # noqa: B006 - typer copies it
        events_from: EventsFromOption = experiment.events_from,
        detection_delay: DetectionDelayOption = "1ms",
        clock: ClockOption = "virtual",
        seed: SeedOption = 1,
        settings: SetOption = [],  # noqa: B006 - typer copies it
        pcap: PcapOption = "none",
        sample: SampleOption = experiment.sample,
        metrics: MetricsOption = None,
        out: OutOption = None,
        mn_cli: MnCliOption = False,
        inside: InsideOption = None,
    ) -> None:
        if inside is not None:
            _run_inside(experiment, inside)
            return
        own, host, port = split_settings(settings)
        request = Request(
            experiment=experiment.name,
            script=named_script(script),
            topology=topology,
            policy=policy,
            clock=_clock(clock),
            seed=seed,
            settings=own,
            host={**experiment.host, **host},
            port=port,
            policy_changes=read_policy_file(policy_file),
            failures=read_failures(failures, failure or ([] if failures else experiment.failures)),
            events_from=events_from,
            detection_delay=detection_delay,
            pcap=pcap,
            sample=sample,
            mn_cli=mn_cli,
        )
        execute(experiment, request, out=out, metrics=metrics)

    guarded(lambda: application(args=list(arguments) if arguments is not None else None, standalone_mode=True))


def guarded(command: Callable[[], object]) -> None:
    """Calls `command`; an error of ours becomes one message and its exit code."""
    try:
        command()
    except TestbedError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        fail("interrupted")
        sys.exit(130)


def execute(
    experiment: Experiment, request: Request, *, out: Path | None, metrics: int | None = None
) -> run_folder.RunFolder:
    """Checks the request, runs it in a new run folder, reports it, returns the folder.  Raises TestbedError.

    `metrics` is the port at which counters are served meanwhile.
    """
    from experiments import session  # boots guests and draws reports: nothing that `--help` should wait for
    from experiments.metrics_server import MetricsServer, check_metrics

    check_metrics(metrics, request.clock)
    checked = session.check(experiment, request)
    folder = run_folder.create(experiment.name, out=out, now=datetime.now())
    with Console(folder.log) as console, ExitStack() as stack:
        server = None if metrics is None else stack.enter_context(MetricsServer(metrics))
        session.run(experiment, request, checked, folder, console, server)
    return folder


def _run_inside(experiment: Experiment, request_file: Path) -> None:
    from experiments import inside

    request = Request.read(request_file)
    settings = parse_settings(experiment.settings, request.settings)
    inside.run_inside(experiment, request, settings, run_folder.RunFolder(request_file.parent))


def _clock(text: str) -> Clock:
    if text == "virtual":
        return "virtual"
    if text == "real":
        return "real"
    raise UserError(f"--clock {text}: no such clock; known: real, virtual")


def _help(experiment: Experiment) -> str:
    module = sys.modules[experiment.run.__module__]
    drawing = (module.__doc__ or experiment.question).strip()
    return "\n\n".join("\b\n" + paragraph for paragraph in drawing.split("\n\n"))


def _epilog(experiment: Experiment) -> str:
    rows = [
        *describe_settings(experiment.settings),
        *describe_settings(HostSettings, prefix=HOST_PREFIX, instead=experiment.host),
        *describe_settings(PortSettings, prefix=PORT_PREFIX),
    ]
    lines = [f"  {key}={default}\n      {meaning}" for key, default, meaning in rows]
    return "\b\nKeys of --set, with their defaults:\n" + "\n".join(lines)
