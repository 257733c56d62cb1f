"""A topology made real: namespaces, cables, ports, switches, and a Mininet that drives them.

    with Fabric(topology=parse_topology("leaf_spine"), hosts=HostSettings()) as fabric:
        fabric.connect("127.0.0.1:6653")
        fabric.net.get("h1").cmd("ping -c 1 10.0.2.5")

The calling thread is inside the fabric's own network namespace from entry to exit: start controller and workers there.
Everything that was set is read back from the kernel before the context is entered; a difference is an error.
"""

import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from types import FrameType

from testbed import clean, host_stack, rtnl
from testbed.capture import Tap
from testbed.counters import ETHERNET_HEADER_BYTES, Counters, Direction, imbalances, join, read_interfaces
from testbed.doctor import missing_for
from testbed.host_settings import HostSettings
from testbed.namespace import Namespace, is_guest, own_network
from testbed.netlink import NetlinkSocket, Request
from testbed.network import FabricNet
from testbed.node import FabricHost, FabricSwitch
from testbed.ovs import OpenVSwitch
from testbed.plan import GSO_MAX_SEGS, Plan, source_table
from testbed.port.config import PortConfig
from testbed.port.fabric_port import FabricPort
from testbed.port.interface import Port
from testbed.port.registry import DEFAULT, port_named
from testbed.traffic_control import TrafficControl, read_traffic_control
from topologies.errors import MissingFeature, RunFailed, UnknownName, UserError
from topologies.model import Topology
from topologies.units import format_delay, format_rate

LOOPBACK_INDEX = 1
CARRIER_TIMEOUT_S = 10
POLL_S = 0.001


class Fabric:
    """A running fabric; a context manager."""

    net: FabricNet
    """Mininet's API and CLI on it."""
    switches: OpenVSwitch
    """Its Open vSwitch."""

    def __init__(
        self,
        *,
        topology: Topology,
        hosts: HostSettings | None = None,
        port: Port | None = None,
        tag: str | None = None,
        fail_mode: str = "secure",
    ) -> None:
        """Checks what can be checked without a kernel.  With `fail_mode='standalone'` the switches learn by themselves.

        Raises UserError when a link asks what its port cannot do.
        """
        self.topology = topology
        self.hosts = hosts or HostSettings()
        self.port = port or port_named(DEFAULT)
        self.tag = tag or f"run-{os.getpid()}"
        self.fail_mode = fail_mode
        self.plan = Plan(topology=topology, settings=self.hosts, tag=f"fabric-testbed/{self.tag}")
        for egress in self.plan.egresses.values():
            self.port.check(egress)
        self._stack = ExitStack()
        self._routes: dict[str | None, NetlinkSocket] = {}
        self._in_force: dict[str, object] = {}
        self._metrics: dict[int, int] = {}
        self.unplugged: set[str] = set()
        """Interfaces that a failure has set down."""

    def __enter__(self) -> "Fabric":
        """Builds it.  Raises MissingFeature, RunFailed or KernelRefused, and then leaves nothing behind."""
        clean.clean()
        with self._stack, _all_that_is_missing():
            self._stack.enter_context(_terminable())
            self._prepare()
            self._build()
            self._await_carrier()
            self.verify()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Removes everything, last made first."""
        self._stack.close()

    def connect(self, controller: str) -> None:
        """Points every switch at `127.0.0.1:6653`, or at a target in OVS's grammar (`unix:/path`)."""
        target = controller if controller.split(":")[0] in ("tcp", "unix", "ssl") else f"tcp:{controller}"
        self.switches.connect(self.topology, target)

    @property
    def directory(self) -> Path:
        """The run's own directory, in memory, gone with the fabric: for sockets and the like."""
        return clean.STATE / self.tag

    def in_force(self) -> dict[str, object]:
        """Everything asked for and read back, for the manifest."""
        return dict(self._in_force)

    def counters(self, routes: Mapping[str | None, NetlinkSocket] | None = None) -> Mapping[str, Counters]:
        """Interface name -> what it counted since the fabric was made: three dumps per namespace.

        A thread of its own brings its own `routes`, a socket for every namespace (`port_sockets`).
        """
        found: dict[str, Counters] = {}
        for host, route in (self._routes if routes is None else routes).items():
            interfaces, control = read_interfaces(route), self._traffic_control(route)
            for name, place in self.plan.placed.items():
                if place.host == host:
                    ports = self.port.counters(self.plan.egresses[name], control)
                    found[name] = join(
                        interfaces[place.index],
                        ports,
                        polls=self._polls(name),
                        peer_polls=self._polls(self.topology.peer_of[name].name),
                    )
        return found

    def sent_bytes(self) -> Mapping[str, int]:
        """Switch port -> bytes that left it, headers included: one dump, for whoever asks often."""
        interfaces = read_interfaces(self._routes[None])
        found = {}
        for name, place in self.plan.placed.items():
            if place.host is None:
                sent = interfaces[place.index]
                header = ETHERNET_HEADER_BYTES if self._polls(self.topology.peer_of[name].name) else 0
                found[name] = sent.tx_bytes + header * sent.tx_packets
        return found

    def _polls(self, name: str) -> bool:
        """Whether arrivals at an interface wait to be merged."""
        return self.plan.placed[name].host is not None and self.hosts.moderation_ns > 0

    def taps(self, names: Iterable[str]) -> tuple[Tap, ...]:
        """Where to capture these interfaces, for `Capture`.  Raises UnknownName."""
        return tuple(self._tap(name) for name in names)

    def _tap(self, name: str) -> Tap:
        if name not in self.plan.placed:
            raise UnknownName("interface", name, self.plan.placed)
        egress, peer = self.plan.egresses[name], self.topology.peer_of[name]
        at_peer = self.plan.placed[name].host is not None and self.plan.placed[peer.name].host is None
        device = peer.name if at_peer else name
        host = self.plan.placed[device].host
        return Tap(
            interface=name,
            description=f"{name} to {peer.name}, {format_rate(egress.rate_bps)}, {format_delay(egress.delay_ns)}",
            rate_bps=egress.rate_bps,
            device=device,
            namespace=None if host is None else self.net.get(host).namespace,
            delay_ns=egress.delay_ns,
        )

    def imbalances(self) -> list[str]:
        """The directions of links whose books do not balance, in words."""
        directions = [
            Direction(name=link.name, sender=sender.name, receiver=receiver.name)
            for link in self.topology.links
            for sender, receiver in link.ends()
        ]
        return [*imbalances(directions, self.counters()), *self._port_faults()]

    def change_ports(self, configs: Mapping[str, PortConfig], routes: Mapping[str | None, NetlinkSocket]) -> None:
        """Puts other settings in force at these interfaces while traffic runs.  Raises KernelRefused.

        `routes` are the caller's own sockets by namespace (`port_sockets`): it may live in a thread of its own.
        """
        port = self.port
        if not isinstance(port, FabricPort):
            raise UserError(f"ports of kind {port.name} cannot be changed while they run; only {FabricPort.name} can")
        batches: dict[str | None, list[Request]] = {}
        for name, config in configs.items():
            batches.setdefault(self.plan.placed[name].host, []).append(port.change(self.plan.egresses[name], config))
        for host, requests in batches.items():
            routes[host].execute(requests)

    @contextmanager
    def port_sockets(self, names: Iterable[str]) -> Iterator[Mapping[str | None, NetlinkSocket]]:
        """A netlink socket in every namespace that one of these interfaces is in."""
        with ExitStack() as stack:
            found: dict[str | None, NetlinkSocket] = {}
            for host in {self.plan.placed[name].host for name in names}:
                if host is None:
                    found[host] = stack.enter_context(NetlinkSocket())
                else:
                    with self.net.get(host).entered():
                        found[host] = stack.enter_context(NetlinkSocket())
            yield found

    def _port_faults(self) -> list[str]:
        found: list[str] = []
        for host, route in self._routes.items():
            control = self._traffic_control(route)
            for name, place in self.plan.placed.items():
                if place.host == host:
                    found += self.port.faults(self.plan.egresses[name], control)
        return found

    def _traffic_control(self, route: NetlinkSocket) -> TrafficControl:
        return read_traffic_control(route, policers=self.port.polices)

    def _prepare(self) -> None:
        directory = clean.claim(self.tag)
        self._stack.callback(clean.release, directory)
        self._stack.enter_context(_environment(clean.TAG_VARIABLE, self.tag))
        _raise_descriptor_limit()
        if is_guest():
            host_stack.allow_every_congestion_control()
        self._stack.enter_context(own_network(self.tag))
        host_stack.silence()
        host_stack.use_congestion_control(self.hosts.cc)
        self._routes[None] = self._socket()
        self._routes[None].execute([rtnl.set_up(index=LOOPBACK_INDEX, name="lo")])
        self.port.check_kernel(self._routes[None])
        self.switches = self._stack.enter_context(OpenVSwitch(directory / "ovs"))
        for name, value in self.switches.environment.items():
            self._stack.enter_context(_environment(name, value))

    def _build(self) -> None:
        root = self._routes[None]
        namespaces = {host.name: self._host_namespace(host.name) for host in self.topology.hosts}
        root.execute(self.plan.cables({name: namespace.fd for name, namespace in namespaces.items()}))
        ports = [name for name, place in self.plan.placed.items() if place.host is None]
        host_stack.set_nic(ports, moderation_ns=0)
        root.execute(self.plan.links_of(None))
        self._metrics = host_stack.route_metrics(self.hosts)
        for name, namespace in namespaces.items():
            nics = self.topology.interfaces_of[name]
            with namespace.entered():
                host_stack.set_nic([nic.name for nic in nics], moderation_ns=self.hosts.moderation_ns)
            routes = [request for nic in nics for request in self.plan.routes_through(nic, self._metrics)]
            self._routes[name].execute(
                [*self.plan.links_of(name), *self.plan.addresses_of(name), *self.plan.rules_of(name), *routes]
            )
        self.switches.build(self.topology, tag=self.tag, fail_mode=self.fail_mode)
        # After Open vSwitch has taken the ports: it deletes ingress disciplines of a port that it configures.
        for host in self._routes:
            self._make_ports(host)
        self._make_net(namespaces)

    def _host_namespace(self, name: str) -> Namespace:
        namespace = Namespace(name)
        self._stack.callback(namespace.close)
        with namespace.entered():
            host_stack.silence()
            host_stack.set_sysctls(self.hosts)
            self._routes[name] = self._socket()
        self._routes[name].execute([rtnl.set_up(index=LOOPBACK_INDEX, name="lo")])
        return namespace

    def _socket(self) -> NetlinkSocket:
        return self._stack.enter_context(NetlinkSocket())

    def _make_ports(self, host: str | None) -> None:
        egresses = [self.plan.egresses[name] for name, place in self.plan.placed.items() if place.host == host]
        self._routes[host].execute([request for egress in egresses for request in self.port.requests(egress)])

    def _make_net(self, namespaces: Mapping[str, Namespace]) -> None:
        self.net = FabricNet()
        for host in self.topology.hosts:
            self.net.adopt(FabricHost(host.name, namespaces[host.name], self._routes[host.name]))
        for switch in self.topology.switches:
            management = self.switches.management(switch.name)
            self.net.adopt(FabricSwitch(switch.name, switch.dpid, self._routes[None], management))
        for link in self.topology.links:
            cable = self.net.adopt_link(link)
            for interface, end in ((cable.intf1, link.a), (cable.intf2, link.b)):
                interface.index = self.plan.placed[end.name].index
                if end.ip is not None:
                    interface.ip, interface.prefixLen = str(end.ip), 8
                    interface.after_up = self.plan.routes_through(end, self._metrics)
        self.net.build()
        self._stack.callback(self.net.stop)

    def _await_carrier(self) -> None:
        """The kernel reports a cable as plugged in a moment after both ends came up, and drops packets until then."""
        deadline = time.monotonic() + CARRIER_TIMEOUT_S
        for host, route in self._routes.items():
            mine = {place.index: name for name, place in self.plan.placed.items() if place.host == host}
            while missing := [
                mine[i] for i, it in host_stack.links_in_force(route).items() if i in mine and not it["carrier"]
            ]:
                if time.monotonic() > deadline:
                    raise RunFailed(f"no carrier after {CARRIER_TIMEOUT_S} s on {', '.join(missing)}")
                time.sleep(POLL_S)

    def verify(self) -> None:
        """Reads everything back from the kernel and compares.  Raises RunFailed naming what differs."""
        host_settings: dict[str, object] = {}
        for host, route in self._routes.items():
            names = [name for name, place in self.plan.placed.items() if place.host == host]
            self._verify_links(host, route, names)
            self._verify_ports(names, self._traffic_control(route))
        for node in self.net.hosts:
            with node.entered():
                host_settings[node.name] = self._verify_host(node)
        ports = [name for name, place in self.plan.placed.items() if place.host is None]
        for name, found in host_stack.nics_in_force(ports).items():
            host_stack.compare(f"switch port {name}", host_stack.nic_wanted(0), found)
        self._in_force |= {
            "tag": self.tag,
            "mtu": self.topology.mtu,
            "gso_max_segs": GSO_MAX_SEGS,
            "port": dict(self.port.describe()),
            "host_settings": self.hosts.model_dump(mode="json"),
            "hosts": host_settings,
            "ipv6": "disabled",
            "arp": "static, all pairs",
            "open_vswitch": self.switches.version(),
            "fail_mode": self.fail_mode,
        }

    def _verify_links(self, host: str | None, route: NetlinkSocket, names: list[str]) -> None:
        found = host_stack.links_in_force(route)
        for name in names:
            place = self.plan.placed[name]
            wanted = {
                "name": name,
                "mac": place.mac,
                "mtu": self.topology.mtu,
                "gso_max_segs": GSO_MAX_SEGS,
                "tag": self.plan.tag,
                "up": name not in self.unplugged,
            }
            host_stack.compare(f"interface {name}", wanted, found.get(place.index, {}))

    def _verify_ports(self, names: list[str], control: TrafficControl) -> None:
        ports = self._in_force.setdefault("ports", {})
        assert isinstance(ports, dict)
        for name in names:
            egress = self.plan.egresses[name]
            found = self.port.in_force(egress, control)
            host_stack.compare(f"link {egress.link}, port {name}", self.port.wanted(egress), found)
            ports[name] = dict(found)

    def _verify_host(self, node: FabricHost) -> dict[str, object]:
        nics = self.topology.interfaces_of[node.name]
        sysctls = host_stack.sysctls_in_force(self.hosts)
        host_stack.compare(f"host {node.name}", host_stack.sysctls_wanted(self.hosts), sysctls)
        settings = host_stack.nics_in_force([nic.name for nic in nics])
        for name, found in settings.items():
            host_stack.compare(f"interface {name}", host_stack.nic_wanted(self.hosts.moderation_ns), found)
        self._verify_routing(node.name)
        return {"sysctls": sysctls, "nics": settings, "route_metrics": self._metric_names()}

    def _verify_routing(self, host: str) -> None:
        route, nics = self._routes[host], self.topology.interfaces_of[host]
        routes, rules = host_stack.routes_in_force(route), host_stack.rules_in_force(route)
        neighbours = host_stack.neighbours_in_force(route)
        for nic in nics:
            index = self.plan.placed[nic.name].index
            wanted = {
                (table, str(to)): {"index": index, "metrics": self._metrics}
                for table, to in self.plan.destinations(nic)
            }
            found = {key: routes.get(key) for key in wanted}
            host_stack.compare(f"routes through {nic.name}", _named(wanted), _named(found))
            arp = {str(ip): mac for ip, mac in self.plan.others(nic)}
            known = {ip: neighbours.get((index, IPv4Address(ip).packed)) for ip in arp}
            host_stack.compare(f"ARP entries of {nic.name}", arp, known)
            if len(nics) > 1:
                host_stack.compare(
                    f"rules of {host}", {str(nic.ip): str(nic.ip)}, {str(nic.ip): rules.get(source_table(nic))}
                )

    def _metric_names(self) -> dict[str, int]:
        names = {rtnl.RTAX_INITCWND: "initcwnd", rtnl.RTAX_QUICKACK: "quickack", rtnl.RTAX_RTO_MIN: "rto_min_ms"}
        return {names[kind]: value for kind, value in self._metrics.items()}


def _named(routes: Mapping[tuple[int, str], object]) -> dict[str, object]:
    return {f"{to} in table {table}": value for (table, to), value in routes.items()}


@contextmanager
def _all_that_is_missing() -> Iterator[None]:
    """On a machine that lacks several things, the first failure becomes an error that lists them all."""
    try:
        yield
    except (MissingFeature, RunFailed) as error:
        missing = [] if is_guest() else missing_for("real")
        if not missing:
            raise
        names, remedies = ([it.name for it in missing], dict.fromkeys(it.remedy for it in missing))
        raise MissingFeature(f"{error}; this machine lacks: {', '.join(names)}", "; ".join(remedies)) from error


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """An environment variable for us and what we start, put back afterwards."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM unwinds the stack like any exception, instead of ending the process on the spot."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_descriptor_limit() -> None:
    """A fabric holds two descriptors per host; this process's own limit goes up, nobody else's."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
