"""Other policies on the ports of a running fabric, one after the other: a sweep without a boot per point.

    with PortsInForce(lab) as ports:
        plan = ports.use("dctcp:kmin=100kB")          a policy as `--policy` says it
        plan = ports.vary({"kmin": "50kB"})           the run's own policy with keys changed
        lab.job(program, ..., cc=plan.host_settings({})["cc"])

Load balancers stay as the run has them: they are the controller's, not the ports'.  What waits in a port stays there;
all settings are read back.  On leaving, the run's own policy is in force again.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from experiments.lab import Lab
from experiments.port_plan import PortPlan
from testbed.netlink import NetlinkSocket
from testbed.port.config import PortConfig
from testbed.port.fabric_port import FabricPort
from topologies.errors import UserError


class PortsInForce:
    """A context manager around a sweep."""

    def __init__(self, lab: Lab) -> None:
        """Raises UserError where ports cannot change."""
        if lab.plan.kind != FabricPort.name:
            raise UserError(f"ports of kind {lab.plan.kind} cannot change while they run; leave port.kind out")
        self._lab, self.plan = lab, lab.plan
        self._stack = ExitStack()
        self._routes: Mapping[str | None, NetlinkSocket] = {}

    def __enter__(self) -> "PortsInForce":
        """Nothing changes yet."""
        self._routes = self._stack.enter_context(self._lab.fabric.port_sockets(self.plan.decisions))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The run's own policy again."""
        with self._stack:
            if error is None:
                self._put(self._lab.plan)

    def use(self, policy: str) -> PortPlan:
        """Puts the ports of a whole policy in force.  Raises UserError for one that cannot be."""
        lab = self._lab
        self._put(PortPlan.of(policy=policy, topology=lab.topology, seed=lab.seed, kind=lab.plan.kind))
        return self.plan

    def vary(self, settings: Mapping[str, str]) -> PortPlan:
        """Puts the run's own policy in force with these keys changed.  Raises UserError, UnknownName."""
        plan = self._lab.plan
        ports = plan.composition.ports.changed(settings, where="ports of this sweep")
        self._put(replace(plan, composition=replace(plan.composition, ports=ports)))
        return self.plan

    def _put(self, plan: PortPlan) -> None:
        """In two steps: a buffer that shrinks must first be rid of the old reserves and headrooms."""
        before = _configs(self.plan)
        after = _configs(plan)
        self._lab.fabric.change_ports(
            {name: _roomy(config, before[name]) for name, config in after.items()}, self._routes
        )
        self._lab.fabric.change_ports(after, self._routes)
        self._lab.fabric.verify()
        self.plan = plan


def _configs(plan: PortPlan) -> dict[str, PortConfig]:
    return {name: plan.config(decision) for name, decision in plan.decisions.items()}


def _roomy(config: PortConfig, before: PortConfig) -> PortConfig:
    return replace(config, buffer_bytes=max(config.buffer_bytes, before.buffer_bytes))
