"""From `--policy` to ports, hosts and the controller's process: where the two sides that may not know each other meet.

--policy roce:lb=flowlet,kmin=4us,cc=dctcp
    |-- load balancer       -> the controller's process
    |-- ports, in bytes     -> testbed: one PortConfig per interface, a buffer number per switch
    `-- cc, ecn             -> testbed: HostSettings, unless `--set host.*` says otherwise
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from controller.port_policies.base_rtt import base_rtt_ns
from controller.port_policies.changes import Step, parse_changes, plan_changes
from controller.port_policies.composition import Composition, parse_composition
from controller.port_policies.decision import Lossless, PortDecision, decide
from controller.port_policies.settings import DATA_CLASS
from testbed.port.config import CLASSES, ClassConfig, Marking, PortConfig, Watchdog
from testbed.port.fabric_port import FabricPort
from testbed.port.interface import Port
from testbed.port.registry import port_named
from topologies.errors import UserError
from topologies.model import Topology


class PortSettings(BaseModel):
    """`--set port.KEY=VALUE`: what ports are made of.  How they behave is the policy's."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    kind: Literal["fabric", "stock"] = Field(
        "fabric",
        description="fabric: our qdisc (shared buffer, ECN, PFC); stock: netem and a policer, a buffer per link",
    )


@dataclass(frozen=True, kw_only=True)
class PortPlan:
    """Everything that a policy means on a fabric."""

    composition: Composition
    topology: Topology
    seed: int
    kind: str = "fabric"

    @classmethod
    def of(cls, *, policy: str, topology: Topology, seed: int, kind: str = "fabric") -> "PortPlan":
        """Decides all of it.  Raises UserError for what cannot be."""
        plan = cls(composition=parse_composition(policy), topology=topology, seed=seed, kind=kind)
        ports = plan.composition.ports
        if kind != FabricPort.name and (ports.marks or ports.pfc):
            raise UserError(f"--policy {policy}: ports of kind {kind} have neither ECN nor PFC; leave port.kind out")
        if kind != FabricPort.name and ports != type(ports)(cc=ports.cc):
            raise UserError(f"--policy {policy}: ports of kind {kind} have none of these settings; leave port.kind out")
        _ = plan.decisions
        return plan

    @cached_property
    def decisions(self) -> Mapping[str, PortDecision]:
        """Interface -> what the controller decided, in bytes."""
        return decide(self.composition.ports, self.topology)

    def port(self) -> Port:
        """What the fabric is built with."""
        if self.kind != FabricPort.name:
            return port_named(self.kind)
        return FabricPort({name: self.config(decision) for name, decision in self.decisions.items()})

    def config(self, decision: PortDecision) -> PortConfig:
        """A decision in the testbed's words."""
        link = self.topology.link_of[decision.interface]
        switches = [switch.name for switch in self.topology.switches]
        return PortConfig(
            rate_bps=link.rate_bps,
            delay_ns=link.delay_ns,
            overhead_bytes=decision.overhead_bytes,
            limit_bytes=decision.limit_bytes,
            dscp_classes=decision.dscp_classes,
            default_class=DATA_CLASS,
            seed=_seed(self.seed, decision.interface),
            buffer_id=switches.index(decision.node) + 1 if decision.is_switch else 0,
            buffer_bytes=decision.buffer_bytes,
            pause_quanta=decision.lossless.quanta if decision.lossless else PortConfig(rate_bps=1).pause_quanta,
            classes=tuple(_class(decision, index) for index in range(CLASSES)),
        )

    def steps(self, changes: str) -> tuple[Step, ...]:
        """What a policy file does and when.  Raises UserError."""
        if not changes:
            return ()
        if self.kind != FabricPort.name:
            raise UserError(f"--policy-file: ports of kind {self.kind} cannot change; leave port.kind out")
        return plan_changes(self.composition.ports, self.topology, parse_changes(changes))

    def host_settings(self, asked: Mapping[str, str]) -> dict[str, str]:
        """`asked` is `--set host.*`, which wins.  Raises UserError for DCTCP with ECN switched off."""
        found = {**self.composition.host_settings, **asked}
        if found["cc"] == "dctcp":
            if asked.get("ecn", "on") != "on":
                raise UserError(
                    "host.cc=dctcp with host.ecn=" + asked["ecn"] + ": the kernel's dctcp negotiates ECN all the same; "
                    "leave host.ecn out, or choose another congestion control"
                )
            found["ecn"] = "on"
        return found

    def warnings(self, host: Mapping[str, str]) -> tuple[str, ...]:
        """What may be asked for but will not do what its name promises."""
        marks, found = self.composition.ports.marks, []
        if host["cc"] == "dctcp" and not marks:
            found.append("DCTCP without marks: no port marks anything, so it behaves like Reno")
        if marks and host["ecn"] != "on":
            found.append(f"ports mark, but hosts with ecn={host['ecn']} do not take part: nothing can be marked")
        return tuple(found)

    def describe(self) -> dict[str, object]:
        """For the manifest, beside what is in force at every port."""
        buffers = {decision.node: decision.buffer_bytes for decision in self.decisions.values() if decision.is_switch}
        return {
            "asked": self.composition.spec,
            "preset": self.composition.preset,
            "load_balancer": self.composition.balancer_spec,
            "port_settings": self.composition.ports.written(),
            "data_class": DATA_CLASS,
            "base_rtt_ns": base_rtt_ns(self.topology),
            "switch_buffer_bytes": buffers if self.kind == FabricPort.name else {},
        }


def _class(decision: PortDecision, index: int) -> ClassConfig:
    if index not in decision.classes_in_use:
        return ClassConfig()
    lossless = decision.lossless if index == DATA_CLASS else None
    marking = decision.marking
    shared = ClassConfig(
        priority=decision.priority(index),
        egress_alpha=Fraction(0) if lossless else decision.egress_alpha,
        marking=Marking(kmin=marking.kmin_bytes, kmax=marking.kmax_bytes, pmax=marking.pmax) if marking else None,
        reserve_bytes=decision.reserve_bytes,
        alpha=decision.ingress_alpha if index == DATA_CLASS else Fraction(0),
    )
    return _with_pfc(shared, lossless) if lossless else shared


def _with_pfc(base: ClassConfig, lossless: Lossless) -> ClassConfig:
    watchdog = lossless.watchdog
    return ClassConfig(
        priority=base.priority,
        marking=base.marking,
        reserve_bytes=base.reserve_bytes,
        pfc=True,
        headroom_bytes=lossless.headroom_bytes,
        alpha=lossless.alpha,
        xoff_bytes=lossless.xoff_bytes,
        xon_offset_bytes=lossless.xon_offset_bytes,
        watchdog=Watchdog(limit_ns=watchdog.limit_ns, restore_ns=watchdog.limit_ns, forward=watchdog.forward)
        if watchdog
        else None,
    )


def _seed(seed: int, interface: str) -> int:
    """Every port draws its own lots, from the run's seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{interface}".encode()).digest()[:8], "little")
