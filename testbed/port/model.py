"""A model of the `fabric` qdisc in plain Python: the same departures, marks, drops and pauses, and no kernel.

It says in the fewest words what the kernel's port does, and the fuzz test holds the two against each other.  A
`SwitchModel` is what shares one buffer; a `PortModel` is one egress port of it.  Time is an argument; everything that
happens of itself up to a moment happens in `SwitchModel.advance`, in the order (time, slot of the port).
"""

from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction

from testbed.port.buffer_model import Ingress, SharedBuffer
from testbed.port.config import CLASSES, PFC_FRAME_BYTES, PortConfig
from testbed.port.stats import ClassStats, Drops, PortStats

NEVER = 2**64 - 1
ECT_1, ECT_0, CE = 1, 2, 3
_MASK = 2**64 - 1
_PPB = 10**9
_EGRESS, _WATCHDOG = "egress", "watchdog"


@dataclass(frozen=True, kw_only=True, slots=True)
class Packet:
    """One frame of data."""

    size_bytes: int
    dscp: int | None = 0
    """None: not IP."""
    ecn: int = 0
    serial: int = 0
    """For the reader; the port does not look at it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """One 802.1Qbb frame for one class; 0 quanta let it go on."""

    index: int
    quanta: int
    size_bytes: int = PFC_FRAME_BYTES


@dataclass(frozen=True, slots=True)
class _Waiting:
    packet: Packet
    since_ns: int
    ingress: Ingress | None


class _Class:
    """One queue of a port."""

    def __init__(self) -> None:
        self.queue: deque[_Waiting] = deque()
        self.bytes = 0
        self.deficit = 0
        self.paused_until = 0
        self.pause_counted = 0
        self.stalled_since: int | None = None
        self.storm = False
        self.counts: dict[str, int] = {}
        self.drops = {"packets": dict[str, int](), "bytes": dict[str, int]()}
        self.peak_packets = self.peak_bytes = 0

    def count(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            self.counts[name] = self.counts.get(name, 0) + amount

    def drop(self, cause: str, size: int) -> None:
        for unit, amount in (("packets", 1), ("bytes", size)):
            self.drops[unit][cause] = self.drops[unit].get(cause, 0) + amount


class PortModel:
    """One egress port."""

    def __init__(self, switch: "SwitchModel", slot: int, config: PortConfig) -> None:
        """Made by SwitchModel.add_port."""
        self.switch, self.slot, self.config = switch, slot, config
        self.ingress = Ingress(config)
        self._refresh_ns: dict[int, int] = {}
        self.classes = [_Class() for _ in range(CLASSES)]
        self.control: deque[Pause] = deque()
        self.wire: deque[tuple[int, Packet | Pause]] = deque()
        """(arrival, frame), in order."""
        self.free_ns = 0
        self.peak_bytes = 0
        self.counts = dict.fromkeys(("delivered", "control"), (0, 0))
        self.busy_ns = self.control_ignored = 0
        self._exact_free = Fraction(0)
        self._random = 1 if config.seed is None else config.seed
        self._turn = [0] * CLASSES

    # ---- from outside ----

    def arrive(self, packet: Packet, *, came_in: "PortModel | None", now: int) -> bool:
        """A packet comes to this egress through the port `came_in`; False if it is dropped."""
        switch = self.switch
        switch.advance(now)
        index = self.config.default_class if packet.dscp is None else self.config.dscp_classes[packet.dscp]
        cl, size = self.classes[index], packet.size_bytes
        cl.count(enqueued_packets=1, enqueued_bytes=size)
        ingress, buffer = None, switch.buffer
        cause = self._refuse(index, size, now)
        if cause is None and buffer is not None and not self.config.classes[index].exempt:
            ingress = buffer.local if came_in is None else came_in.ingress
            cause = buffer.charge(ingress, index, size)
        if cause is not None:
            cl.drop(cause, size)
            return False
        if ingress is not None and buffer is not None and came_in is not None and buffer.must_stop(ingress, index):
            came_in.send_pause(index, came_in.config.pause_quanta, now)
        marking = self.config.classes[index].marking
        if marking is not None and marking.on_arrival:
            packet = self._mark(index, packet)
        if cl.stalled_since is None and not cl.storm and cl.paused_until > now:
            cl.stalled_since = now
        cl.queue.append(_Waiting(packet, now, ingress))
        cl.bytes += size
        switch.advance(now)
        self._note_peaks(cl, index, ingress)
        return True

    def obey(self, pause: Pause, now: int) -> None:
        """A PFC frame comes in at the device of this port."""
        self.switch.advance(now)
        cl = self.classes[pause.index]
        if not self.config.classes[pause.index].pfc:
            self.control_ignored += 1
            return
        self._settle(pause.index, now)
        before = cl.paused_until
        if pause.quanta == 0:
            cl.count(resumes_received=1)
            cl.paused_until = min(before, now)
            cl.stalled_since = None
        else:
            cl.count(pauses_received=1)
            cl.paused_until = now + self._quanta_ns(pause.quanta)
            cl.pause_counted = now
            if cl.queue and not cl.storm and (cl.stalled_since is None or before < now):
                cl.stalled_since = now
        self.switch.advance(now)

    def change(self, config: PortConfig, now: int) -> None:
        """Another configuration is put in force; what waits and what is on the wire stays."""
        self.switch.advance(now)
        if config.rate_bps != self.config.rate_bps:
            self._exact_free = Fraction(self.free_ns)
        if config.seed is not None:
            self._random = config.seed
        self.config = config
        if self.switch.buffer is not None:
            self.switch.buffer.change(self.ingress, config)
        for index, cl in enumerate(self.classes):
            if not config.classes[index].pfc:
                self._count_pause(cl, now)
                cl.paused_until = min(cl.paused_until, now)
                cl.stalled_since = None
                if index in self.ingress.stopped:
                    self.send_pause(index, 0, now)
        self.switch.resume_all(now)
        self.switch.advance(now)

    def deliver(self) -> Packet | Pause:
        """Takes the first frame off the wire."""
        _, frame = self.wire.popleft()
        self._count("delivered", frame.size_bytes)
        return frame

    # ---- admission and marking ----

    def _refuse(self, index: int, size: int, now: int) -> str | None:
        config, cl = self.config.classes[index], self.classes[index]
        self._settle(index, now)
        if cl.storm and not (config.watchdog and config.watchdog.forward):
            return _WATCHDOG
        after = cl.bytes + size
        if config.limit_bytes and after > config.limit_bytes:
            return _EGRESS
        if self.config.limit_bytes and self.queue_bytes + size > self.config.limit_bytes:
            return _EGRESS
        buffer = self.switch.buffer
        bounded = config.egress_alpha and not config.pfc and not config.exempt
        if bounded and buffer is not None and after > int(config.egress_alpha * buffer.free_bytes):
            return _EGRESS
        return None

    def _mark(self, index: int, packet: Packet) -> Packet:
        if not self._should_mark(index) or packet.ecn == CE:
            return packet
        if packet.dscp is None or packet.ecn not in (ECT_0, ECT_1):
            self.classes[index].count(unmarkable=1)
            return packet
        self.classes[index].count(marked=1)
        return replace(packet, ecn=CE)

    def _should_mark(self, index: int) -> bool:
        marking, cl = self.config.classes[index].marking, self.classes[index]
        if marking is None:
            return False
        queue = len(cl.queue) if marking.in_packets else cl.bytes
        if queue > marking.kmax:
            return True
        if queue <= marking.kmin:
            return False
        chance = marking.pmax_ppb * (queue - marking.kmin) // (marking.kmax - marking.kmin)
        return self._draw() * _PPB >> 32 < chance

    def _draw(self) -> int:
        """The kernel's generator: the upper half of splitmix64."""
        self._random = z = (self._random + 0x9E3779B97F4A7C15) & _MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        return (z ^ (z >> 31)) >> 32

    def _note_peaks(self, cl: _Class, index: int, ingress: Ingress | None) -> None:
        cl.peak_packets = max(cl.peak_packets, len(cl.queue))
        cl.peak_bytes = max(cl.peak_bytes, cl.bytes)
        self.peak_bytes = max(self.peak_bytes, self.queue_bytes)
        if ingress is not None and self.switch.buffer is not None:
            self.switch.buffer.note_peaks(ingress, index)

    # ---- pauses ----

    def _quanta_ns(self, quanta: int) -> int:
        return quanta * 512 * 10**9 // self.config.rate_bps

    def _paused(self, index: int, at: int) -> bool:
        cl, watchdog = self.classes[index], self.config.classes[index].watchdog
        return cl.paused_until > at and not (cl.storm and watchdog is not None and watchdog.forward)

    def _settle(self, index: int, now: int) -> None:
        """Counts paused time and lets go of a fired watchdog."""
        cl, watchdog = self.classes[index], self.config.classes[index].watchdog
        self._count_pause(cl, now)
        if cl.storm and now >= cl.paused_until + (watchdog.restore_ns if watchdog else 0):
            cl.storm = False
            cl.count(watchdog_restored=1)

    @staticmethod
    def _count_pause(cl: _Class, now: int) -> None:
        upto = min(now, cl.paused_until)
        if upto > cl.pause_counted:
            cl.count(paused_ns=upto - cl.pause_counted)
            cl.pause_counted = upto

    def _fires_at(self, index: int) -> int:
        cl, watchdog = self.classes[index], self.config.classes[index].watchdog
        if watchdog is None or cl.storm or cl.stalled_since is None:
            return NEVER
        at = cl.stalled_since + watchdog.limit_ns
        return at if at < cl.paused_until else NEVER

    def _fire(self, index: int, at: int) -> None:
        cl, watchdog = self.classes[index], self.config.classes[index].watchdog
        cl.storm, cl.stalled_since = True, None
        cl.count(watchdog_fired=1)
        while cl.queue and watchdog is not None and not watchdog.forward:
            waiting = self._take(index)
            cl.drop(_WATCHDOG, waiting.packet.size_bytes)
            self.switch.release(waiting.ingress, index, waiting.packet.size_bytes, at)

    def send_pause(self, index: int, quanta: int, at: int) -> None:
        """Queues a PFC frame ahead of everything; for quanta above 0 also sets its refresh."""
        if quanta:
            self.ingress.stopped.add(index)
            self._refresh_ns[index] = at + max(1, self._quanta_ns(quanta) // 2)
            self.classes[index].count(pauses_sent=1)
        else:
            self.ingress.stopped.remove(index)
            del self._refresh_ns[index]
            self.classes[index].count(resumes_sent=1)
        self.control.append(Pause(index=index, quanta=quanta))

    # ---- events ----

    def next_event_ns(self, clock: int) -> int:
        """When something happens here of itself."""
        starts = [clock] if self.control else []
        for index, cl in enumerate(self.classes):
            if cl.queue:
                starts.append(cl.paused_until if self._paused(index, clock) else clock)
        events = [max(min(starts), self.free_ns)] if starts else []
        events += [self._fires_at(index) for index in range(CLASSES)]
        events += self._refresh_ns.values()
        return min(events, default=NEVER)

    def event(self, at: int) -> None:
        """Lets it happen: watchdogs, then refreshes, then the start of a frame."""
        for index in range(CLASSES):
            if self._fires_at(index) <= at:
                self._fire(index, at)
        for index in sorted(self._refresh_ns):
            if self._refresh_ns[index] <= at:
                self.send_pause(index, self.config.pause_quanta, at)
        if self.free_ns <= at:
            self._start(at)

    def _start(self, at: int) -> None:
        if self.control:
            frame: Packet | Pause = self.control.popleft()
            self._count("control", frame.size_bytes)
        else:
            index = self._select(at)
            if index is None:
                return
            cl = self.classes[index]
            waiting = self._take(index)
            frame, size = waiting.packet, waiting.packet.size_bytes
            marking = self.config.classes[index].marking
            if marking is not None and not marking.on_arrival:
                frame = self._mark(index, waiting.packet)
            cl.count(sent_packets=1, sent_bytes=size, wait_ns=at - waiting.since_ns)
            cl.stalled_since = None
            self.switch.release(waiting.ingress, index, size, at)
        self._serialise(frame, at)

    def _serialise(self, frame: Packet | Pause, at: int) -> None:
        bits = (frame.size_bytes + self.config.overhead_bytes) * 8
        begins = self._exact_free if at == self.free_ns else Fraction(at)
        self._exact_free = begins + Fraction(bits * 10**9, self.config.rate_bps)
        self.free_ns = int(self._exact_free + Fraction(1, 2))
        self.busy_ns += self.free_ns - at
        latest = self.wire[-1][0] if self.wire else 0
        self.wire.append((max(latest, self.free_ns + self.config.delay_ns), frame))

    def _take(self, index: int) -> _Waiting:
        cl = self.classes[index]
        waiting = cl.queue.popleft()
        cl.bytes -= waiting.packet.size_bytes
        if not cl.queue:
            cl.deficit = 0
        return waiting

    def _select(self, at: int) -> int | None:
        ready = [index for index, cl in enumerate(self.classes) if cl.queue and not self._paused(index, at)]
        if not ready:
            return None
        level = max(self.config.classes[index].priority for index in ready)
        ready = [index for index in ready if self.config.classes[index].priority == level]
        if len(ready) == 1:
            return ready[0]
        index = self._turn[level]
        while True:
            cl = self.classes[index]
            if index in ready:
                need = cl.queue[0].packet.size_bytes + self.config.overhead_bytes
                if cl.deficit >= need:
                    cl.deficit -= need
                    self._turn[level] = index
                    return index
            index = min((each for each in ready if each > index), default=ready[0])
            self.classes[index].deficit += self.config.classes[index].quantum_bytes

    # ---- reading ----

    @property
    def queue_bytes(self) -> int:
        """Waiting, all classes."""
        return sum(cl.bytes for cl in self.classes)

    def _count(self, name: str, size: int) -> None:
        packets, octets = self.counts[name]
        self.counts[name] = packets + 1, octets + size

    def stats(self, now: int) -> PortStats:
        """As the kernel would tell at `now`."""
        self.switch.advance(now)
        buffer = self.switch.buffer
        return PortStats(
            now_ns=now,
            queue_packets=sum(len(cl.queue) for cl in self.classes),
            queue_bytes=self.queue_bytes,
            peak_bytes=self.peak_bytes,
            wire_packets=len(self.wire),
            wire_bytes=sum(frame.size_bytes for _, frame in self.wire),
            delivered_packets=self.counts["delivered"][0],
            delivered_bytes=self.counts["delivered"][1],
            wire_flushed_packets=0,
            wire_flushed_bytes=0,
            control_packets=self.counts["control"][0],
            control_bytes=self.counts["control"][1],
            control_ignored=self.control_ignored,
            control_failed=0,
            busy_ns=self.busy_ns,
            buffer_id=self.config.buffer_id,
            buffer_ports=len(self.switch.ports),
            pool_bytes=buffer.pool_bytes if buffer else 0,
            shared_bytes=buffer.used_bytes if buffer else 0,
            shared_peak_bytes=buffer.peak_bytes if buffer else 0,
            classes=tuple(self._class_stats(index, now) for index in range(CLASSES)),
        )

    def _class_stats(self, index: int, now: int) -> ClassStats:
        self._settle(index, now)
        cl = self.classes[index]
        return ClassStats(
            **cl.counts,
            dropped_packets=Drops(**cl.drops["packets"]),
            dropped_bytes=Drops(**cl.drops["bytes"]),
            queue_packets=len(cl.queue),
            queue_bytes=cl.bytes,
            peak_packets=cl.peak_packets,
            peak_bytes=cl.peak_bytes,
            ingress_bytes=self.ingress.used[index],
            headroom_bytes=self.ingress.headroom[index],
            headroom_peak_bytes=self.ingress.headroom_peak[index],
            paused=cl.paused_until > now,
            storm=cl.storm,
            xoff=index in self.ingress.stopped,
        )


class SwitchModel:
    """The ports that share one buffer, or the one port of a host (`buffer_bytes` None)."""

    def __init__(self, *, buffer_bytes: int | None = None) -> None:
        """An empty switch."""
        self.buffer = None if buffer_bytes is None else SharedBuffer(buffer_bytes)
        self.ports: list[PortModel] = []
        self.clock = 0

    def add_port(self, config: PortConfig) -> PortModel:
        """The next port, in the order of slots."""
        self.ports.append(PortModel(self, len(self.ports) + 1, config))
        if self.buffer is not None:
            self.buffer.ingresses.append(self.ports[-1].ingress)
        return self.ports[-1]

    def advance(self, now: int) -> None:
        """Everything that happens of itself up to and at `now`."""
        while self.ports:
            at, _, port = min((port.next_event_ns(self.clock), port.slot, port) for port in self.ports)
            if at > now:
                break
            self.clock = max(self.clock, at)
            port.event(at)
        self.clock = max(self.clock, now)

    def release(self, ingress: Ingress | None, index: int, size: int, at: int) -> None:
        """A packet begins serialisation or is dropped from its queue; its ingress may be let go on."""
        if self.buffer is None or ingress is None:
            return
        self.buffer.release(ingress, index, size)
        if self.buffer.may_go_on(ingress, index):
            next(port for port in self.ports if port.ingress is ingress).send_pause(index, 0, at)

    def resume_all(self, at: int) -> None:
        """After a change of thresholds: XON wherever it is due."""
        for port in self.ports:
            for index in range(CLASSES):
                if self.buffer is not None and self.buffer.may_go_on(port.ingress, index):
                    port.send_pause(index, 0, at)
