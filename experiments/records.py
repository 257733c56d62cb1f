"""What every run leaves behind whatever it measured: manifest.json, and results.json around the sections of its own."""

import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from experiments import balance
from experiments.bounds import verdict
from experiments.outages import outages, unrepaired
from experiments.results import FlowPath, LinkUse, Results, write_results
from experiments.run_folder import write_json
from testbed.counters import Counters
from testbed.port.interface import PortCounters

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from experiments.lab import Lab


def record_failures(lab: "Lab") -> list[str]:
    """Adds the section `failures`; returns what is wrong about repairs."""
    timeline = lab.timeline
    if not timeline.struck or timeline.start_ns is None:
        return []
    detections = lab.controller.ask({"do": "failures"})["detections"]
    lab.add("failures", outages(timeline.struck, detections, start_ns=timeline.start_ns, end=timeline.losses()))
    hosts = frozenset(lab.topology.link_of[nic.name].name for nic in lab.topology.host_interfaces())
    return unrepaired(detections, hosts)


def record_results(
    lab: "Lab", before: Mapping[str, Counters], after: Mapping[str, Counters], other_faults: Sequence[str]
) -> None:
    """results.json, with everything that is the same for every experiment, from counters around the run."""
    links = _link_use(lab, before, after)
    faults = (
        *verdict(topology=lab.topology, rows=lab.rows, links=links, sections=lab.sections),
        *lab.fabric.imbalances(),
        *lab.sockets.faults(),
        *other_faults,
    )
    lab.add("sockets", lab.sockets.section())
    paths = tcp_paths(lab)
    if phases := balance.phases(lab.topology, lab.readings):
        lab.add("balance", balance.section(lab.topology, phases, paths))
        lab.add("balance_over_time", balance.over_time(phases, start_ns=lab.started_ns))
    write_results(
        lab.folder.results,
        Results(
            valid=not faults,
            reasons=faults,
            experiment=lab.request.experiment,
            topology=lab.request.topology,
            policy=lab.request.policy,
            seed=lab.seed,
            clock=lab.request.clock,
            ranks=lab.ranks,
            rows=tuple(lab.rows),
            links=tuple(links),
            paths=tuple(paths),
            claims=tuple(lab.claims),
            **lab.sections,
        ),
    )


def _link_use(lab: "Lab", before: Mapping[str, Counters], after: Mapping[str, Counters]) -> list[LinkUse]:
    return [
        LinkUse.of(
            name=f"{sender.name}>{receiver.name}",
            rate_bps=link.rate_bps,
            tx_bytes=after[sender.name].tx_bytes - before[sender.name].tx_bytes,
            tx_packets=after[sender.name].tx_packets - before[sender.name].tx_packets,
            rx_packets=after[receiver.name].rx_packets - before[receiver.name].rx_packets,
            drops=after[sender.name].port.dropped_packets - before[sender.name].port.dropped_packets,
            busy_ns=lab.busy_ns,
        ).model_copy(update=_port_use(before[sender.name].port, after[sender.name].port))
        for link in lab.topology.links
        for sender, receiver in link.ends()
    ]


def _port_use(before: PortCounters, after: PortCounters) -> dict[str, Any]:
    """What the port in front of the link did, as fields of LinkUse."""
    use: dict[str, Any] = {
        "marks": after.marked_packets - before.marked_packets,
        "pauses_sent": after.pauses_sent - before.pauses_sent,
        "pauses_received": after.pauses_received - before.pauses_received,
        "paused_us": (after.paused_ns - before.paused_ns) / 1e3,
        "queue_max_bytes": after.queue_max_bytes,
    }
    if after.drops is not None and before.drops is not None:
        now, then = asdict(after.drops), asdict(before.drops)
        use["drops_by_cause"] = {cause: now[cause] - then[cause] for cause in now}
    return use


def tcp_paths(lab: "Lab") -> list[FlowPath]:
    """Every TCP connection of the jobs; the probe's datagrams are left out."""
    flows = lab.controller.ask({"do": "flows"})["flows"]
    return [FlowPath(**{**flow, "proto": "tcp"}) for flow in flows if flow["proto"] == socket.IPPROTO_TCP]


def record_manifest(lab: "Lab", experiment: "Experiment", settings: BaseModel) -> None:
    """manifest.json: what was asked for and what is in force."""
    virtual = lab.request.clock == "virtual"
    write_json(
        lab.folder.manifest,
        {
            "asked": lab.request.as_dict(),
            "question": experiment.question,
            "settings": settings.model_dump(mode="json"),
            "in_force": lab.fabric.in_force(),
            "policy": {**lab.plan.describe(), "warnings": lab.plan.warnings(lab.fabric.hosts.model_dump())},
            "controller": lab.controller.ask({"do": "describe"}),
            "kernel": platform.release(),
            "versions": {name: version(name) for name in ("torch", "ryu", "os-ken", "mininet", "pyroute2", "scapy")},
            "real": [
                "Linux TCP/IP in every host's own network namespace; every byte of every packet",
                "Open vSwitch's kernel datapath, its OpenFlow rules and the controller that installs them",
                "torch.distributed's gloo in every rank",
            ],
            "modelled": [
                "time: a virtual clock that stands still while processors work, so software costs no time"
                if virtual
                else "nothing of time: this machine's own clock and processors",
                "links: rate, delay and buffer by a queueing discipline at every egress",
                f"NIC interrupt moderation at hosts: {lab.fabric.hosts.moderation}",
                f"hosts' software: {lab.fabric.hosts.message_cost} per message, {lab.fabric.hosts.byte_cost} per MB",
            ],
        },
    )
