"""Runs in the guest: builds fabrics, does to them what users do, and writes down what it saw (facts.json).

One boot serves many tests; each fact is a function, and a fact that raises is written down as its error.
"""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import fabric_traffic as traffic

from experiments.metrics_server import MetricsServer, live_metrics
from testbed import clean
from testbed.capture import Capture, Window
from testbed.fabric import Fabric
from testbed.host_settings import HostSettings
from testbed.packet_filter import Selection
from testbed.port.registry import port_named
from testbed.traffic_control import read_traffic_control
from topologies.errors import TestbedError
from topologies.model import Interface, Switch, Topology
from topologies.registry import parse_topology

OUT = Path(sys.argv[1])
FACTS: dict[str, Callable[[], object]] = {}
STAR = "star:hosts=3,rate=100G,delay=1us,buffer=100000"
AT_ONCE = HostSettings(moderation="off")


def fact(function: Callable[[], object]) -> Callable[[], object]:
    FACTS[function.__name__] = function
    return function


def learning(spec: str, hosts: HostSettings = AT_ONCE, **options: object) -> Fabric:
    """A fabric without loops whose switches learn, so that no controller is needed."""
    port = port_named(options.pop("port", "stock"))  # type: ignore[arg-type]
    return Fabric(topology=parse_topology(spec), hosts=hosts, port=port, fail_mode="standalone")


def left_behind() -> dict[str, object]:
    """What of ours is on this machine."""
    daemons = subprocess.run(["pgrep", "-c", "ovs|bash"], capture_output=True, text=True, check=False).stdout.strip()
    names = sorted(path.name for path in Path("/sys/class/net").iterdir())
    state = sorted(path.name for path in clean.STATE.iterdir()) if clean.STATE.exists() else []
    return {
        "interfaces": names,
        "daemons": daemons,
        "state": state,
        "namespace": str(Path("/proc/self/ns/net").readlink()),
    }


@fact
def burst() -> object:
    """P04, P05, P25: 20 full frames at once into a buffer of 100 kB, tapped everywhere."""
    with learning(STAR) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
        with Capture(interfaces=fabric.taps(fabric.plan.placed), directory=OUT / "burst") as capture:
            before = fabric.counters()
            received = traffic.burst(one, other, count=20, payload=8972)
            after = fabric.counters()
        netem = read_traffic_control(fabric._routes["h1"]).root(fabric.plan.placed["h1-eth0"].index)
        return {
            "received": received,
            "dropped": after["h1-eth0"].port.dropped_packets,
            "netem_dropped": netem.statistics.drops if netem else None,
            "sent": {name: after[name].tx_packets - before[name].tx_packets for name in after},
            "arrived": {name: after[name].rx_packets - before[name].rx_packets for name in after},
            "captured": {name: asdict(it) for name, it in capture.captured.items()},
            "faults": capture.faults(),
            "imbalances": fabric.imbalances(),
        }


@fact
def selected() -> object:
    """Every ms, from half a ms on, two datagrams with DSCP 0 and three with 8; of these, those from 1 ms to 3 ms."""
    with learning(STAR) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
        chosen = {"selection": Selection(dscps=frozenset({8})), "window": Window(begin_ns=10**6, end_ns=3 * 10**6)}
        points = fabric.taps(["h1-eth0"])
        with Capture(interfaces=points, directory=OUT / "selected", snap_bytes=64, **chosen) as capture:  # type: ignore[arg-type]
            start_ns = time.monotonic_ns()
            capture.begin(start_ns)
            for number in range(5):
                time.sleep((start_ns + 10**6 * number + 500_000 - time.monotonic_ns()) / 1e9)
                for dscp, count in ((0, 2), (8, 3)):
                    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
                    for _ in range(count):
                        one.sendto(bytes(100 + number), other.getsockname())
        return {"captured": asdict(capture.captured["h1-eth0"]), "faults": capture.faults()}


@fact
def served() -> object:
    """Counters over HTTP from the machine's namespace, while the fabric has ours: before, during, afterwards."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    with MetricsServer(0) as server:
        found = [scrape(server.port, outside)]
        with learning(STAR) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
            with live_metrics(server, fabric):
                traffic.burst(one, other, count=5, payload=1000)
                found.append(scrape(server.port, outside))
            counted = fabric.counters()["h1-eth0"]
        found.append(scrape(server.port, outside))
    return {"found": found, "sent": [counted.tx_packets, counted.tx_bytes]}


def scrape(port: int, namespace: int) -> tuple[int, str]:
    """Status and body, fetched by another process, as Prometheus is one."""
    fetch = (
        "import http.client as h; c = h.HTTPConnection('127.0.0.1', %d, timeout=10); c.request('GET', '/metrics'); "
        "r = c.getresponse(); print(r.status); print(r.read().decode())"
    )
    argv = ["nsenter", f"--net=/proc/self/fd/{namespace}", sys.executable, "-c", fetch % port]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, pass_fds=[namespace], timeout=60).stdout
    status, _, body = said.partition("\n")
    return int(status), body


@fact
def buffer_counts_bytes() -> object:
    """A buffer that holds 11 full frames holds 600 small ones."""
    with learning(STAR) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
        return {"received": traffic.burst(one, other, count=600, payload=100), "imbalances": fabric.imbalances()}


@fact
def rates() -> object:
    """P02, P03, P07: the same link at every rate from 10 Mb/s to 400 Gb/s."""
    found = {}
    for rate in ("10M", "100M", "1G", "2G", "10G", "100G", "400G"):
        with learning(f"star:hosts=2,rate={rate},delay=1us,buffer=200000,mtu=1500") as fabric:
            time.sleep(1)  # idle, so that a token bucket would be full
            with traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
                other.settimeout(2)
                with Capture(interfaces=fabric.taps(["h2-eth0"]), directory=OUT / f"rate-{rate}"):
                    received = traffic.burst(one, other, count=100, payload=1472)
                in_force = fabric.in_force()["ports"]["h1-eth0"]  # type: ignore[index]
                found[rate] = {"received": received, "in_force": in_force}
    return found


@fact
def one_way() -> object:
    """Two links of 1 us at 100 Gb/s, one frame of 142 B; and the same to a NIC that moderates its interrupts."""
    found = {}
    for name, hosts in {"off": AT_ONCE, "8us": HostSettings(moderation="8us")}.items():
        with learning(STAR, hosts) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
            start = time.monotonic_ns()
            one.sendto(b"p" * 100, other.getsockname())
            other.recv(200)
            found[name] = time.monotonic_ns() - start
    return found


@fact
def delay_is_no_queue() -> object:
    """P06: 62 kB in flight on a link with a buffer of 30 kB, at half its rate."""
    spec = "star:hosts=2,rate=100M,delay=10ms,buffer=30000,mtu=1500"
    with learning(spec) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
        received = traffic.paced(one, other, count=1000, payload=1472, gap_ns=242_240)
        return {"received": received, "drops": fabric.counters()["h1-eth0"].port.dropped_packets}


@fact
def delay_loses_nothing() -> object:
    """P05: 900 Mb/s through 1 Gb/s and 20 ms."""
    spec = "star:hosts=2,rate=1G,delay=20ms,mtu=1500,buffer=30000"
    with learning(spec) as fabric, traffic.datagram_pair(fabric, "h1", "h2") as (one, other):
        received = traffic.paced(one, other, count=10_000, payload=1472, gap_ns=13_458)
        return {"received": received, "imbalances": fabric.imbalances()}


@fact
def bottleneck_fills() -> object:
    """P03: 1 Gb/s and 25 ms a link into 100 Mb/s, the buffer one bandwidth-delay product."""
    spec = "dumbbell:hosts=1,rate=1G,bottleneck_rate=100M,delay=25ms,bottleneck_delay=1us,buffer=1250000,mtu=1500"
    with learning(spec) as fabric:
        return traffic.tcp_stream(fabric, "h1", "h2", seconds=14, skip=6)


@fact
def buffers_do_not_cap() -> object:
    """P09: 1 Gb/s with a round trip of 40 ms."""
    with learning("star:hosts=2,rate=1G,delay=10ms,buffer=5000000") as fabric:
        return traffic.tcp_stream(fabric, "h1", "h2", seconds=4, skip=2)


@fact
def ecn() -> object:
    """P08: the handshake and the data of a connection, with ECN on and off."""
    found = {}
    for state in ("on", "off"):
        with learning(STAR, HostSettings(ecn=state, cc="dctcp" if state == "on" else "cubic")) as fabric:
            with Capture(interfaces=fabric.taps(["h1-eth0"]), directory=OUT / f"ecn-{state}"):
                result = traffic.tcp_stream(fabric, "h1", "h2", seconds=0.001, skip=0)
            found[state] = result["congestion"]
    return found


@fact
def tcp_all_pairs() -> object:
    """P10, P19: ten cold starts, a TCP connection between all pairs the moment the fabric is there."""
    found = []
    for _ in range(10):
        with learning("star:hosts=4") as fabric:
            found.append(traffic.tcp_connects(fabric))
    return found


@fact
def silence() -> object:
    """P14: nothing is sent for 30 s on a fabric that nobody uses."""
    with Fabric(topology=parse_topology("leaf_spine:leaves=2,spines=2,hosts=2")) as fabric:
        with Capture(interfaces=fabric.taps(fabric.plan.placed), directory=OUT / "silence") as capture:
            time.sleep(30)
        counters = fabric.counters()
        return {
            "captured": sum(it.packets for it in capture.captured.values()),
            "counted": sum(it.tx_packets + it.rx_packets for it in counters.values()),
        }


@fact
def no_storm() -> object:
    """P15: a broadcast in a fabric full of loops, before any controller came."""
    with Fabric(topology=parse_topology("leaf_spine:leaves=2,spines=2,hosts=2")) as fabric:
        fabric.net.get("h1").cmd("ping -b -c 1 -W 1 10.255.255.255; ping -c 1 -W 1 10.9.9.9")
        time.sleep(3)
        counters = fabric.counters()
        between = [end.name for end in fabric.topology.interfaces() if "spine" in end.node]
        return {"between_switches": sum(counters[name].rx_packets for name in between)}


@fact
def refused_bridge() -> object:
    """P19: a switch whose bridge cannot be made: named, within 30 s, and nothing is left."""
    port = Interface(node="lo", port=1, name="lo-eth1")
    good = parse_topology("star:hosts=2")
    link = good.links[0]
    link = replace(link, b=port) if link.b.node in good.switch_named else replace(link, a=port)
    topology = Topology(
        name="bad", hosts=good.hosts[:1], switches=(Switch(name="lo", dpid=1, tier="leaf"),), links=(link,)
    )
    start = time.monotonic()
    try:
        with Fabric(topology=topology):
            return {"error": None}
    except TestbedError as error:
        return {"error": str(error), "seconds": time.monotonic() - start, "left": left_behind()}


@fact
def datapath_ids() -> object:
    """P20: edge and aggregation switches of two pods."""
    with Fabric(topology=parse_topology("fat_tree:k=4")) as fabric:
        return dict(fabric.switches._list("Bridge", "name,datapath_id"))  # type: ignore[arg-type]


@fact
def links_of_several_nics() -> object:
    """What a host sends from the address of NIC r, or to the leaf of NIC r, leaves by NIC r."""
    with learning("rail:hosts=2,rails=2,spines=1") as fabric:
        first, second = fabric.topology.interfaces_of["h1"]
        far = fabric.topology.interfaces_of["h2"]
        found = {}
        for source in (None, first, second):
            for target in far:
                before = fabric.counters()
                address = "0.0.0.0" if source is None else str(source.ip)
                with traffic.datagram_socket(fabric, "h1", address=address) as one:
                    one.sendto(b"x", (str(target.ip), 9))
                time.sleep(0.01)
                after = fabric.counters()
                used = [nic.name for nic in (first, second) if after[nic.name].tx_packets > before[nic.name].tx_packets]
                found[f"{source.name if source else 'any'} to {target.name}"] = used
        return found


@fact
def mininet() -> object:
    """Its API and its CLI, and what a link that went down and came back has kept."""
    from mininet.cli import CLI

    with learning("star:hosts=3") as fabric:
        net = fabric.net
        found: dict[str, object] = {}
        found["repr_starts_no_shell"] = repr(net.hosts[0]) and net.hosts[0].shell is None
        found["ping"] = net.get("h1").cmd("ping -c 1 -W 1 10.0.1.2")
        with contextlib.redirect_stdout(io.StringIO()):
            found["ping_all_lost"] = net.pingAll(timeout="1")
        net.configLinkStatus("s1", "h2", "down")
        found["down"] = net.get("h1").cmd("ping -c 1 -W 1 10.0.1.2")
        found["is_up"] = net.get("h2").intf("h2-eth0").isUp()
        net.configLinkStatus("s1", "h2", "up")
        fabric._await_carrier()
        found["up"] = net.get("h1").cmd("ping -c 1 -W 1 10.0.1.2")
        fabric.verify()
        host = net.get("h3")
        host.sendCmd("sh -c 'echo begun; exec sleep 100000'")
        said = ""
        while "begun" not in said:  # Ctrl-C before the shell has started its command reaches nobody
            said += host.monitor()
        host.sendInt()
        host.waitOutput()
        found["after_interrupt"] = host.cmd("echo alive")
        found["popen"] = host.popen("ip", "-br", "addr", "show", "h3-eth0").communicate()[0].decode()
        found["pid"] = (
            str(Path(f"/proc/{host.pid}/ns/net").readlink()) == host.cmd("readlink /proc/self/ns/net").strip()
        )
        script = OUT / "cli.txt"
        script.write_text("nodes\nh1 ping -c 1 -W 1 h2\nlink s1 h3 down\nlink s1 h3 up\ndump\nsh ovs-vsctl list-br\n")
        found["cli"] = _said(lambda: CLI(net, script=str(script)))
        return found


def _said(call: Callable[[], object]) -> str:
    """What Mininet wrote to its log's stream, which is no sys.stdout."""
    from mininet.log import lg

    stream = io.StringIO()
    handler = lg.handlers[0]
    before, handler.stream = handler.stream, stream
    try:
        call()
    finally:
        handler.stream = before
    return stream.getvalue()


@fact
def read_by_others() -> object:
    """What tc says of a port and sysctl of a host: other people's decoders."""
    with learning("star:hosts=2,rate=400G,delay=3us,buffer=300000", HostSettings(cc="bbr", rto_min="5ms")) as fabric:
        host = fabric.net.get("h1")
        return {
            "qdisc": json.loads(host.cmd("tc -j -d qdisc show dev h1-eth0")),
            "police": host.cmd("tc -s filter show dev h1-eth0 egress"),
            "sysctls": host.cmd("sysctl net.ipv4.tcp_congestion_control net.ipv4.tcp_rto_min_us net.ipv4.tcp_rmem"),
            "offloads": host.cmd("ethtool -k h1-eth0 | grep -E '^(tcp-seg|generic-(seg|rec))'"),
            "link": host.cmd("ip -d link show h1-eth0"),
            "in_force": fabric.in_force()["hosts"]["h1"],  # type: ignore[index]
        }


@fact
def unknown_congestion_control() -> object:
    """cc=foo: an error with the names that would do; nothing is left."""
    try:
        with learning("star:hosts=2", HostSettings(cc="foo")):
            return {"error": None}
    except TestbedError as error:
        return {"error": str(error), "exit_code": error.exit_code, "left": left_behind()}


@fact
def tampered() -> object:
    """P01: a setting that is not what was asked is found and named."""
    found: dict[str, str | None] = {}
    with learning("star:hosts=2") as fabric:
        host = fabric.net.get("h1")
        for name, command, undo in (
            ("qdisc", "tc qdisc change dev h1-eth0 root netem delay 5ms rate 1gbit", None),
            ("sysctl", "sysctl -qw net.ipv4.tcp_sack=0", "sysctl -qw net.ipv4.tcp_sack=1"),
            ("neighbour", "ip neigh del 10.0.1.2 dev h1-eth0", None),
            ("mtu", "ip link set h1-eth0 mtu 1500", None),
        ):
            host.cmd(command)
            try:
                fabric.verify()
                found[name] = None
            except TestbedError as error:
                found[name] = str(error)
            if undo:
                host.cmd(undo)
            elif name == "qdisc":
                host.cmd("tc qdisc del dev h1-eth0 root; tc qdisc del dev h1-eth0 clsact")
                fabric._make_ports("h1")
    return found


@fact
def leaves_nothing() -> object:
    """P22: after a normal end, an exception, SIGTERM, SIGINT and five times SIGKILL."""
    found: dict[str, object] = {"before": left_behind()}
    with learning("star:hosts=2"):
        pass
    found["normal"] = left_behind()
    with contextlib.suppress(ZeroDivisionError), learning("star:hosts=2"):
        raise ZeroDivisionError
    found["exception"] = left_behind()
    for number in (signal.SIGTERM, signal.SIGINT):
        _interrupt(number)
        found[signal.Signals(number).name] = left_behind()
    kills = []
    for _ in range(5):
        _interrupt(signal.SIGKILL)
        with learning("star:hosts=2") as fabric:
            kills.append(
                {"pairs": traffic.tcp_connects(fabric), "state": sorted(path.name for path in clean.STATE.iterdir())}
            )
    found["kills"], found["after_kills"] = kills, left_behind()
    return found


def _interrupt(number: int) -> None:
    """Starts a run of its own, with a capture and a shell, and sends it a signal in the middle."""
    program = f"""
import time
from pathlib import Path
from testbed.capture import Capture
from testbed.fabric import Fabric
from topologies.registry import parse_topology
with Fabric(topology=parse_topology("star:hosts=3"), fail_mode="standalone") as fabric:
    with Capture(interfaces=fabric.taps(["h1-eth0"]), directory=Path("{OUT}/interrupted")):
        fabric.net.get("h1").sendCmd("sleep 1000")
        print("ready", flush=True)
        time.sleep(1000)
"""
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(number)
    run.wait()


@fact
def real_clock() -> object:
    """A rate that any machine keeps up with: what a stream gets of it."""
    with learning("dumbbell:hosts=1,rate=20M,delay=100us,mtu=1500,buffer=100000", HostSettings()) as fabric:
        stream = traffic.tcp_stream(fabric, "h1", "h2", seconds=4, skip=1)
        time.sleep(0.5)
        ports = fabric.in_force()["ports"]
        return {**stream, "in_force": ports["h1-eth0"], "imbalances": fabric.imbalances()}  # type: ignore[index]


@fact
def built_k4() -> object:
    """Wall time is read from when the lines around it are printed."""
    return _built("fat_tree:k=4")


@fact
def built_k8() -> object:
    """The same for 80 switches, 128 hosts, 384 links."""
    return _built("fat_tree:k=8")


def _built(spec: str) -> object:
    topology = parse_topology(spec)
    _say(f"BEGIN {spec}")
    with Fabric(topology=topology) as fabric:
        _say(f"END {spec}")
        return [len(fabric.net.switches), len(fabric.net.hosts), len(fabric.net.links)]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Every fact, or those named on the command line."""
    found: dict[str, object] = {}
    for name in sys.argv[2:] or FACTS:
        try:
            found[name] = FACTS[name]()
            _say(f"DONE {name}")
        except Exception as error:  # noqa: BLE001 - the test that needs this fact shall show the error
            found[name] = {"raised": f"{type(error).__name__}: {error}"}
            _say(f"FAILED {name}: {type(error).__name__}: {error}")
    (OUT / "facts.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
