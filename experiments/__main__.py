"""The commands of `./run` that are not experiment scripts.  `./run --help` lists them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.console import Console
from experiments.experiment import ClockOption, PolicyOption, SeedOption, SetOption, TopologyOption, execute, guarded
from experiments.request import Request, named_script, split_settings
from topologies.errors import MissingFeature, UserError

HELP = """\b
Packet-level network emulation for distributed AI training.

\b
  ./run demo                        a ring all-reduce on a 100 Gb/s leaf/spine, from nothing to a report
  ./run experiments/all_reduce.py   an experiment: each is a script with its own --help
  ./run test                        all tests and linters
"""

app = typer.Typer(
    help=HELP, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True
)
NEEDS_OUT = Annotated[Path | None, typer.Option(help="The run's folder (new or empty).")]


def _request(
    name: str,
    topology: str,
    policy: str,
    *,
    seed: int,
    settings: list[str],
    clock: str = "virtual",
    mn_cli: bool = False,
) -> Request:
    own, host, port = split_settings(settings)
    if clock not in ("virtual", "real"):
        raise UserError(f"--clock {clock}: no such clock; known: real, virtual")
    script = Path(__file__).parent / f"{name}.py"
    return Request(
        experiment=name,
        script=named_script(script),
        topology=topology,
        policy=policy,
        seed=seed,
        settings=own,
        host=host,
        port=port,
        clock="real" if clock == "real" else "virtual",
        mn_cli=mn_cli,
    )


@app.command()
def demo(seed: SeedOption = 1, out: NEEDS_OUT = None) -> None:
    """Ring all-reduce of 1, 16 and 64 MB by 16 ranks on 4 leaves x 4 hosts and 4 spines, 100 Gb/s, ECMP."""
    from experiments.catalogue import load

    experiment = load("all_reduce")
    request = _request("all_reduce", experiment.topology, experiment.policy, seed=seed, settings=[])
    execute(experiment, request, out=out)


@app.command(name="list")
def list_() -> None:
    """Experiments, topologies and policies, one line each."""
    from controller.policies import POLICIES
    from controller.port_policies.composition import PRESETS
    from controller.port_policies.settings import PortPolicy
    from experiments.catalogue import load, scripts
    from topologies.registry import TOPOLOGIES

    with Console() as console:
        console.say("Experiments  (./run experiments/NAME.py --help)")
        for path in scripts():
            console.say(f"  {path.stem:20} {load(path.stem).question}")
        console.say("\nTopologies  (--topology NAME[:key=value,...] or a .yaml file)")
        for generator in TOPOLOGIES.values():
            console.say(f"  {generator.name:20} {generator.summary}")
            keys = ", ".join(f"{p.name}={p.default}" for p in generator.parameters)
            console.say(f"  {'':20} {keys}")
        console.say("\nPolicies  (--policy NAME[:key=value,...]): how ports behave; lb=... says how paths are chosen")
        for preset in PRESETS.values():
            console.say(f"  {preset.name:20} {preset.summary}")
        console.say(f"  {'':20} {', '.join(f'{key}={value}' for key, value in PortPolicy().written().items())}")
        console.say("\nLoad balancers  (--policy PRESET:lb=NAME,..., or alone: its ports are lossy)")
        for policy in POLICIES.values():
            console.say(f"  {policy.name:20} {policy.summary}")


@app.command()
def topology(
    spec: Annotated[str, typer.Argument(help="NAME[:key=value,...] or FILE.yaml")],
    svg: Annotated[Path | None, typer.Option(help="Where the picture goes.  [default: NAME.svg]")] = None,
) -> None:
    """A fabric in words, its bisection and oversubscription, and a picture."""
    from topologies.description import describe
    from topologies.drawing import draw
    from topologies.registry import parse_topology

    fabric = parse_topology(spec)
    target = svg or Path(f"{fabric.name}.svg")
    target.write_text(draw(fabric))
    with Console() as console:
        for line in describe(fabric).lines():
            console.say(line)
        console.say(f"picture: {target}")


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Rebuild tables and report.html from a run folder."""
    from experiments import report as reports
    from experiments.run_folder import RunFolder

    run = RunFolder(folder.resolve())
    with Console() as console:
        for table in reports.tables(run):
            console.say(table)
        reports.write_page(run)
        console.say(f"report: {run.report}")


@app.command()
def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders of one experiment; changes are against the first.")
    ],
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("compare.html"),
) -> None:
    """What runs were asked differently, what got better by how much, and their figures laid over each other."""
    from experiments.report import compare as comparison

    runs = comparison.read_runs(folders)
    out.write_text(comparison.page(runs))
    with Console() as console:
        for table in comparison.tables(runs):
            console.say(table.text() + "\n")
        console.say(f"comparison: {out}")


@app.command()
def pcap(
    folder: Annotated[Path, typer.Argument(help="A run folder with captures (--pcap).")],
    top: Annotated[int, typer.Option(help="So many flows, the biggest first.", min=1)] = 20,
) -> None:
    """What captures say: per interface, step and flow, retransmissions, reordering, marks, pauses; what happened."""
    from experiments import pcap_tables
    from experiments.run_folder import RunFolder

    traffic = pcap_tables.read_traffic(RunFolder(folder.resolve()))
    flows = pcap_tables.flow_rows(traffic.ports)
    with Console() as console:
        for rows in (pcap_tables.port_rows(traffic.ports), pcap_tables.step_rows(traffic)):
            if rows:
                console.say(pcap_tables.text(rows) + "\n")
        for event in traffic.events:
            console.say(event)
        console.say(pcap_tables.text(flows[:top]))
        if len(flows) > top:
            console.say(f"and {len(flows) - top} more flows; --top {len(flows)} shows all")


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    format_name: Annotated[
        str, typer.Option("--format", help="csv; hpcc: fct.txt, qlen.txt, pfc.txt; nccl: table and JSON; prometheus.")
    ] = "csv",
) -> None:
    """A run for other tools, into the folder's `export`: CSV, HPCC's files, nccl-tests' output, Prometheus' text."""
    from experiments.export import export as write
    from experiments.run_folder import RunFolder

    written = write(RunFolder(folder.resolve()), format_name)
    with Console() as console:
        for path in written.paths:
            console.say(f"wrote {path}")
        for name, why in written.left_out.items():
            console.say(f"{name}: {why}")


@app.command()
def shell(
    topology: TopologyOption = "leaf_spine",
    policy: PolicyOption = "ecmp",
    clock: ClockOption = "virtual",
    seed: SeedOption = 1,
    settings: SetOption = [],  # noqa: B006 - typer copies it
    out: NEEDS_OUT = None,
) -> None:
    """Mininet's own CLI on the fabric: `h1 ping -c3 h16`, `link leaf1 spine1 down`, `help`."""
    from experiments.shell import EXPERIMENT

    execute(
        EXPERIMENT, _request("shell", topology, policy, seed=seed, settings=settings, clock=clock, mn_cli=True), out=out
    )


@app.command()
def bench(out: NEEDS_OUT = None) -> None:
    """How many packet-hops a second of wall time this machine emulates."""
    from experiments.bench import measure

    with Console() as console:
        for line in measure(console, out=out):
            console.say(line)


@app.command()
def doctor() -> None:
    """What this machine can do for each clock, what is missing and how to get it."""
    from testbed.doctor import inspect

    with Console() as console:
        capabilities = inspect()
        console.say(str(capabilities))
    if not capabilities.ready("virtual"):
        raise MissingFeature("the virtual clock is not ready", "the lines above say how to get what is missing")


@app.command()
def clean() -> None:
    """Remove what killed runs left on this machine; touches nothing that is not ours."""
    from testbed.clean import clean as sweep

    with Console() as console:
        removed = sweep()
        for thing in removed:
            console.say(f"removed {thing}")
        console.say(f"{len(removed)} things removed")


if __name__ == "__main__":
    guarded(lambda: app(prog_name="./run", args=sys.argv[1:]))
