"""What goes to the kernel and comes back, byte by byte, and that both sides read the same header."""

import re
import struct
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.tcmsg import tcmsg
from pyroute2.requests.tc import TcIPRouteFilter

from testbed.netlink import attribute, attribute_list, attributes
from testbed.port import netlink
from testbed.port.config import CLASSES, ClassConfig, Marking, PortConfig, Watchdog
from testbed.port.netlink import KIND, change, decode, decode_stats, encode, make
from testbed.port.pyroute2_kind import register
from testbed.port.stats import ClassStats, Drops
from testbed.traffic_control import TC_H_ROOT, TCA_KIND, TCA_OPTIONS, TCA_STATS2
from topologies.errors import InternalError, UserError

HEADER = (Path(netlink.__file__).parent / "qdisc" / "sch_fabric.h").read_text()


def enumerators(prefix: str) -> dict[str, int]:
    """The enumerators of the header's enum that begins with PREFIX_UNSPEC, by name without prefix."""
    body = re.search(rf"enum {{\s*{prefix}_UNSPEC(.*?)}};", HEADER, re.DOTALL)
    assert body is not None
    names = re.findall(rf"\b(?:__)?{prefix}_(\w+)\b", re.sub(r"/\*.*?\*/", "", body.group(1)))
    return {name: number for number, name in enumerate(names, start=1) if name != "MAX"}


def test_numbers_are_those_of_the_header() -> None:
    """A renumbered attribute would be taken for another without a word."""
    port, cl = enumerators("TCA_FABRIC"), enumerators("TCA_FABRIC_CLASS")
    ours = {
        "RATE_BPS": netlink._RATE,
        "DELAY_NS": netlink._DELAY,
        "OVERHEAD": netlink._OVERHEAD,
        "LIMIT": netlink._LIMIT,
        "DSCP_MAP": netlink._DSCP_MAP,
        "DEFAULT_CLASS": netlink._DEFAULT_CLASS,
        "SEED": netlink._SEED,
        "BUFFER_ID": netlink._BUFFER_ID,
        "BUFFER_BYTES": netlink._BUFFER_BYTES,
        "PAUSE_QUANTA": netlink._PAUSE_QUANTA,
        "CLASS": netlink._CLASS,
    }
    classes = {
        "INDEX": netlink._C_INDEX,
        "FLAGS": netlink._C_FLAGS,
        "PRIORITY": netlink._C_PRIORITY,
        "QUANTUM": netlink._C_QUANTUM,
        "LIMIT": netlink._C_LIMIT,
        "EGRESS_ALPHA": netlink._C_EGRESS_ALPHA,
        "KMIN": netlink._C_KMIN,
        "KMAX": netlink._C_KMAX,
        "PMAX_PPB": netlink._C_PMAX,
        "RESERVE": netlink._C_RESERVE,
        "HEADROOM": netlink._C_HEADROOM,
        "ALPHA": netlink._C_ALPHA,
        "XOFF": netlink._C_XOFF,
        "XON_OFFSET": netlink._C_XON_OFFSET,
        "WATCHDOG_NS": netlink._C_WATCHDOG,
        "RESTORE_NS": netlink._C_RESTORE,
    }
    assert {name: number for name, number in port.items() if name != "PAD"} == ours
    assert {name: number for name, number in cl.items() if name != "PAD"} == classes


def test_flags_and_version_are_those_of_the_header() -> None:
    """FABRIC_CLASS_* and the version of the statistics."""
    flags = dict(re.findall(r"#define FABRIC_CLASS_(\w+)\s+\(1U << (\d)\)", HEADER))
    names = ("PFC", "ECN", "ECN_PACKETS", "ECN_ENQUEUE", "EXEMPT", "STORM_FORWARD")
    assert {name: 1 << int(flags[name]) for name in names} == {name: getattr(netlink, f"_{name}") for name in names}
    version = re.search(r"FABRIC_XSTATS_VERSION\s+(\d+)", HEADER)
    assert version is not None
    assert int(version.group(1)) == netlink.XSTATS_VERSION


@pytest.mark.parametrize(
    ("structure", "size"),
    [("fabric_xstats", netlink._PORT_XSTATS.size), ("fabric_class_xstats", netlink._CLASS_XSTATS.size)],
)
def test_structures_are_as_long_as_the_headers(structure: str, size: int) -> None:
    """Counted from the members' types; there is no padding in either."""
    body = re.search(rf"struct {structure} {{(.*?)\n}};", HEADER, re.DOTALL)
    assert body is not None
    members = re.findall(r"__u(\d+)\s+\w+(\[FABRIC_DROP_CAUSES\])?;", body.group(1))
    assert sum(int(bits) // 8 * (5 if array else 1) for bits, array in members) == size


def test_bytes_of_a_simple_port() -> None:
    """Rate, delay and class 3's marking, as the kernel must find them."""
    marking = Marking(kmin=400_000, kmax=1_600_000, pmax=0.2)
    config = PortConfig(
        rate_bps=100 * 10**9,
        delay_ns=1000,
        overhead_bytes=24,
        classes=tuple(ClassConfig(marking=marking if index == 3 else None) for index in range(CLASSES)),
    )
    found = attributes(encode(config))
    assert found[2] == struct.pack("=Q", 100 * 10**9)
    assert found[3] == struct.pack("=Q", 1000)
    assert found[4] == struct.pack("=I", 24)
    assert found[6] == bytes(64)
    assert found[9] == bytes(4)
    assert 8 not in found, "no seed asked, none sent"
    assert 10 not in found, "no shared buffer, no size of one"
    classes = [attributes(payload) for kind, payload in attribute_list(encode(config)) if kind == 12]
    assert [each[2] for each in classes] == [bytes((index,)) for index in range(CLASSES)]
    third = classes[3]
    assert struct.unpack("=I", third[3]) == (2,), "FABRIC_CLASS_ECN alone"
    assert [struct.unpack("=Q", third[kind])[0] for kind in (8, 9)] == [400_000, 1_600_000]
    assert struct.unpack("=I", third[10]) == (200_000_000,)


def test_class_attributes_say_that_they_are_nested() -> None:
    """The kernel's strict parser refuses them otherwise."""
    options, offset, nested = encode(PortConfig(rate_bps=1)), 0, []
    while offset < len(options):
        length, kind = struct.unpack_from("=HH", options, offset)
        if kind & 0x3FFF == 12:
            nested.append(kind & 0x8000)
        offset += (length + 3) & ~3
    assert nested == [0x8000] * CLASSES


def test_requests_make_and_change() -> None:
    """Root, our kind, and only `make` may create."""
    config = PortConfig(rate_bps=10**9)
    made, changed = make(5, config, where="h1-eth0"), change(5, config, where="h1-eth0")
    assert made.flags == 0x600
    assert changed.flags == 0
    assert struct.unpack_from("=BxxxiIII", made.body)[1:4] == (5, 0x10000, TC_H_ROOT)
    found = attributes(made.body[20:])
    assert found[TCA_KIND] == KIND.encode() + b"\0"
    assert found[TCA_OPTIONS] == encode(config)
    assert "h1-eth0" in made.what


alphas = st.integers(0, 2**24).map(lambda q8: Fraction(q8, 256))
sizes = st.integers(0, 2**32 - 1)
markings = st.builds(
    lambda low, ramp, ppb, packets, arrival: Marking(
        kmin=low, kmax=min(low + ramp, 2**32 - 1), pmax=ppb / 10**9, in_packets=packets, on_arrival=arrival
    ),
    sizes,
    sizes,
    st.integers(0, 10**9),
    st.booleans(),
    st.booleans(),
)
watchdogs = st.builds(
    Watchdog, limit_ns=st.integers(1, 10**12), restore_ns=st.integers(0, 10**12), forward=st.booleans()
)
classes = st.builds(
    ClassConfig,
    priority=st.integers(0, 7),
    quantum_bytes=st.integers(256, 2**32 - 1),
    limit_bytes=sizes,
    egress_alpha=alphas,
    marking=st.none() | markings,
    pfc=st.booleans(),
    exempt=st.booleans(),
    reserve_bytes=st.integers(0, 2**20),
    headroom_bytes=st.integers(0, 2**20),
    alpha=alphas,
    xoff_bytes=sizes,
    xon_offset_bytes=sizes,
    watchdog=st.none() | watchdogs,
)
configs = st.builds(
    PortConfig,
    rate_bps=st.integers(1, 2**63 - 1),
    delay_ns=st.integers(0, 10**12),
    overhead_bytes=st.integers(0, 65535),
    limit_bytes=sizes,
    dscp_classes=st.tuples(*[st.integers(0, 7)] * 64),
    default_class=st.integers(0, 7),
    buffer_id=st.just(9),
    buffer_bytes=st.integers(2**25, 2**40),
    pause_quanta=st.integers(32, 65535),
    classes=st.tuples(*[classes] * 8),
)


@given(configs)
def test_every_configuration_survives_the_way_there_and_back(config: PortConfig) -> None:
    """decode(encode) is the identity: what is read back can be compared with what was asked."""
    assert decode(encode(config)) == config


def test_classes_left_out_are_as_in_a_new_port() -> None:
    """The kernel leaves out what nobody has set; its default quantum is the header's and ours."""
    plain = b"".join(
        attribute(kind, payload) for kind, payload in attribute_list(encode(PortConfig(rate_bps=5))) if kind != 12
    )
    assert decode(plain) == PortConfig(rate_bps=5)
    assert f"quantum of {ClassConfig().quantum_bytes}" in HEADER


def test_unknown_attributes_of_a_newer_kernel_are_passed_over() -> None:
    """Only known ones are read."""
    config = PortConfig(rate_bps=5)
    assert decode(encode(config) + attribute(60, b"new")) == PortConfig(rate_bps=5)


def test_statistics_of_the_classes_in_the_mask() -> None:
    """Two classes used, six as if nothing had come."""
    port = (
        struct.pack("=II", 1, 0b1001) + struct.pack("=15Q", *range(100, 115)) + struct.pack("=II3Q", 7, 4, 30, 20, 25)
    )
    first, third = (
        struct.pack("=31QII", *range(start, start + 31), state, 0) for start, state in ((1000, 0), (2000, 0b101))
    )
    stats = decode_stats(port + first + third)
    assert (stats.now_ns, stats.queue_packets, stats.busy_ns) == (100, 101, 114)
    assert (stats.buffer_id, stats.buffer_ports, stats.pool_bytes, stats.shared_peak_bytes) == (7, 4, 30, 25)
    assert stats.classes[1] == ClassStats()
    assert stats.classes[0].enqueued_packets == 1000
    found = stats.classes[3]
    assert (found.sent_packets, found.sent_bytes) == (2002, 2003)
    assert found.dropped_packets == Drops(egress=2004, shared=2005, headroom=2006, watchdog=2007, flush=2008)
    assert found.dropped_bytes.egress == 2009
    assert (found.marked, found.unmarkable, found.wait_ns) == (2014, 2015, 2020)
    assert (found.paused_ns, found.headroom_peak_bytes) == (2025, 2030)
    assert (found.paused, found.storm, found.xoff) == (True, False, True)


def test_statistics_of_another_version_are_refused() -> None:
    """Rather than read at the wrong places."""
    with pytest.raises(InternalError, match="version 2"):
        decode_stats(struct.pack("=II", 2, 0) + bytes(200))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Marking(kmin=5, kmax=4), "kmin 5"),
        (lambda: Marking(kmin=0, kmax=0, pmax=1.5), "pmax 1.5"),
        (lambda: Watchdog(limit_ns=0, restore_ns=0), "watchdog"),
        (lambda: ClassConfig(priority=8), "priority 8"),
        (lambda: ClassConfig(quantum_bytes=255), "quantum of 255"),
        (lambda: ClassConfig(alpha=Fraction(1, 3)), "alpha 1/3"),
        (lambda: ClassConfig(reserve_bytes=-1), "reserve_bytes -1"),
        (lambda: PortConfig(rate_bps=0), "rate of 0"),
        (lambda: PortConfig(rate_bps=1, delay_ns=-1), "delay of -1"),
        (lambda: PortConfig(rate_bps=1, dscp_classes=(0,) * 63), "DSCP map"),
        (lambda: PortConfig(rate_bps=1, dscp_classes=(8,) * 64), "DSCP map"),
        (lambda: PortConfig(rate_bps=1, pause_quanta=31), "31 quanta"),
        (
            lambda: PortConfig(
                rate_bps=1, buffer_id=1, buffer_bytes=999, classes=(ClassConfig(reserve_bytes=125),) * 8
            ),
            "1000 B do not fit",
        ),
    ],
)
def test_nonsense_is_refused_before_the_kernel_sees_it(wrong: object, said: str) -> None:
    """With the setting's name in the message."""
    with pytest.raises(UserError, match=re.escape(said)):
        wrong()  # type: ignore[operator]


def test_pyroute2_speaks_the_same_bytes() -> None:
    """Out: TCA_OPTIONS as `encode` makes them; in: the configuration and the statistics as bytes."""
    register()
    config = PortConfig(rate_bps=10**9, delay_ns=5)
    arguments = {"kind": KIND, "index": 3, "port": config}
    context = TcIPRouteFilter("add").finalize(arguments)
    assert context is None, "pyroute2 completes its argument in place"
    assert arguments["options"] == encode(config)
    assert "port" not in arguments
    message = tcmsg()
    message["index"], message["parent"] = 3, TC_H_ROOT
    message["attrs"] = [["TCA_KIND", KIND], ["TCA_OPTIONS", arguments["options"]]]
    message.encode()
    assert attributes(bytes(message.data[36:]))[TCA_OPTIONS] == encode(config)

    app = struct.pack("=II", 1, 0) + bytes(15 * 8) + struct.pack("=II3Q", 7, 4, 30, 20, 25)
    body = attribute(TCA_KIND, KIND.encode() + b"\0") + attribute(TCA_OPTIONS, encode(config))
    body += attribute(TCA_STATS2, attribute(4, app))
    raw = struct.pack("=IHHII", 36 + len(body), 36, 0, 1, 0) + struct.pack("=BxxxiIII", 0, 3, 0, TC_H_ROOT, 0) + body
    found = tcmsg(raw)
    found.decode()
    assert decode(found.get_attr("TCA_OPTIONS")) == config
    assert decode_stats(found.get_attr("TCA_STATS2").get_attr("TCA_STATS_APP")).buffer_id == 7
