"""`python -m controller`: the OpenFlow controller of a fabric, for our own runs and for anyone's Mininet.

python -m controller --topology leaf_spine:leaves=4,spines=4,hosts=4 --policy ecmp
mn --custom topologies/leaf_spine.py --topo leaf_spine,4,4,4 --controller remote
"""

import argparse
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from controller import compat
from controller.alarm import Alarm
from controller.app import App
from controller.control import Control, port_stats_json
from controller.core import Core
from controller.failures import DEFAULT_DELAY_NS, Failures
from controller.flow_cache import forget
from controller.forwarding import plan
from controller.paths import Paths
from controller.policies import POLICIES
from controller.policies.base import Policy
from controller.port_policies.composition import parse_composition
from controller.selector.build import built
from controller.selector.selector import MOST_FLOWS, Selector
from controller.selector.watch import Removals
from topologies.errors import MissingFeature, TestbedError, UserError
from topologies.graph import leaf_of
from topologies.json_form import from_json
from topologies.model import Topology
from topologies.registry import TOPOLOGIES, parse_topology
from topologies.units import format_delay, parse_delay

LOG = logging.getLogger("controller")
PR_SET_PDEATHSIG = 1
"""linux/prctl.h."""
LONG_WAIT_S = 3600.0
"""One wait of a watcher that has nothing else to do; it then waits again."""


def main(arguments: list[str] | None = None) -> int:
    """Runs until a signal, `shutdown` or, if asked, the parent's death; the exit code is the error's."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    LOG.setLevel(logging.DEBUG if options.verbose else logging.INFO)
    try:
        if options.die_with_parent:
            _die_with_parent(os.getppid())
        _run(options)
    except TestbedError as error:
        sys.stderr.write(f"controller: {error}\n")
        return error.exit_code
    return 0


def _run(options: argparse.Namespace) -> None:
    topology, policy = read_topology(options.topology), parse_composition(options.policy).balancer
    address = _address(options.listen)
    rules = plan(topology)
    with ExitStack() as undo:
        stop, stopped = undo.enter_context(_stop_pipe())
        framework = compat.load(options.framework)
        hosts = {end.ip: leaf_of(topology, end.name).name for end in topology.host_interfaces() if end.ip is not None}
        selector = undo.enter_context(Selector(built(), hosts, flows=options.flows))
        alarm = undo.enter_context(Alarm())
        failures = Failures(
            topology,
            alarm,
            delay_ns=_detection_delay(options.detection_delay),
            written=partial(forget, Path(options.flow_cache)) if options.flow_cache else _nothing,
        )

        paths = Paths(topology, selector, policy, seed=options.seed, alarm=undo.enter_context(Alarm()))
        paths.use(policy)
        app = App(framework, Core(topology, rules), selector, select=paths.select, port_seen=failures.port_seen)
        framework.start(app.application, address)
        if options.control:
            control = Control(
                app,
                selector,
                _description(options, framework, policy),
                stop,
                failures.report,
                paths.use_spec,
                paths.down_of,
                paths.run_at,
            )
            framework.hub.spawn(control.serve, undo.enter_context(_control_socket(framework, options.control)))
        framework.hub.spawn(_announce, app)
        framework.hub.spawn(paths.guard, framework.wait_readable)
        framework.hub.spawn(failures.guard, app, framework.wait_readable)
        framework.hub.spawn(_guard, app, selector, undo.enter_context(Removals()))
        if options.poll:
            framework.hub.spawn(_poll, app, options.poll)
        LOG.info("%s %s listens on %s:%s", framework.name, framework.version, *address)
        framework.wait_readable(stopped)
        LOG.info("ends")


def read_topology(spec: str) -> Topology:
    """A topology by its name and parameters, or from a file in the form of topologies.json_form.  Raises UserError."""
    if not spec.endswith(".json"):
        return parse_topology(spec)
    try:
        return from_json(json.loads(Path(spec).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UserError(f"--topology {spec}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    policies = "\n".join(
        "\n".join([f"  {name:10} {each.summary}", *(f"    {key:10} {text}" for key, text in each.parameters().items())])
        for name, each in POLICIES.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m controller",
        description="Installs every rule of a fabric, selects paths by a policy, floods nothing.",
        epilog=f"policies (NAME:key=value,...):\n{policies}\n\ntopologies: {', '.join(TOPOLOGIES)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--topology",
        required=True,
        metavar="NAME[:k=v,...]|FILE",
        help="what the fabric is; the switches must match it",
    )
    add("--policy", default="ecmp", metavar="NAME[:k=v,...]", help="how paths are chosen (default ecmp)")
    add("--listen", default="127.0.0.1:6653", metavar="HOST:PORT", help="where switches connect (default %(default)s)")
    add("--control", metavar="PATH", help="Unix socket for JSON requests (controller/control.py)")
    add("--framework", metavar="|".join(compat.FRAMEWORKS), help="default: ryu where installed, else os_ken")
    add("--seed", type=int, default=1, help="the run's seed (default %(default)s)")
    add("--flows", type=int, default=MOST_FLOWS, help="entries of the flow table (default %(default)s)")
    add(
        "--detection-delay",
        metavar="TIME",
        default=format_delay(DEFAULT_DELAY_NS),
        help="how long a port must be down, or up again, before packets take other paths (default %(default)s)",
    )
    add(
        "--flow-cache",
        metavar="PATH",
        help="where ovs-vswitchd listens (--unixctl): its cache is forgotten when a repair is in the tables",
    )
    add("--poll", type=float, metavar="SECONDS", help="write all port counters to stdout this often, as JSON lines")
    add("--die-with-parent", action="store_true", help="end when the process that started this one ends")
    add("--verbose", action="store_true", help="log more")
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise UserError(f"--listen {text}: write HOST:PORT, for instance 127.0.0.1:6653")
    return host, int(port)


def _nothing() -> None:
    """Without `--flow-cache` the switches' cache is left to them."""


def _detection_delay(text: str) -> int:
    try:
        return parse_delay(text)
    except UserError as error:
        raise UserError(f"--detection-delay: {error}") from None


def _description(options: argparse.Namespace, framework: compat.Framework, policy: Policy) -> dict[str, object]:
    return {
        "framework": f"{framework.name} {framework.version}",
        "openflow": "1.3",
        "policy": options.policy,
        "policy_parameters": {name: getattr(policy, name) for name in policy.parameters()},
        "seed": options.seed,
        "detection_delay_ns": _detection_delay(options.detection_delay),
        "flow_table_entries": options.flows,
    }


@contextmanager
def _stop_pipe() -> Iterator[tuple[Any, int]]:
    """A function that asks for the end, and a descriptor that can be read when somebody did; signals ask too."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield lambda: os.write(writer, b"\0"), reader
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)


@contextmanager
def _control_socket(framework: compat.Framework, path: str) -> Iterator[Any]:
    if Path(path).exists():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                raise UserError(f"--control {path}: another controller answers there; choose another path")
        Path(path).unlink()
    try:
        listener = framework.listen_unix(path)
    except OSError as error:
        raise UserError(f"--control {path}: {error.strerror}") from None
    try:
        yield listener
    finally:
        Path(path).unlink(missing_ok=True)


def _announce(app: App) -> None:
    """Says on the log when the fabric becomes ready, and when it no longer is."""
    while True:
        if app.wait(lambda: not app.problems(), LONG_WAIT_S):
            LOG.info("ready: %s switches, %s rules", len(app.core.topology.switches), app.core.rule_count)
            while not app.wait(lambda: bool(app.problems()), LONG_WAIT_S):
                continue
            LOG.info("no longer ready: %s", "; ".join(app.problems()))


def _guard(app: App, selector: Selector, removals: Removals) -> None:
    """Puts the selector back wherever somebody took it away."""
    while True:
        app.framework.wait_readable(removals.fileno())
        for port in selector.lost(removals.take()):
            LOG.info("the selector was taken away from %s and is put back", port)
            app.attach(port)


def _poll(app: App, period_s: float) -> None:
    """Counters at a fixed period, from the moment that the fabric is ready."""
    while not app.wait(lambda: not app.problems(), LONG_WAIT_S):
        continue
    due = time.monotonic()
    while True:
        line = {"time_s": time.monotonic(), "ports": port_stats_json(app)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        due += period_s
        app.framework.hub.sleep(max(due - time.monotonic(), 0))


def _die_with_parent(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise MissingFeature("--die-with-parent: prctl(PR_SET_PDEATHSIG) failed", "run on Linux")
    if os.getppid() != parent:
        raise UserError("--die-with-parent: the parent has already ended")


if __name__ == "__main__":
    sys.exit(main())
