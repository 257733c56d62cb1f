"""The shim between an OpenFlow framework and the core: events in, bytes out, and nothing is decided here.

One thread of control (compat.py), so between two waits nothing else runs.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from controller import arp
from controller.compat import Framework
from controller.core import Core
from controller.forwarding import plan
from controller.messages import Messages, PortCounters
from controller.pipeline import ReadPorts, Request, SendPacket
from topologies.errors import RunFailed, TestbedError
from topologies.graph import hosts_below

LOG = logging.getLogger(__name__)
REWRITE_TIMEOUT_S = 5.0
"""For switches to hold new rules; then packets choose as planned all the same, and `problems` says who does not."""


class Attachable(Protocol):
    """What the shim needs of a selector."""

    def attach(self, interface: str) -> None:
        """Selects for what comes in here.  Raises TestbedError."""


class App:
    """Everything between the framework's events and the core."""

    def __init__(
        self,
        framework: Framework,
        core: Core,
        selector: Attachable,
        *,
        select: Callable[[frozenset[str]], None] = lambda _down: None,
        port_seen: Callable[[str, bool], None] = lambda _name, _live: None,
    ) -> None:
        """`framework.start` is given `self.application`.

        `select` puts the policy's selection for what is down in force; `port_seen` hears of every port of the
        topology, by name, and whether it is live.
        """
        self.framework, self.core, self.selector = framework, core, selector
        self._select, self._port_seen = select, port_seen
        self.down: frozenset[str] = frozenset()
        """Links that rules and selection do without."""
        self.messages = Messages(framework)
        self.application = framework.application(
            {
                "EventOFPStateChange": (self._watched(self.state_changed), ("MAIN", "DEAD")),
                "EventOFPPortStatus": (self._watched(self.port_changed), ("MAIN",)),
                "EventOFPFlowStatsReply": (self._watched(self.tables_read), ("MAIN",)),
                "EventOFPBarrierReply": (self._watched(self.acknowledged), ("MAIN",)),
                "EventOFPErrorMsg": (self._watched(self.refused), ("MAIN",)),
                "EventOFPPacketIn": (self._watched(self.packet_came), ("MAIN",)),
                "EventOFPPortStatsReply": (self._watched(self.ports_read), ("MAIN",)),
            }
        )
        self._datapaths: dict[int, Any] = {}
        self._xid = 0
        self._sent: dict[int, dict[int, Request]] = {}
        self._neighbours = arp.neighbours(core.topology)
        self._waiting: list[Any] = []
        ends = [(each.dpid, end) for each in core.topology.switches for end in core.topology.interfaces_of[each.name]]
        self._port_names = {(dpid, end.port): end.name for dpid, end in ends}
        self._host_ports = {
            each.dpid: [core.topology.peer_of[end.name].name for end in hosts_below(core.topology, each.name)]
            for each in core.topology.switches
        }
        self._faults: list[str] = []
        self._unattached: dict[str, str] = {}
        self._counters: dict[str, PortCounters] = {}
        self._awaited: set[int] = set()

    def problems(self) -> tuple[str, ...]:
        """Why the fabric is not ready; empty when every rule is in force and every selector is attached."""
        return (*self._faults, *self._unattached.values(), *self.core.problems())

    def wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Lets the others run until it is done, at most so long; whether it is.  Looks again after every event."""
        deadline = time.monotonic() + timeout_s
        woken = self.framework.hub.Queue(1)
        self._waiting.append(woken)
        try:
            while not done():
                woken.get(timeout=max(deadline - time.monotonic(), 0))
        except self.framework.hub.QueueEmpty:
            return done()
        finally:
            self._waiting.remove(woken)
        return True

    def port_stats(self, timeout_s: float = 10) -> Mapping[str, PortCounters]:
        """The counters of every port of the topology's switches, read now.  Raises RunFailed naming who is silent."""
        self._counters = {}
        self._awaited = set(self._datapaths)
        for dpid in sorted(self._awaited):
            self._send(dpid, [ReadPorts()])
        self.wait(lambda: not self._awaited, timeout_s)
        silent = sorted(set(self._port_names.values()) - set(self._counters))
        if silent:
            raise RunFailed(f"no statistics of ports {', '.join(silent)} (waited {timeout_s:g} s)")
        return self._counters

    def reroute(self, down: frozenset[str]) -> None:
        """Rules and selection without these links, and with all others.

        Where fewer links are left, packets stop choosing them before the rules go; where some come back, the rules are
        there before packets choose them.
        """
        fewer, self.down = down >= self.down, down
        if fewer:
            self._select(down)
        for dpid, requests in self.core.replan(plan(self.core.topology, down)).items():
            self._send(dpid, requests)
        if not fewer:
            self.wait(lambda: not self.core.problems(), REWRITE_TIMEOUT_S)
            self._select(down)

    def attach(self, port: str) -> None:
        """Has the selector on a port; where that fails the fabric is not ready."""
        try:
            self.selector.attach(port)
            self._unattached.pop(port, None)
        except TestbedError as error:
            self._unattached[port] = str(error)

    def state_changed(self, event: Any) -> None:
        """A switch finished its handshake, or is lost."""
        datapath = event.datapath
        if event.state == "main":
            self._datapaths[datapath.id] = datapath
            self._ports_seen(datapath)
            self._send(datapath.id, self.core.connected(datapath.id))
        elif datapath in self._datapaths.values():
            del self._datapaths[datapath.id]
            self._awaited.discard(datapath.id)
            self.core.disconnected(datapath.id)

    def port_changed(self, event: Any) -> None:
        """A port came, changed or went; the framework keeps the list."""
        self._ports_seen(event.msg.datapath)
        self._port_told(event.msg.datapath.id, event.msg.desc)

    def tables_read(self, event: Any) -> None:
        """A part of a switch's rules."""
        message, dpid = event.msg, event.msg.datapath.id
        more = bool(message.flags & self.framework.ofproto.OFPMPF_REPLY_MORE)
        self._send(dpid, self.core.tables(dpid, map(self.messages.rule, message.body), more=more))

    def acknowledged(self, event: Any) -> None:
        """A barrier was passed."""
        dpid = event.msg.datapath.id
        self._sent.pop(dpid, None)
        self._send(dpid, self.core.acknowledged(dpid))

    def refused(self, event: Any) -> None:
        """A switch did not do what it was asked."""
        message, dpid = event.msg, event.msg.datapath.id
        request = self._sent.get(dpid, {}).get(message.xid)
        reason = f"refused {request or 'a question'}: OpenFlow error type {message.type}, code {message.code}"
        LOG.warning("dpid %s %s", dpid, reason)
        if not isinstance(request, SendPacket):
            self.core.refused(dpid, reason)

    def packet_came(self, event: Any) -> None:
        """Only ARP requests come; the answer goes back where the question came from."""
        message = event.msg
        reply = arp.answer(bytes(message.data), self._neighbours)
        if reply is not None:
            self._send(message.datapath.id, [SendPacket(message.match["in_port"], reply)])

    def ports_read(self, event: Any) -> None:
        """A part of a switch's port counters."""
        message, dpid = event.msg, event.msg.datapath.id
        for stat in message.body:
            name = self._port_names.get((dpid, stat.port_no))
            if name is not None:
                self._counters[name] = self.messages.port_counters(stat)
        if not message.flags & self.framework.ofproto.OFPMPF_REPLY_MORE:
            self._awaited.discard(dpid)

    def _ports_seen(self, datapath: Any) -> None:
        names = {number: port.name.decode() for number, port in datapath.ports.items()}
        self.core.ports(datapath.id, names)
        for port in datapath.ports.values():
            self._port_told(datapath.id, port)
        for port in self._host_ports.get(datapath.id, ()):
            self.attach(port)

    def _port_told(self, dpid: int, port: Any) -> None:
        name = self._port_names.get((dpid, port.port_no))
        if name is not None:
            ofproto = self.framework.ofproto
            dead = port.config & ofproto.OFPPC_PORT_DOWN or port.state & ofproto.OFPPS_LINK_DOWN
            self._port_seen(name, not dead)

    def _send(self, dpid: int, requests: Iterable[Request]) -> None:
        encoded = []
        for request in requests:
            self._xid = self._xid % 0xFFFFFFFF + 1
            self._sent.setdefault(dpid, {})[self._xid] = request
            encoded.append(self.messages.encode(request, self._xid))
        datapath = self._datapaths.get(dpid)
        if encoded and datapath is not None:
            datapath.send(b"".join(encoded))

    def _watched(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        """The frameworks log a handler's exception and go on: ours then never says that it is ready."""

        def watched(event: Any) -> None:
            try:
                handler(event)
            except Exception as error:
                self._faults.append(f"internal error in {handler.__name__}: {error!r}")
                raise
            finally:
                for woken in self._waiting:
                    if woken.empty():
                        woken.put(None)

        return watched
