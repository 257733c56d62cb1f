"""The model of the port against formulas: what the kernel's port is then held against."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.port.config import CLASSES, ClassConfig, Marking, PortConfig, Watchdog
from testbed.port.model import CE, ECT_0, NEVER, Packet, Pause, PortModel, SwitchModel

RATE = 100 * 10**9
LOSSLESS = ClassConfig(pfc=True, reserve_bytes=4096, headroom_bytes=37_500, alpha=Fraction(1, 8), xon_offset_bytes=3072)


def port(config: PortConfig) -> PortModel:
    """A host's: nothing shared."""
    return SwitchModel().add_port(config)


def all_classes(config: ClassConfig) -> tuple[ClassConfig, ...]:
    """The same eight times."""
    return (config,) * CLASSES


def drain(one: PortModel) -> list[tuple[int, Packet | Pause]]:
    """Everything that comes off the wire from now on, with its time."""
    got = []
    while (one.next_event_ns(one.switch.clock)) != NEVER:
        one.switch.advance(one.next_event_ns(one.switch.clock))
    while one.wire:
        when = one.wire[0][0]
        got.append((when, one.deliver()))
    return got


@given(
    rate=st.integers(10**6, 10**12),
    overhead=st.sampled_from((0, 24)),
    sizes=st.lists(st.integers(60, 9014), min_size=1, max_size=30),
    delay=st.integers(0, 10**6),
)
def test_back_to_back_frames_take_the_rounded_sum(rate: int, overhead: int, sizes: list[int], delay: int) -> None:
    """n frames: round(sum of (bytes + overhead) x 8 / rate), and the delay once."""
    one = port(PortConfig(rate_bps=rate, delay_ns=delay, overhead_bytes=overhead))
    for size in sizes:
        one.arrive(Packet(size_bytes=size), came_in=None, now=5_000)
    for number, (when, _) in enumerate(drain(one), start=1):
        exact = Fraction(sum(size + overhead for size in sizes[:number]) * 8 * 10**9, rate)
        assert abs(when - 5_000 - delay - exact) <= Fraction(1, 2)


def test_a_frame_that_finds_the_port_idle_waits_for_nothing() -> None:
    """And one that comes while another is on its way waits for its end."""
    one = port(PortConfig(rate_bps=RATE, delay_ns=1000))
    for now in (0, 100, 10_000):
        one.arrive(Packet(size_bytes=1250), came_in=None, now=now)
    assert [when for when, _ in drain(one)] == [1100, 1200, 11_100]


def test_limit_counts_what_waits_not_what_is_under_way() -> None:
    """Ten places: eleven of twenty frames get through."""
    one = port(PortConfig(rate_bps=RATE, limit_bytes=10_000))
    accepted = [one.arrive(Packet(size_bytes=1000), came_in=None, now=0) for _ in range(20)]
    assert accepted == [True] * 11 + [False] * 9
    assert one.stats(0).classes[0].dropped_packets.egress == 9
    assert one.stats(0).peak_bytes == 10_000


def test_step_marks_above_and_never_at_the_threshold() -> None:
    """Queue behind the packet: 9, 8, ... 0 frames; K of three frames marks those with more than three behind them."""
    marking = Marking(kmin=3000, kmax=3000)
    one = port(PortConfig(rate_bps=RATE, classes=all_classes(ClassConfig(marking=marking))))
    for _ in range(10):
        one.arrive(Packet(size_bytes=1000, ecn=ECT_0), came_in=None, now=0)
    marks = [isinstance(got, Packet) and got.ecn == CE for _, got in drain(one)]
    assert marks == [False] + [True] * 5 + [False] * 4, "the first began before the others came"


@pytest.mark.parametrize("queue", [0.1, 0.5, 0.9])
def test_ramp_marks_in_proportion(queue: float) -> None:
    """Within two points of pmax x (q - kmin) / (kmax - kmin), from counts."""
    marking = Marking(kmin=100_000, kmax=200_000, pmax=0.8)
    one = port(PortConfig(rate_bps=RATE, limit_bytes=0, seed=3, classes=all_classes(ClassConfig(marking=marking))))
    standing = 100 + round(100 * queue)
    now = 0
    for _ in range(standing + 1):
        one.arrive(Packet(size_bytes=1000, ecn=ECT_0), came_in=None, now=now)
    before = one.stats(now).classes[0]
    for _ in range(20_000):
        now += 80
        one.arrive(Packet(size_bytes=1000, ecn=ECT_0), came_in=None, now=now)
    after = one.stats(now).classes[0]
    share = (after.marked - before.marked) / (after.sent_packets - before.sent_packets)
    assert share == pytest.approx(0.8 * (queue - 0.01), abs=0.02)


def test_what_is_not_ect_is_neither_marked_nor_dropped() -> None:
    """It is counted."""
    one = port(PortConfig(rate_bps=RATE, classes=all_classes(ClassConfig(marking=Marking(kmin=0, kmax=0)))))
    for _ in range(5):
        one.arrive(Packet(size_bytes=1000), came_in=None, now=0)
    assert all(isinstance(got, Packet) and got.ecn == 0 for _, got in drain(one))
    assert one.stats(0).classes[0].unmarkable == 3


def test_equal_classes_share_by_bytes_and_the_higher_goes_first() -> None:
    """Quanta 3:1 among equals with frames of 500 and 1500 B; class 7 above both."""
    classes = [ClassConfig()] * CLASSES
    classes[1], classes[2] = ClassConfig(quantum_bytes=9000), ClassConfig(quantum_bytes=3000)
    classes[7] = ClassConfig(priority=1)
    dscp = tuple({1: 1, 2: 2, 7: 7}.get(index, 0) for index in range(64))
    one = port(PortConfig(rate_bps=RATE, dscp_classes=dscp, classes=tuple(classes)))
    for _ in range(600):
        one.arrive(Packet(size_bytes=500, dscp=1), came_in=None, now=0)
    for _ in range(200):
        one.arrive(Packet(size_bytes=1500, dscp=2), came_in=None, now=0)
    one.arrive(Packet(size_bytes=100, dscp=7), came_in=None, now=0)
    order = [got.dscp for _, got in drain(one) if isinstance(got, Packet)]
    assert order[1] == 7
    sent = [1500 if dscp == 2 else 500 for dscp in order[2:402]]
    share = sum(size for size in sent if size == 500) / sum(sent)
    assert share == pytest.approx(0.75, abs=0.03)


def test_xoff_headroom_and_xon() -> None:
    """HPCC's rules: XOFF at an eighth of the free pool, the rest to headroom, drops only beyond, XON below."""
    config = PortConfig(rate_bps=RATE, buffer_id=1, buffer_bytes=200_000, classes=all_classes(ClassConfig()))
    config = replace(config, classes=(LOSSLESS, *config.classes[1:]))
    switch = SwitchModel(buffer_bytes=200_000)
    came_in, out = switch.add_port(config), switch.add_port(config)
    pool = 200_000 - 2 * (4096 + 37_500)
    assert switch.buffer is not None
    assert switch.buffer.pool_bytes == pool
    accepted = [out.arrive(Packet(size_bytes=1000), came_in=came_in, now=0) for _ in range(100)]
    shared = next(n for n in range(10**6) if n * 1000 >= (pool - n * 1000) // 8) * 1000
    found = came_in.stats(0).classes[0]
    assert found.xoff
    assert found.headroom_bytes == 37_000, "37 of 1000 B fit into 37,500 B"
    assert found.ingress_bytes == pytest.approx(4096 + shared, abs=1000)
    assert sum(accepted) == 1 + (found.ingress_bytes + found.headroom_bytes) // 1000, "one is under way"
    assert out.stats(0).classes[0].dropped_packets.headroom == 100 - sum(accepted)
    drain(came_in)
    assert came_in.stats(switch.clock).classes[0].resumes_sent == 1
    assert (switch.buffer.used_bytes, came_in.ingress.used[0], came_in.ingress.headroom[0]) == (0, 0, 0)


def test_a_pause_holds_its_class_and_expires() -> None:
    """100 quanta of 512 bit at 100 Gb/s are 512 ns; class 1 goes on."""
    classes = all_classes(ClassConfig(pfc=True))
    one = port(PortConfig(rate_bps=RATE, dscp_classes=tuple(index % 8 for index in range(64)), classes=classes))
    one.obey(Pause(index=0, quanta=100), now=1000)
    one.arrive(Packet(size_bytes=1250, dscp=0, serial=1), came_in=None, now=1000)
    one.arrive(Packet(size_bytes=1250, dscp=1, serial=2), came_in=None, now=1100)
    got = [(when, frame.serial) for when, frame in drain(one) if isinstance(frame, Packet)]
    assert got == [(1200, 2), (1612, 1)]
    assert one.stats(2000).classes[0].paused_ns == 512


def test_a_resume_ends_the_pause_at_once() -> None:
    """Zero quanta."""
    one = port(PortConfig(rate_bps=RATE, classes=all_classes(ClassConfig(pfc=True))))
    one.obey(Pause(index=0, quanta=65535), now=0)
    one.arrive(Packet(size_bytes=1250), came_in=None, now=10)
    one.obey(Pause(index=0, quanta=0), now=300)
    assert [when for when, _ in drain(one)] == [400]


@pytest.mark.parametrize(("quanta", "fires"), [(195, 0), (196, 1)])
def test_watchdog_fires_on_a_longer_pause_only(quanta: int, fires: int) -> None:
    """Limit 1,000 ns; 195 quanta last 998 ns, 196 last 1,003 ns."""
    watched = ClassConfig(pfc=True, watchdog=Watchdog(limit_ns=1000, restore_ns=500))
    one = port(PortConfig(rate_bps=RATE, classes=all_classes(watched)))
    one.obey(Pause(index=0, quanta=quanta), now=0)
    one.arrive(Packet(size_bytes=1250), came_in=None, now=0)
    one.switch.advance(1002)
    found = one.stats(1002).classes[0]
    assert (found.watchdog_fired, found.dropped_packets.watchdog, found.storm) == (fires, fires, bool(fires))
    assert one.arrive(Packet(size_bytes=1250), came_in=None, now=1400) is not bool(fires)
    assert one.arrive(Packet(size_bytes=1250), came_in=None, now=1600), "500 ns after the pause it has let go"
    assert one.stats(1600).classes[0].watchdog_restored == fires


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 1), st.integers(60, 9014)), max_size=80))
def test_everything_is_accounted_for(train: list[tuple[int, int, int]]) -> None:
    """enqueued = sent + dropped + queued at any moment, and a buffer at rest is empty."""
    lossless = replace(LOSSLESS, headroom_bytes=9_000)
    config = PortConfig(rate_bps=RATE, buffer_id=1, buffer_bytes=60_000, classes=(lossless, *[ClassConfig()] * 7))
    switch = SwitchModel(buffer_bytes=60_000)
    ports = [switch.add_port(config) for _ in range(3)]
    now = 0
    for gap, source, size in train:
        now += gap
        ports[2].arrive(Packet(size_bytes=size), came_in=ports[source], now=now)
        found = ports[2].stats(now).classes[0]
        assert found.enqueued_bytes == found.sent_bytes + found.dropped_bytes.total + found.queue_bytes
        assert found.enqueued_packets == found.sent_packets + found.dropped_packets.total + found.queue_packets
    switch.advance(now + 10**6)
    assert switch.buffer is not None
    assert switch.buffer.used_bytes == 0
    assert all(not any((*each.ingress.used, *each.ingress.headroom)) for each in ports)
    assert not any(each.stats(switch.clock).classes[0].xoff for each in ports)
