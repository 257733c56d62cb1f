"""Random ports and random trains of packets, in the guest's kernel and in the model: every arrival must agree.

Runs in the guest: `port_trains.py EXAMPLES SEED`.  Prints how many trains agreed, and exits 1 at the first that does
not, after hypothesis has made it as small as it can.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from port_lab import Arrival, Lab, frame, pfc_frame

from testbed.netlink import Request
from testbed.port.config import CLASSES, DSCPS, ClassConfig, Marking, PortConfig, Watchdog
from testbed.port.model import NEVER, Packet, Pause, PortModel, SwitchModel
from testbed.port.netlink import change
from testbed.port.stats import ClassStats, PortStats
from topologies.errors import TestbedError

PORTS = 3
TRAFFIC_CLASSES = (0, 3, 5)
BUFFER_ID = 7
DSCP_CLASSES = tuple(TRAFFIC_CLASSES[dscp % len(TRAFFIC_CLASSES)] for dscp in range(DSCPS))


@dataclass(frozen=True)
class Shot:
    """One frame that a host end sends: data for another host, or a pause for the port at the other end.

    Or a configuration that is put in force at the port at the other end.
    """

    after_ns: int
    source: int
    frame: Packet | Pause | PortConfig
    to: int = 0


def short(value: object) -> str:
    """Only what differs from the default."""
    if isinstance(value, tuple):
        return "(" + ", ".join(f"{place}: {text}" for place, text in enumerate(map(short, value)) if text != "-") + ")"
    if not is_dataclass(value):
        return repr(value)
    told = [
        (each.name, getattr(value, each.name)) for each in fields(value) if getattr(value, each.name) != each.default
    ]
    return f"{type(value).__name__}({', '.join(f'{name}={short(each)}' for name, each in told)})" if told else "-"


@dataclass(frozen=True, repr=False)
class Case:
    """Ports and a train."""

    ports: tuple[PortConfig, ...]
    nics: tuple[PortConfig, ...]
    """Of the host ends; empty: they send at once and obey nothing."""
    train: tuple[Shot, ...]

    def __repr__(self) -> str:
        """Short enough to read."""
        lines = [f"port {place}: {short(each)}" for place, each in enumerate((*self.ports, *self.nics))]
        return "\n".join(("", *lines, *(short(shot) for shot in self.train)))


# ---- what may come ----


def mostly(usual: object, *others: object, weight: int = 3) -> st.SearchStrategy[Any]:
    """The usual value `weight` times as often as all the others together."""
    return st.sampled_from([*[usual] * weight * len(others), *others])


alphas = st.sampled_from((Fraction(1, 8), Fraction(1, 2), Fraction(1), Fraction(4)))
sizes = st.sampled_from((9014, 1514, 60, 9014, 4000, 1000, 66, 590, 64))
rates = mostly(100 * 10**9, 400 * 10**9, 25 * 10**9, 10**9, 99_999_999_977, 7 * 10**8 + 1, weight=1)
thresholds = st.integers(0, 60_000)


@st.composite
def markings(draw: st.DrawFn) -> Marking | None:
    """None, a step or a ramp."""
    if draw(st.sampled_from((False, False, True))):
        return None
    packets = draw(st.booleans())
    low = draw(st.integers(0, 6) if packets else thresholds)
    ramp = draw(st.integers(0, 10) if packets else thresholds)
    pmax = draw(st.integers(0, 10**9)) / 10**9
    return Marking(kmin=low, kmax=low + ramp, pmax=pmax, in_packets=packets, on_arrival=draw(st.booleans()))


watchdogs = st.builds(
    Watchdog, limit_ns=st.integers(1, 20_000), restore_ns=st.integers(0, 20_000), forward=st.booleans()
)

classes = st.builds(
    ClassConfig,
    priority=st.integers(0, 2),
    quantum_bytes=st.sampled_from((256, 1500, 9216)),
    limit_bytes=mostly(0, 5000, 20_000, 60_000),
    egress_alpha=mostly(Fraction(0), Fraction(1, 8), Fraction(1), Fraction(4)),
    marking=markings(),
    pfc=st.sampled_from((True, False)),
    exempt=mostly(False, True),
    reserve_bytes=st.sampled_from((0, 2000, 4096)),
    headroom_bytes=st.sampled_from((60_000, 20_000, 9014, 0)),
    alpha=st.one_of(alphas, st.just(Fraction(0))),
    xoff_bytes=st.one_of(st.just(0), st.integers(1, 20_000)),
    xon_offset_bytes=st.sampled_from((0, 3072, 9216)),
    watchdog=st.one_of(st.none(), watchdogs),
)


@st.composite
def ports(draw: st.DrawFn, *, buffer_id: int) -> PortConfig:
    """One port; the classes without traffic keep their defaults."""
    traffic = {index: draw(classes) for index in TRAFFIC_CLASSES}
    return PortConfig(
        rate_bps=draw(rates),
        delay_ns=draw(st.integers(0, 3000)),
        overhead_bytes=draw(st.sampled_from((0, 24))),
        limit_bytes=draw(mostly(0, 20_000, 60_000)),
        dscp_classes=DSCP_CLASSES,
        default_class=draw(st.sampled_from(TRAFFIC_CLASSES)),
        seed=draw(st.integers(0, 2**64 - 1)),
        buffer_id=buffer_id,
        buffer_bytes=300_000 if buffer_id else 0,
        pause_quanta=draw(st.sampled_from((32, 100, 1000, 65535))),
        classes=tuple(traffic.get(index, ClassConfig()) for index in range(CLASSES)),
    )


data = st.builds(Packet, size_bytes=sizes, dscp=st.integers(0, 5), ecn=st.sampled_from((2, 1, 2, 2, 0, 3)))
pauses = st.builds(Pause, index=st.sampled_from(TRAFFIC_CLASSES), quanta=st.sampled_from((0, 1, 50, 500, 3000)))
gaps = st.one_of(st.integers(0, 400), st.just(0), st.integers(0, 400), st.integers(0, 9000))


@st.composite
def shots(draw: st.DrawFn, *, with_pauses: bool) -> Shot:
    """Mostly data, mostly towards port 1: an incast."""
    what = draw(st.one_of(data, data, data, pauses) if with_pauses else data)
    return Shot(draw(gaps), draw(st.sampled_from((0, 0, 2, 1))), what, draw(st.sampled_from((1, 1, 1, 0, 2))))


def promise(port: PortConfig) -> int:
    """What it takes out of the shared pool."""
    return sum(each.reserve_bytes + each.headroom_bytes * each.pfc for each in port.classes)


@st.composite
def changes(draw: st.DrawFn, *, buffer_id: int, promised: int) -> tuple[Shot, int]:
    """Another configuration for one of the ports, in a buffer that holds `promised` besides; and what it takes."""
    config = draw(ports(buffer_id=buffer_id))
    needed = promise(config)
    if buffer_id:
        config = replace(config, buffer_bytes=promised + needed + draw(st.sampled_from((0, 15_000, 75_000))))
    return Shot(draw(gaps), draw(st.integers(0, PORTS - 1)), config), needed


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A switch with or without a shared buffer, hosts with or without NICs of ours."""
    buffer_id = draw(st.sampled_from((0, BUFFER_ID, BUFFER_ID)))
    size = st.sampled_from((60_000, 120_000, 300_000))
    nics = draw(st.booleans())
    made = [draw(ports(buffer_id=buffer_id)) for _ in range(PORTS)]
    promised = sum(map(promise, made)) if buffer_id else 0
    if buffer_id:
        made = [replace(port, buffer_bytes=promised + draw(size) // 4) for port in made]
        made = [replace(port, buffer_bytes=made[-1].buffer_bytes) for port in made]
    train = draw(st.lists(shots(with_pauses=not nics), min_size=12, max_size=60))
    for before, place in enumerate(sorted(draw(st.lists(st.integers(6, len(train)), max_size=2)))):
        shot, needed = draw(changes(buffer_id=buffer_id, promised=promised))
        train.insert(place + before, shot)
        promised += needed
    return Case(tuple(made), tuple(draw(ports(buffer_id=0)) for _ in range(PORTS)) if nics else (), tuple(train))


# ---- the model's network ----


class Ambiguous(Exception):  # noqa: N818
    """Two things happen at one nanosecond whose order the kernel is free to choose."""


@dataclass
class Model:
    """Hosts' NICs, the switch, and the cables between them."""

    case: Case

    def __post_init__(self) -> None:
        """Makes the ports."""
        shared = bool(self.case.ports[0].buffer_id)
        one = SwitchModel(buffer_bytes=self.case.ports[0].buffer_bytes)
        self.ports = [(one if shared else SwitchModel()).add_port(each) for each in self.case.ports]
        self.nics = [SwitchModel().add_port(each) for each in self.case.nics]
        self.switches = list({id(port.switch): port.switch for port in (*self.ports, *self.nics)}.values())
        self.to: dict[int, int] = {}
        self.arrivals: dict[int, list[tuple[int, Packet | Pause]]] = {port: [] for port in range(PORTS)}

    def run(self, sent: Sequence[int]) -> int:
        """The whole train, sent at these times; returns when all is at rest."""
        now, next_shot, last = 0, 0, None
        while True:
            inside = min(port.next_event_ns(port.switch.clock) for port in (*self.ports, *self.nics))
            outside = sent[next_shot] if next_shot < len(sent) else NEVER
            wires = [port for port in (*self.nics, *self.ports) if port.wire]
            wire = min((port.wire[0][0] for port in wires), default=NEVER)
            now = min(inside, outside, wire)
            if now == NEVER:
                return last or 0
            last = now
            if inside == now:
                for switch in self.switches:
                    switch.advance(now)
                continue
            due = [port for port in wires if port.wire[0][0] == now]
            acting = [port for port in due if self._acts(port)]
            if len(acting) > 1 or (acting and outside == now):
                raise Ambiguous
            if due:
                self._deliver(due[0], now)
            else:
                self._send(self.case.train[next_shot], next_shot, now)
                next_shot += 1

    def _acts(self, port: PortModel) -> bool:
        """True if what this wire brings can change anything but the list of arrivals."""
        return port in self.nics or (bool(self.nics) and isinstance(port.wire[0][1], Pause))

    def _send(self, shot: Shot, serial: int, now: int) -> None:
        if isinstance(shot.frame, PortConfig):
            self.ports[shot.source].change(shot.frame, now)
            return
        if isinstance(shot.frame, Pause):
            self.ports[shot.source].obey(shot.frame, now)
            return
        packet = replace(shot.frame, serial=serial)
        self.to[serial] = shot.to
        if self.nics:
            self.nics[shot.source].arrive(packet, came_in=None, now=now)
        else:
            self._switch(packet, shot.source, now)

    def _switch(self, packet: Packet, source: int, now: int) -> None:
        self.ports[self.to[packet.serial]].arrive(packet, came_in=self.ports[source], now=now)

    def _deliver(self, port: PortModel, now: int) -> None:
        got = port.deliver()
        if port in self.nics:
            assert isinstance(got, Packet)
            self._switch(got, self.nics.index(port), now)
            return
        host = self.ports.index(port)
        self.arrivals[host].append((now, got))
        if isinstance(got, Pause) and self.nics:
            self.nics[host].obey(got, now)


# ---- one against the other ----


def wire_frame(shot: Shot, serial: int, index: Mapping[str, int]) -> bytes | Request:
    """What the host end sends, or the kernel is asked."""
    if isinstance(shot.frame, PortConfig):
        name = f"s{shot.source}"
        return change(index[name], shot.frame, where=name)
    if isinstance(shot.frame, Pause):
        pause: bytes = pfc_frame(source=shot.source, index=shot.frame.index, quanta=shot.frame.quanta)
        return pause
    packet = shot.frame
    sent: bytes = frame(
        source=shot.source, to=shot.to, size=packet.size_bytes, dscp=packet.dscp or 0, ecn=packet.ecn, serial=serial
    )
    return sent


def seen(arrival: Arrival) -> tuple[object, ...]:
    """What is compared of a frame in the kernel."""
    if arrival.is_pfc:
        return arrival.time_ns, "pause", *arrival.pause
    return arrival.time_ns, "data", arrival.serial, arrival.ecn, arrival.size


def expected(arrival: tuple[int, Packet | Pause]) -> tuple[object, ...]:
    """The same of a frame in the model."""
    when, what = arrival
    if isinstance(what, Pause):
        return when, "pause", what.index, what.quanta
    return when, "data", what.serial, what.ecn, what.size_bytes


def differ(where: str, kernel: list[object], model: list[object], start_ns: int) -> None:
    """Raises AssertionError with the first differences."""
    if kernel == model:
        return
    wrong = [(ours, theirs) for ours, theirs in zip_longest(kernel, model) if ours != theirs]
    told = "\n".join(f"  kernel {theirs}\n  model  {ours}" for theirs, ours in wrong[:5])
    raise AssertionError(f"{where}, sent from {start_ns}:\n{told}")


def _lines(stats: PortStats) -> list[object]:
    port = [(each.name, getattr(stats, each.name)) for each in fields(stats) if each.name != "classes"]
    classes = [
        (index, each.name, getattr(cl, each.name)) for index, cl in enumerate(stats.classes) for each in fields(cl)
    ]
    return [*port, *classes]


class Bench:
    """The lab, and what was learnt."""

    def __init__(self) -> None:
        """Lays the cables."""
        self.lab = Lab(PORTS)
        self.counts: Counter[str] = Counter()

    def compare(self, case: Case) -> None:
        """Runs a case in both and raises AssertionError where they differ."""
        names = [f"s{port}" for port in range(PORTS)] + [f"h{port}" for port in range(len(case.nics))]
        self.lab.make(dict(zip(names, (*case.ports, *case.nics), strict=True)))
        offset, train = 0, list[tuple[int, int, bytes | Request]]()
        for serial, shot in enumerate(case.train):
            offset += shot.after_ns
            train.append((offset, shot.source, wire_frame(shot, serial, self.lab.index)))
        sent = self.lab.send(train)
        model = Model(case)
        self.counts["trains"] += 1
        try:
            rest = model.run(sent)
        except Ambiguous:
            self.counts["ambiguous"] += 1
            self.settle()
            return
        self.lab.rest_until(rest + 10_000)
        got = self.lab.arrivals()
        for host in range(PORTS):
            differ(f"h{host}", list(map(seen, got[host])), list(map(expected, model.arrivals[host])), sent[0])
        stats = self.lab.stats()
        for name, port in zip(names, (*model.ports, *model.nics), strict=True):
            ours = port.stats(stats[name].now_ns)
            differ(name, _lines(stats[name]), _lines(ours), sent[0])
            self._tally(stats[name].classes)

    def settle(self) -> None:
        """Forgets a train that was not compared to its end."""
        self.lab.rest(10**9)
        self.lab.arrivals()

    def _tally(self, found: Sequence[ClassStats]) -> None:
        for each in found:
            for name in ("sent_packets", "marked", "pauses_sent", "resumes_sent", "pauses_received", "watchdog_fired"):
                self.counts[name] += getattr(each, name)
            for cause in ("egress", "shared", "headroom", "watchdog"):
                self.counts[f"dropped_{cause}"] += getattr(each.dropped_packets, cause)


def kernel_log() -> list[str]:
    """Everything that the kernel has said since it booted."""
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()


def main() -> None:
    """EXAMPLES SEED."""
    examples, start = int(sys.argv[1]), int(sys.argv[2])
    bench = Bench()

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def agree(case: Case) -> None:
        try:
            bench.compare(case)
        except (AssertionError, TestbedError) as error:
            bench.settle()
            raise AssertionError(f"{case!r}\n{error}") from None

    try:
        agree()
    except AssertionError as error:
        sys.stdout.write(f"{json.dumps(bench.counts)}\ndiffers: {error}\n")
        sys.exit(1)
    sys.stdout.write(json.dumps(bench.counts) + "\n")
    complaints = [line for line in kernel_log() if re.search(r"WARNING|BUG|Call Trace|Oops", line)]
    sys.stdout.write("\n".join((*complaints, "the kernel complained" if complaints else "agreed")) + "\n")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
