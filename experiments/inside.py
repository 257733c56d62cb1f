"""A run where its fabric is: in the guest, or on this machine under the real clock.

fabric -> controller -> probe -> [captures, samples: experiment.run(lab) -> rest] -> manifest.json, results.json
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from pydantic import BaseModel

from experiments.control import ControllerProcess
from experiments.experiment import Experiment
from experiments.failure_schedule import parse_failures
from experiments.lab import SETTLE_STEP_S, SETTLE_TIMEOUT_S, Lab, Say
from experiments.metrics_server import MetricsServer, live_metrics
from experiments.pcap import parse_captures
from experiments.port_plan import PortPlan, PortSettings
from experiments.real_clock import Watch, calibration_faults, faults
from experiments.records import record_failures, record_manifest, record_results
from experiments.request import HOST_PREFIX, PORT_PREFIX, Request
from experiments.run_folder import RunFolder, read_json, write_json
from experiments.series.recording import Recording
from experiments.series.sampling import parse_sampling
from experiments.settings import parse_settings
from experiments.socket_audit import SocketAudit
from experiments.sums import sums_faults
from experiments.tcp_events import TcpEvents, read_events, section
from experiments.timeline import Timeline, events_from
from testbed import clean
from testbed.calibration import calibrate
from testbed.capture import Capture
from testbed.counters import Counters
from testbed.fabric import Fabric
from testbed.host_settings import HostSettings
from testbed.probe import probe
from testbed.workers.syscalls import set_timer_slack
from topologies.errors import RunFailed, TestbedError
from topologies.json_form import from_json
from topologies.units import parse_delay


def run_inside(
    experiment: Experiment,
    request: Request,
    settings: BaseModel,
    folder: RunFolder,
    *,
    say: Say | None = None,
    metrics: MetricsServer | None = None,
) -> None:
    """Builds the fabric of `request`, runs the experiment on it, writes manifest.json and results.json.

    Without `say` it is the guest's main program: errors become error.json and the exit code.
    """
    if say is not None:
        _run(experiment, request, settings, folder, say, metrics)
        return
    try:
        _run(experiment, request, settings, folder, _print)
    except TestbedError as error:
        write_json(folder.error, {"kind": type(error).__name__, "message": str(error), "exit_code": error.exit_code})
        sys.exit(error.exit_code)


def _run(
    experiment: Experiment,
    request: Request,
    settings: BaseModel,
    folder: RunFolder,
    say: Say,
    metrics: MetricsServer | None = None,
) -> None:
    topology = from_json(read_json(folder.topology))
    kind = parse_settings(PortSettings, request.port, prefix=PORT_PREFIX).kind
    plan = PortPlan.of(policy=request.policy, topology=topology, seed=request.seed, kind=kind)
    wanted = plan.host_settings(request.host)
    host = parse_settings(HostSettings, wanted, prefix=HOST_PREFIX)
    for warning in plan.warnings(wanted):
        say(f"warning: {warning}")
    # We let ranks go at their line-ups: with Linux's 50 us of slack, other timers would move their start.
    set_timer_slack(1)
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(topology=topology, hosts=host, port=plan.port()))
        say(f"fabric: {len(topology.switches)} switches, {len(topology.hosts)} hosts, {len(topology.links)} links")
        controller = stack.enter_context(
            ControllerProcess(
                topology=folder.topology,
                policy=plan.composition.balancer_spec,
                seed=request.seed,
                detection_delay=request.detection_delay,
                flow_cache=fabric.switches.unixctl,
                log=folder.controller_log,
                socket_path=clean.STATE / fabric.tag / "controller.sock",
            )
        )
        fabric.connect(controller.endpoint)
        ready = controller.wait_ready()
        say(f"controller: {ready['rules']} rules on {ready['switches']} switches, all acknowledged")
        timeline = stack.enter_context(
            Timeline(
                fabric,
                plan,
                steps=plan.steps(request.policy_changes),
                failures=parse_failures(request.failures, topology),
                zero=events_from(request.events_from),
                notice=lambda rates_bps: controller.ask({"do": "rates", "rates_bps": dict(rates_bps)}),
                detection_ns=parse_delay(request.detection_delay),
            )
        )
        recording = Recording(fabric, parse_sampling(request.sample, port_kind=kind, clock=request.clock))
        lab = Lab(
            request=request,
            topology=topology,
            fabric=fabric,
            plan=plan,
            sockets=stack.enter_context(SocketAudit()),
            controller=controller,
            folder=folder,
            say=say,
            timeline=timeline,
            started_ns=time.monotonic_ns(),
            longest_queue=recording.longest_queue,
        )
        _prove_connectivity(lab)
        record_manifest(lab, experiment, settings)
        calibrated = calibrate(fabric) if request.clock == "real" else []
        before = _Seen.on(lab)
        packets = _capture(lab)
        watch = Watch(real_clock=request.clock == "real")
        with watch, packets as capture, recording, live_metrics(metrics, fabric):
            timeline.at_start.append(capture.begin)
            timeline.ready()
            experiment.run(lab, settings)
            recording.rest()
            if request.mn_cli:
                _open_cli(lab)
            timeline.stop()
            _settle(lab)
        if calibrated:
            lab.add("calibration", [asdict(each) for each in calibrated])
        _conclude(lab, before, watch, capture, recording, calibration_faults(calibrated))


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What everything had counted at an instant."""

    ports: Mapping[str, Counters]
    tcp: Mapping[str, TcpEvents]

    @classmethod
    def on(cls, lab: Lab) -> "_Seen":
        hosts = [lab.fabric.net.get(host.name) for host in lab.topology.hosts]
        return cls(ports=lab.sample(), tcp=read_events(hosts))


def _conclude(
    lab: Lab, before: _Seen, watch: Watch, capture: Capture, recording: Recording, known: Sequence[str]
) -> None:
    """Series and results.json, with what is wrong about either, and what was `known` to be before."""
    timeline = lab.timeline
    recording.write(lab.folder.series, events_start_ns=timeline.start_ns)
    if timeline.events:
        lab.fabric.verify()
    lab.sections.setdefault("events", []).extend(timeline.events)
    after = _Seen.on(lab)
    lab.add("tcp", section(before.tcp, after.tcp))
    sent = {name: now.tx_bytes - before.ports[name].tx_bytes for name, now in after.ports.items()}
    slow = faults(watch.observed, lab.topology, sent, busy_ns=lab.busy_ns)
    sums = sums_faults(
        before.ports,
        after.ports,
        sampled=recording.totals(),
        captured={} if timeline.struck else capture.whole,
        topology=lab.topology,
    )
    found = [*known, *capture.faults(), *sums, *timeline.missed(), *record_failures(lab), *slow]
    record_results(lab, before.ports, after.ports, found)


def _capture(lab: Lab) -> Capture:
    wanted = parse_captures(lab.request.pcap, lab.plan)
    return Capture(
        interfaces=lab.fabric.taps(wanted.interfaces),
        directory=lab.folder.pcap,
        snap_bytes=wanted.snap_bytes,
        selection=wanted.selection,
        window=wanted.window,
    )


def _prove_connectivity(lab: Lab) -> None:
    seats = [lab.seat(host.name) for host in lab.topology.hosts]
    pairs = probe({seat.host: (lab.fabric.net.get(seat.host).namespace, seat.addresses) for seat in seats})
    lab.say(f"probe: {pairs} pairs of addresses reach each other")


def _open_cli(lab: Lab) -> None:
    """A prompt for a person, or the lines that were piped in, one after the other."""
    from mininet.cli import CLI

    CLI(lab.fabric.net, script=str(lab.folder.commands) if lab.folder.commands.exists() else None)


def _settle(lab: Lab) -> None:
    """Waits until nothing is queued, on a wire or about to be sent, so that the books can balance.

    Raises RunFailed when the fabric does not come to rest: somebody sends for ever.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    before = lab.sample()
    while True:
        time.sleep(SETTLE_STEP_S)  # what is awaited is that nothing happens for this long
        now = lab.sample()
        if now == before and not any(counters.port.backlog_packets for counters in now.values()):
            return
        if time.monotonic() > deadline:
            raise RunFailed(f"the fabric still carries packets {SETTLE_TIMEOUT_S:g} s after the experiment ended")
        before = now


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
