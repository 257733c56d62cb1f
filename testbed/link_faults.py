"""Cables that break while traffic runs: down and up, another rate, packets lost.  For a thread of its own.

    with LinkFaults(fabric, seed=1) as faults:
        faults.set_state("leaf1-spine2", up=False)

A cable between switches goes down at both ends at once.  A host's cable is taken down at the switch: the host sees its
carrier go, as with a pulled cable, and keeps addresses and routes.  What waited or was on the wire is lost and counted
by the ports; what arrives at a switch for a dead port is dropped there, unseen by any port: `lost` finds it by what
came into the switch and never was offered to a port.
"""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from types import TracebackType

from testbed import rtnl
from testbed.counters import Counters
from testbed.fabric import Fabric
from testbed.packet_loss import LossyEgress
from testbed.port.config import PortConfig
from testbed.port.fabric_port import FabricPort
from topologies.errors import UserError
from topologies.model import Link, Topology


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Packets that arrived nowhere, by what became of them, since the fabric was made."""

    queue: int = 0
    """Dropped by a port that had no room."""
    flushed: int = 0
    """Waiting in a port when its cable went down."""
    wire: int = 0
    """On a cable when it went down."""
    dead_port: int = 0
    """Arrived at a switch whose rules sent them to a cable that was down, or that had no rule for them; or dropped by a
    host whose own cable was unplugged.
    """
    link: int = 0
    """Swallowed by a lossy cable."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __sub__(self, before: "Losses") -> "Losses":
        """What was lost meanwhile."""
        return Losses(**{it.name: getattr(self, it.name) - getattr(before, it.name) for it in fields(self)})


def losses_of(topology: Topology, counters: Mapping[str, Counters], swallowed: int) -> Losses:
    """From every interface's counters.  Exact at any instant: a switch takes no time between arrival and queue."""
    drops = [counter.port.drops for counter in counters.values() if counter.port.drops is not None]
    flushed = sum(each.flush for each in drops)
    return Losses(
        queue=sum(each.total for each in drops) - flushed,
        flushed=flushed,
        wire=sum(it.port.wire_lost_packets + it.refused_packets for it in counters.values()),
        dead_port=sum(_unforwarded(topology, switch.name, counters) for switch in topology.switches)
        + sum(it.unplugged_packets for it in counters.values())
        - swallowed,
        link=swallowed,
    )


def _unforwarded(topology: Topology, switch: str, counters: Mapping[str, Counters]) -> int:
    ends = topology.interfaces_of[switch]
    pauses = sum(counters[topology.peer_of[end.name].name].port.control_packets for end in ends)
    came = sum(counters[end.name].rx_packets for end in ends) - pauses
    return came - sum(counters[end.name].port.arrived_packets for end in ends)


class LinkFaults:
    """A context manager; its sockets are its own, so it may live in a thread beside the fabric's user."""

    def __init__(self, fabric: Fabric, *, seed: int) -> None:
        """Raises UserError for ports that cannot change while they run."""
        if not isinstance(fabric.port, FabricPort):
            raise UserError(f"ports of kind {fabric.port.name} cannot fail; leave port.kind out")
        self._fabric, self._port, self._seed = fabric, fabric.port, seed
        self._stack = ExitStack()
        self._lossy: dict[str, LossyEgress] = {}
        self._rates: dict[str, int] = {}
        self.down: frozenset[str] = frozenset()
        """Links that are down now."""

    def __enter__(self) -> "LinkFaults":
        """Opens a socket in every namespace."""
        self.routes = self._stack.enter_context(self._fabric.port_sockets(self._fabric.plan.placed))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes them; what was broken stays broken until the fabric goes."""
        self._stack.close()

    def set_state(self, link_name: str, *, up: bool) -> None:
        """Raises KernelRefused."""
        link = self._link(link_name)
        ends = self._taken_down(link)
        (self._fabric.unplugged.difference_update if up else self._fabric.unplugged.update)(ends)
        self.down = self.down - {link_name} if up else self.down | {link_name}
        placed = self._fabric.plan.placed
        requests = [rtnl.set_up(index=placed[name].index, name=name, up=up) for name in ends]
        self.routes[None].execute(requests)

    def set_rate(self, link_name: str, rate_bps: int) -> None:
        """Both directions from the next packet on.  Raises KernelRefused."""
        self._rates[link_name] = rate_bps
        names = [end.name for end, _ in self._link(link_name).ends()]
        egresses = self._fabric.plan.egresses
        self.change({name: self._port.config(egresses[name]) for name in names})

    def change(self, configs: Mapping[str, PortConfig]) -> None:
        """Other settings at these ports, at the rates that failures have left them.  Raises KernelRefused."""
        link_of = self._fabric.topology.link_of
        rated = {
            name: replace(config, rate_bps=self._rates.get(link_of[name].name, config.rate_bps))
            for name, config in configs.items()
        }
        self._fabric.change_ports(rated, self.routes)

    def set_loss(self, link_name: str, share: Fraction) -> None:
        """Of every packet in both directions, each drawn by lot.  Raises MissingFeature or KernelRefused."""
        for end, _ in self._link(link_name).ends():
            if end.name not in self._lossy:
                place = self._fabric.plan.placed[end.name]
                lossy = LossyEgress(
                    self.routes[place.host], index=place.index, interface=end.name, seed=_seed(self._seed, end.name)
                )
                self._stack.callback(lossy.close)
                self._lossy[end.name] = lossy
            self._lossy[end.name].lose(share)

    def losses(self) -> Losses:
        """So far.  Raises RunFailed where a lossy cable was repaired behind our back."""
        counters = self._fabric.counters(self.routes)
        switches = self._fabric.topology.switch_named
        lost = {name: lossy.lost().packets for name, lossy in self._lossy.items()}
        placed = self._fabric.plan.placed
        inside = sum(count for name, count in lost.items() if placed[name].interface.node in switches)
        found = losses_of(self._fabric.topology, counters, inside)
        return replace(found, link=sum(lost.values()))

    def _taken_down(self, link: Link) -> list[str]:
        return [end.name for end in (link.a, link.b) if self._fabric.plan.placed[end.name].host is None]

    def _link(self, name: str) -> Link:
        return self._fabric.topology.link_named[name]


def _seed(seed: int, interface: str) -> int:
    """A stream of lots per direction, from the run's seed."""
    return int.from_bytes(hashlib.sha256(f"loss/{seed}/{interface}".encode()).digest()[:8], "little")
