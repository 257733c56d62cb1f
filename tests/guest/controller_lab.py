"""What test_controller.py has done inside the guest: a real Open vSwitch fabric under our controller, as facts.

usage: controller_lab.py fabric|scale|mn FRAMEWORK TOPOLOGY        writes /out/facts.json
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.policies import parse_policy
from controller.policies.base import Situation
from controller.selector.flow_hash import TCP, UDP, Flow
from topologies.graph import leaf_of, switch_cables
from topologies.model import Interface, Topology
from topologies.registry import parse_topology

if TYPE_CHECKING:  # `mn` imports this file with the system's Python, which has none of our dependencies
    from testbed.fabric import Fabric

OUT = Path("/out")
CONTROL = "/run/fabric-controller.sock"
ENDPOINT = "127.0.0.1:6653"
PORT, SEED = 4791, 11
NOWHERE = "10.0.77.1"
CLONE_NEWNET = 0x40000000
STEP_S, DEADLINE_S = 0.01, 30
Enter = Callable[[Interface], Any]


class Controller:
    """A controller process and its control socket."""

    def __init__(self, *, framework: str, topology: str, policy: str = "ecmp") -> None:
        command = [sys.executable, "-m", "controller", "--topology", topology, "--policy", policy]
        command += ["--framework", framework, "--control", CONTROL, "--seed", str(SEED), "--die-with-parent"]
        self.process = subprocess.Popen([*command, "--listen", ENDPOINT])

    def ask(self, **request: object) -> dict[str, Any]:
        """One reply.  Waits for the socket first."""
        wait_for("the control socket", lambda: self.process.poll() is not None or reachable())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(CONTROL)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile() as replies:
                reply: dict[str, Any] = json.loads(replies.readline())
        return reply

    def ready(self, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        return self.ask(do="wait_ready", timeout_s=timeout_s)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait()

    def cpu_s(self) -> float:
        """User and system time of the process so far; 0 under a clock that stands still while programs run."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reachable() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(CONTROL) == 0


def wait_for(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {DEADLINE_S} s for {what}")
        time.sleep(STEP_S)


def connect_all(nics: list[Interface], enter: Enter) -> list[str]:
    """One TCP connection for every ordered pair of NICs of different hosts; those that failed."""
    failed = []
    with ExitStack() as stack:
        for nic in nics:
            with enter(nic):
                stack.enter_context(socket.create_server((str(nic.ip), PORT), backlog=len(nics) + 1))
        for source in nics:
            for target in nics:
                if source.node != target.node:
                    with enter(source):
                        sender = stack.enter_context(socket.socket())
                    sender.settimeout(5)
                    sender.bind((str(source.ip), 0))
                    if (code := sender.connect_ex((str(target.ip), PORT))) != 0:
                        failed.append(f"{source.name} -> {target.name}: {os.strerror(code)}")
    return failed


def send(enter: Enter, flow: Flow, source: Interface, count: int = 1) -> None:
    """So many UDP packets of a flow."""
    with enter(source), socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.bind((str(flow.src), flow.sport))
        for _ in range(count):
            sender.sendto(b"x", (str(flow.dst), flow.dport))


def predicted(flows: list[dict[str, Any]]) -> dict[str, int]:
    """Egress interface of a switch -> packets, if every recorded flow took its recorded path."""
    found: dict[str, int] = {}
    for flow in flows:
        for name in flow["path"][1:]:
            found[name] = found.get(name, 0) + flow["packets"]
    return found


def counted(ports: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {name: counters["tx_packets"] for name, counters in ports.items() if counters["tx_packets"]}


def settled(controller: Controller) -> dict[str, int]:
    """Port counters once they no longer change: the last packets of a connection are on their way for a while."""
    before: dict[str, int] = {}
    while (now := counted(controller.ask(do="port_stats")["ports"])) != before:
        before = now
        time.sleep(0.3)
    return now


def dumped(fabric: "Fabric") -> dict[str, list[str]]:
    """Every switch's rules as Open vSwitch tells them in OpenFlow 1.3, without what changes by itself."""
    found = {}
    for switch in fabric.topology.switches:
        argv = ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", fabric.switches.management(switch.name), "--no-stats"]
        text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found[switch.name] = sorted(line.strip() for line in text.splitlines() if "priority=" in line)
    return found


def colliding(topology: Topology, source: Interface, target: Interface) -> tuple[list[Flow], list[Flow]]:
    """Two flows that ECMP puts on one uplink, and two that it keeps apart, by the twin of the selector in Python."""
    leaf_of_ip = {end.ip: leaf_of(topology, end.name).name for end in topology.host_interfaces() if end.ip is not None}
    selection = parse_policy("ecmp").selection(Situation(topology=topology, seed=SEED))
    assert source.ip is not None
    assert target.ip is not None
    base = Flow(src=source.ip, dst=target.ip, proto=UDP, sport=20000, dport=PORT)
    flows = [replace(base, sport=20000 + at) for at in range(100)]
    mark = selection.mark(base, leaf_of_ip)
    same = next(flow for flow in flows[1:] if selection.mark(flow, leaf_of_ip) == mark)
    other = next(flow for flow in flows[1:] if selection.mark(flow, leaf_of_ip) != mark)
    return [base, same], [base, other]


def fabric_facts(framework: str, spec: str) -> dict[str, Any]:
    from testbed.fabric import Fabric

    topology = parse_topology(spec)
    with Fabric(topology=topology) as fabric:

        def enter(nic: Interface) -> Any:
            return fabric.net.get(nic.node).namespace.entered()

        controller = Controller(framework=framework, topology=spec)
        facts: dict[str, Any] = {"absent": controller.ready(0.5)}
        fabric.connect(ENDPOINT)
        facts["ready"] = controller.ready()
        facts |= traffic_facts(controller, topology, enter)
        facts["rules"], facts["selectors"] = dumped(fabric), selectors(fabric)
        controller.end(signal.SIGKILL)
        facts["rules_without_controller"] = dumped(fabric)
        facts["failed_without_controller"] = connect_all(list(topology.host_interfaces()), enter)
        controller = Controller(framework=framework, topology=spec)
        facts["ready_again"] = controller.ready()
        facts["rules_after_restart"], facts["selectors_after_restart"] = dumped(fabric), selectors(fabric)
        facts |= switch_facts(controller, fabric, enter)
        facts["exit_code"], facts["selectors_after_end"] = controller.end(signal.SIGTERM), selectors(fabric)
    return facts


def traffic_facts(controller: Controller, topology: Topology, enter: Enter) -> dict[str, Any]:
    """Everybody to everybody, a stray, and two pairs of flows whose paths were predicted."""
    nics = list(topology.host_interfaces())
    first, last = nics[0], nics[-1]
    facts: dict[str, Any] = {"failed_pairs": connect_all(nics, enter), "counted": settled(controller)}
    flows = controller.ask(do="flows")
    facts["predicted"], facts["flows"] = predicted(flows["flows"]), len(flows["flows"])
    facts["unrecorded"] = flows["unrecorded_packets"]

    assert first.ip is not None
    send(enter, Flow(src=first.ip, dst=IPv4Address(NOWHERE), proto=UDP, sport=1234, dport=1), first)
    facts["spread_of_a_stray"] = difference(facts["counted"], settled(controller))

    uplinks = {own.name for own, _ in switch_cables(topology, leaf_of(topology, first.name).name)}
    for name, pair in zip(("together", "apart"), colliding(topology, first, last), strict=True):
        before = settled(controller)
        for flow in pair:
            send(enter, flow, first, count=10)
        sent = difference(before, settled(controller))
        facts[name] = {port: packets for port, packets in sent.items() if port in uplinks}
    return facts


def switch_facts(controller: Controller, fabric: "Fabric", enter: Enter) -> dict[str, Any]:
    """The switch daemon starts anew, and somebody takes a selector away."""
    restart_switches(fabric)
    wait_for("the switches to be lost and back", lambda: controller.ready()["ok"] and all_up(fabric))
    facts: dict[str, Any] = {"rules_after_switch_restart": dumped(fabric)}
    facts["failed_after_switch_restart"] = connect_all(list(fabric.topology.host_interfaces()), enter)
    facts["selectors_after_switch_restart"] = before = selectors(fabric)
    subprocess.run(["tc", "qdisc", "del", "dev", before[0], "clsact"], check=True)
    wait_for("the selector to come back", lambda: before[0] in selectors(fabric))
    return facts


def all_up(fabric: "Fabric") -> bool:
    return all(fabric.switches.connected().values()) and all(dumped(fabric).values())


def restart_switches(fabric: "Fabric") -> None:
    """Makes the switch daemon lose everything but its database, as a crash and its restart do."""
    directory = fabric.switches.directory
    environment = {**os.environ, **fabric.switches.environment}
    before = {switch.name: (directory / f"{switch.name}.mgmt").stat().st_ino for switch in fabric.topology.switches}
    old = fabric.switches._daemons["ovs-vswitchd"]
    old.kill()
    old.wait()
    argv = ["setpriv", "--pdeathsig", "KILL", "ovs-vswitchd", f"unix:{directory}/db.sock"]
    argv += [f"--unixctl={directory}/vswitchd.ctl", "-vconsole:off", "-vsyslog:off", "--no-chdir"]
    fabric.switches._daemons["ovs-vswitchd"] = subprocess.Popen(argv, env=environment)
    fabric.switches._stack.callback(fabric.switches._daemons["ovs-vswitchd"].kill)

    def fresh() -> bool:
        paths = {name: directory / f"{name}.mgmt" for name in before}
        return all(path.exists() and path.stat().st_ino != before[name] for name, path in paths.items())

    wait_for("the switch daemon", fresh)


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


def selectors(fabric: "Fabric") -> list[str]:
    """The switch ports that have a path selector."""
    found = []
    for nic in fabric.topology.host_interfaces():
        port = fabric.topology.peer_of[nic.name].name
        argv = ["tc", "filter", "show", "dev", port, "ingress"]
        if " select_by_hash " in subprocess.run(argv, capture_output=True, text=True, check=True).stdout:
            found.append(port)
    return sorted(found)


def scale_facts(framework: str, spec: str) -> dict[str, Any]:
    """Boots without time travel, so that CPU time is real."""
    from testbed.fabric import Fabric

    topology = parse_topology(spec)
    nics = list(topology.host_interfaces())
    with Fabric(topology=topology) as fabric:
        controller = Controller(framework=framework, topology=spec)
        controller.ready(0)
        listening_s = controller.cpu_s()
        start_s = time.monotonic()
        fabric.connect(ENDPOINT)
        facts = {"ready": controller.ready(120), "wall_s": time.monotonic() - start_s}
        facts |= {"cpu_before_s": listening_s, "cpu_s": controller.cpu_s() - listening_s}
        one_per_leaf = list({leaf_of(topology, nic.name).name: nic for nic in nics}.values())
        facts["failed_pairs"] = connect_all(one_per_leaf, lambda nic: fabric.net.get(nic.node).namespace.entered())
        facts["exit_code"] = controller.end(signal.SIGTERM)
    return facts


@contextmanager
def entered(pid: int) -> Iterator[None]:
    """The network namespace of a process, as plain Mininet's hosts have it."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    inside = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if libc.setns(inside, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        yield
        if libc.setns(before, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(inside)
        os.close(before)


def inside_mn(net: Any, spec: str) -> str:
    """Called from the command line of `mn` itself, on its network."""
    topology = parse_topology(spec)
    controller = Controller.__new__(Controller)
    controller.process = subprocess.Popen(["sleep", "1000"])
    try:
        facts: dict[str, Any] = {"ready": controller.ready()}
        nics = list(topology.host_interfaces())
        facts["failed_pairs"] = connect_all(nics, lambda nic: entered(net.get(nic.node).pid))
        facts["neighbours"] = net.get(nics[0].node).cmd("ip neigh")
        facts["counted"], facts["flows"] = settled(controller), controller.ask(do="flows")["flows"]
        facts["predicted"] = predicted(facts["flows"])
        facts["protocols"] = sorted({flow["proto"] for flow in facts["flows"]})
        with entered(net.get(nics[0].node).pid), socket.socket(type=socket.SOCK_DGRAM) as stray:
            stray.sendto(b"x", (NOWHERE, 9))
        time.sleep(3)
        facts["spread_of_a_stray"] = difference(facts["counted"], settled(controller))
        assert facts["protocols"] == [TCP]
        (OUT / "facts.json").write_text(json.dumps(facts))
    finally:
        controller.process.kill()
    return "done"


def run_mn(framework: str, spec: str) -> None:
    """Plain Mininet with its own command, our topology as its custom file, our controller as its remote one."""
    name, _, values = spec.partition(":")
    numbers = ",".join(pair.partition("=")[2] for pair in values.split(","))
    controller = Controller(framework=framework, topology=spec)
    wait_for("the controller", reachable)
    start_open_vswitch()
    argv = ["mn", "--custom", f"topologies/{name}.py", "--topo", f"{name},{numbers}", "--controller", "remote"]
    here = f"__import__('sys').path.insert(0, {str(Path(__file__).parent)!r})"
    lines = f"py {here}\npy __import__('controller_lab').inside_mn(net, {spec!r})\nexit\n"
    subprocess.run(argv, input=lines, text=True, check=True)
    controller.end(signal.SIGTERM)


def start_open_vswitch() -> None:
    """The machine's own instance, where the package's scripts would have it."""
    Path("/run/openvswitch").mkdir(exist_ok=True)
    database = "/run/openvswitch/conf.db"
    wait_for("11 s on the clock", lambda: time.monotonic() > 11)  # Open vSwitch counts no CPU before
    common = ["--pidfile", "--detach", "--no-chdir", "-vconsole:off", "--log-file=/run/openvswitch/log"]
    for argv in (
        ["ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"],
        ["ovsdb-server", database, "--remote=punix:/run/openvswitch/db.sock", *common],
        ["ovs-vsctl", "--no-wait", "init"],
        ["ovs-vswitchd", *common],
    ):
        subprocess.run(argv, check=True)


def main(scenario: str, framework: str, spec: str) -> None:
    if scenario == "mn":
        run_mn(framework, spec)
        return
    facts = {"fabric": fabric_facts, "scale": scale_facts}[scenario](framework, spec)
    (OUT / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
