"""Runs in the guest: drives one switch of fabric ports through set pieces and writes down what it saw (facts.json).

A fact is a function that returns something to be judged by test_port.py; one that raises is written down as its error.
"""

import itertools
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

from port_lab import Lab, frame, mac, pfc_frame

from testbed.netlink import Request
from testbed.port.config import CLASSES, ETHERNET_OVERHEAD_BYTES, ClassConfig, Marking, PortConfig, Watchdog
from testbed.port.netlink import read_stats
from topologies.errors import TestbedError

OUT = Path(sys.argv[1])
SENDERS = 16
SINK = SENDERS
FACTS: dict[str, Callable[[Lab], object]] = {}
RATE, DELAY = 100 * 10**9, 1000
Timed = tuple[int, int, bytes | Request]
PLAIN = PortConfig(rate_bps=RATE, delay_ns=DELAY)
_UDP_SEGMENT = 103


def fact(function: Callable[[Lab], object]) -> Callable[[Lab], object]:
    FACTS[function.__name__] = function
    return function


def each_class(config: ClassConfig) -> tuple[ClassConfig, ...]:
    return (config,) * CLASSES


def burst(count: int, size: int, *, source: int = 0, to: int = 1, **more: int) -> list[Timed]:
    return [(0, source, frame(source=source, to=to, size=size, serial=n, **more)) for n in range(count)]


@fact
def serialisation(lab: Lab) -> object:
    """n frames at once: when each arrives after it was sent."""
    found = []
    for rate in (100 * 10**9, 400 * 10**9, 10**9, 99_999_999_977):
        for overhead in (0, ETHERNET_OVERHEAD_BYTES):
            lab.make({"s1": replace(PLAIN, rate_bps=rate, overhead_bytes=overhead)})
            for size in (9014, 1514, 64):
                sent = lab.send(burst(200, size))
                lab.rest(10**8)
                took = [each.time_ns - sent[0] - DELAY for each in lab.arrivals()[1]]
                found.append({"rate_bps": rate, "wire_bytes": size + overhead, "took_ns": took})
    return found


@fact
def utilisation(lab: Lab) -> object:
    """A queue that never runs dry: bits between first and last arrival over what the line could carry."""
    lab.make({"s1": PLAIN})
    for _ in range(10):
        lab.send(burst(200, 9014))  # 144 us of line time, sent in no time
    lab.rest(10**8)
    times = [each.time_ns for each in lab.arrivals()[1]]
    return (len(times) - 1) * 9014 * 8 / ((times[-1] - times[0]) * RATE / 10**9)


@fact
def marking(lab: Lab) -> object:
    """Frames and marks with a standing queue below, on the ramp and above."""
    found = {}
    for name, standing in (("below", 90), ("ramp", 150), ("above", 230)):
        config = ClassConfig(marking=Marking(kmin=100_000, kmax=200_000, pmax=0.5))
        lab.make({"s1": replace(PLAIN, classes=each_class(config), seed=7)})
        lab.send(burst(standing, 1000, ecn=2))
        before = lab.stats()["s1"].classes[0]
        train: list[Timed] = [(80 * n, 0, frame(source=0, to=1, size=1000, ecn=2)) for n in range(4000)]
        lab.send(train)
        after = lab.stats()["s1"].classes[0]
        lab.rest(10**8)
        lab.arrivals()
        sent, marked = after.sent_packets - before.sent_packets, after.marked - before.marked
        found[name] = {"sent": sent, "marked": marked, "queue": after.queue_bytes}
    return found


@fact
def segmentation(lab: Lab) -> object:
    """A 40,000 B datagram that the stack hands over in one piece leaves as 40 frames, one by one."""
    lab.make({"h0": PLAIN})
    ip = ("ip", "addr", "add", "10.0.0.1/24", "dev", "h0")
    neighbour = ("ip", "neigh", "replace", "10.0.0.2", "lladdr", mac(1).hex(":"), "dev", "h0")
    for command in (ip, neighbour):
        subprocess.run(command, check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 1000)
        sender.sendto(bytes(40_000), ("10.0.0.2", 9))
    lab.rest(10**7)
    subprocess.run(("ip", "addr", "flush", "dev", "h0"), check=True)
    times = [each.time_ns for each in lab.arrivals()[1] if each.size == 1042]
    stats = lab.stats()["h0"].classes[0]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return {"frames": len(times), "gaps_ns": sorted(set(gaps)), "enqueued": stats.enqueued_packets}


def lossless(headroom: int, *, buffer_id: int) -> PortConfig:
    """The HPCC simulator's port at 100 Gb/s: class 3 lossless, an eighth of the free pool, 3 KB to XON."""
    paused = ClassConfig(
        pfc=True,
        reserve_bytes=4096 if buffer_id else 0,
        headroom_bytes=headroom if buffer_id else 0,
        alpha=Fraction(1, 8),
        xon_offset_bytes=3072,
    )
    classes = tuple(paused if index == 3 else ClassConfig() for index in range(CLASSES))
    dscp = tuple(3 if value == 26 else 0 for value in range(64))
    return PortConfig(
        rate_bps=RATE,
        delay_ns=DELAY,
        dscp_classes=dscp,
        classes=classes,
        buffer_id=buffer_id,
        buffer_bytes=2_000_000 if buffer_id else 0,
    )


def incast(lab: Lab, headroom: int) -> object:
    """Sixteen NICs to one, 300 frames of 1,048 B each: the switch's drops and pauses, and those in the captures."""
    switch = {f"s{port}": lossless(headroom, buffer_id=1) for port in range(SENDERS + 1)}
    nics = {f"h{port}": lossless(0, buffer_id=0) for port in range(SENDERS)}
    lab.make({**switch, **nics})
    lab.send([shot for n in range(SENDERS) for shot in burst(300, 1048, source=n, to=SINK, dscp=26)])
    lab.rest(10**8)
    stats, arrivals = lab.stats(), lab.arrivals()
    sources = [stats[f"s{port}"].classes[3] for port in range(SENDERS)]
    captured = [each.pause for port in range(SENDERS) for each in arrivals[port] if each.is_pfc]
    sink = stats[f"s{SINK}"]
    return {
        "sent": 300 * SENDERS,
        "arrived": sum(not each.is_pfc for each in arrivals[SINK]),
        "dropped": asdict(sink.classes[3].dropped_packets),
        "pauses_sent": sum(each.pauses_sent for each in sources),
        "resumes_sent": sum(each.resumes_sent for each in sources),
        "pauses_captured": sum(quanta > 0 for _, quanta in captured),
        "resumes_captured": sum(quanta == 0 for _, quanta in captured),
        "pauses_obeyed": sum(stats[f"h{port}"].classes[3].pauses_received for port in range(SENDERS)),
        "headroom_peak": max(each.headroom_peak_bytes for each in sources),
        "shared_at_rest": sink.shared_bytes,
        "ingress_at_rest": sum(each.ingress_bytes + each.headroom_bytes for each in sources),
        "busy_ns": sink.busy_ns,
        "span_ns": arrivals[SINK][-1].time_ns - arrivals[SINK][0].time_ns,
    }


@fact
def incast_with_headroom(lab: Lab) -> object:
    """3 x rate x delay."""
    return incast(lab, 3 * RATE * DELAY // (8 * 10**9))


@fact
def incast_with_half(lab: Lab) -> object:
    """Half of that."""
    return incast(lab, 3 * RATE * DELAY // (8 * 10**9) // 2)


@fact
def watchdog(lab: Lab) -> object:
    """A pause of 10 us against limits of 5 and 20 us."""
    found = {}
    for name, limit in (("longer", 5_000), ("shorter", 20_000)):
        watched = ClassConfig(pfc=True, watchdog=Watchdog(limit_ns=limit, restore_ns=3_000))
        lab.make({"s1": replace(PLAIN, classes=each_class(watched))})
        pause = (0, 1, pfc_frame(source=1, index=0, quanta=1953))  # 9,999 ns
        late = (15_000, 0, frame(source=0, to=1, size=1000))
        lab.send([pause, *burst(5, 1000), late])
        lab.rest(10**6)
        arrived = len(lab.arrivals()[1])
        stats = lab.stats()["s1"].classes[0]
        found[name] = {
            "arrived": arrived,
            "fired": stats.watchdog_fired,
            "restored": stats.watchdog_restored,
            "dropped": stats.dropped_packets.watchdog,
            "paused_ns": stats.paused_ns,
        }
    return found


@fact
def change_at_run_time(lab: Lab) -> object:
    """Rate, marking and limit change in mid-train: nothing is lost, nothing overtakes."""
    lab.make({"s1": PLAIN})
    for rate in (RATE, 10 * 10**9, 4 * RATE):
        lab.send(burst(100, 1514))
        marking = Marking(kmin=0, kmax=0)
        lab.change("s1", replace(PLAIN, rate_bps=rate, delay_ns=500, classes=each_class(ClassConfig(marking=marking))))
        lab.rest(20_000)
    lab.rest(10**7)
    arrived = [each.serial for each in lab.arrivals()[1]]
    stats = lab.stats()["s1"]
    in_force = lab.config("s1").rate_bps
    return {"in_order": arrived == [*range(100)] * 3, "delivered": stats.delivered_packets, "rate_bps": in_force}


@fact
def going_down(lab: Lab) -> object:
    """What waits and what is on the wire when the device goes down is counted, and the port works afterwards."""
    lab.make({"s1": replace(PLAIN, delay_ns=10**6)})
    lab.send(burst(50, 1514))
    lab.rest(2_000)
    subprocess.run(("ip", "link", "set", "s1", "down"), check=True)
    subprocess.run(("ip", "link", "set", "s1", "up"), check=True)
    lab.rest(10**7)
    lost = lab.arrivals()[1]
    lab.send(burst(3, 1514))
    lab.rest(10**7)
    stats = lab.stats()["s1"]
    cl = stats.classes[0]
    return {
        "arrived_before": len(lost),
        "arrived_after": len(lab.arrivals()[1]),
        "flushed": cl.dropped_packets.flush,
        "wire_flushed": stats.wire_flushed_packets,
        "enqueued": cl.enqueued_packets,
        "sent": cl.sent_packets,
        "delivered": stats.delivered_packets,
        "queue": stats.queue_packets + stats.wire_packets,
    }


@fact
def refusals(lab: Lab) -> object:
    """What the kernel says to nonsense that gets past PortConfig."""
    said = []
    full = replace(PLAIN, buffer_id=5, buffer_bytes=100_000, classes=each_class(ClassConfig(reserve_bytes=7_000)))
    try:
        lab.make({"s0": full, "s1": full})
    except TestbedError as error:
        said.append(str(error))
    lab.make({"s0": PLAIN})
    try:
        lab.change("s0", replace(PLAIN, buffer_id=3, buffer_bytes=10**6))
    except TestbedError as error:
        said.append(str(error))
    return said


@fact
def sixty_four_ports(lab: Lab) -> object:
    """Dumps of a namespace with 64 ports; the host times the lines."""
    names = [f"d{number}" for number in range(64)]
    for name in names:
        subprocess.run(("ip", "link", "add", name, "type", "dummy"), check=True)
        subprocess.run(("ip", "link", "set", name, "up"), check=True)
        lab.index[name] = socket.if_nametoindex(name)
    lab.make({name: replace(PLAIN, buffer_id=2, buffer_bytes=10**6) for name in names})
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        for name in names:
            for dscp in (0, 26):
                sender.sendto(frame(source=0, to=1, size=1000, dscp=dscp), (name, 0x0800))
    lab.rest(10**6)
    for round_number in range(8):
        sys.stdout.write(f"dump {round_number} begins\n")
        for _ in range(20):
            found = read_stats(lab.netlink)
        sys.stdout.write(f"dump {round_number} ends\n")
    return {"ports": len(found), "sent": sum(each.delivered_packets for each in found.values())}


@fact
def cost(lab: Lab) -> object:
    """The same bursts through netem with a rate and through our port, in turns; the host times the lines."""
    lab.make({})
    lab.taps[1].socket.close()
    netem = ("tc", "qdisc", "add", "dev", "s1", "root", "netem", "rate", "100gbit", "delay", "1us", "limit", "10000")
    data = frame(source=0, to=1, size=9014)
    for round_number in range(6):
        for kind in ("netem", "fabric"):
            if kind == "netem":
                subprocess.run(netem, check=True)
            else:
                lab.make({"s1": PLAIN})
            sys.stdout.write(f"{kind} {round_number} begins\n")
            for _ in range(60):
                for _ in range(200):
                    lab.taps[0].socket.send(data)
                lab.rest(150_000)
            sys.stdout.write(f"{kind} {round_number} ends\n")
            if kind == "netem":
                subprocess.run(("tc", "qdisc", "del", "dev", "s1", "root"), check=True)
            else:
                lab.make({})
    return None


def main() -> None:
    """Every fact in turn, or those named after the folder."""
    lab = Lab(SENDERS + 1, destinations=(0, 1, SINK))
    found = {}
    for name in sys.argv[2:] or FACTS:
        try:
            found[name] = FACTS[name](lab)
        except Exception as error:  # noqa: BLE001 - the test that asks for this fact shows it
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    log = subprocess.run(("dmesg",), capture_output=True, text=True, check=True).stdout.splitlines()
    found["complaints"] = [line for line in log if re.search(r"WARNING|BUG|Call Trace|Oops", line)]
    (OUT / "facts.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
