"""From a PortPolicy to bytes: what every port of a fabric is told.  Pure; the testbed makes it real.

The buffer of a switch is the sum of its links' buffers in the topology (5 kB per Gb/s of port: a 32-port Tomahawk's
16 MB) and is shared.  In a lossy class a queue may hold egress_alpha x what is free of it (Choudhury and Hahn's
dynamic threshold): with 1, one hot port gets half of the pool, k hot ports 1/(k+1) each, and something is always left
for a port that becomes hot.  That is several times the even share, as in real shallow-buffer switches.
With PFC nothing is limited at the egress; an ingress that uses more than its threshold pauses its sender, as in HPCC's
switch-mmu.cc.

A host's NIC is a port without a buffer of its own to run out of: the queue is the host's memory, bounded by what its
sockets may have in flight, so it never drops, not even for a watchdog; it obeys pauses and marks nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from controller.port_policies.base_rtt import base_rtt_ns
from controller.port_policies.settings import DATA_CLASS, DSCPS, PortPolicy, Watchdog
from controller.port_policies.threshold import Link, Threshold
from topologies.errors import UserError
from topologies.model import Interface, Topology
from topologies.units import format_size

OVERHEAD_BYTES = 24
PFC_FRAME_BYTES = 60
LEAST_RESERVE_BYTES = 4096
"""HPCC's reserve per ingress and class."""
XON_FRAMES = 2
_AUTO_ALPHA = Fraction(1, 8)


@dataclass(frozen=True, kw_only=True)
class Marking:
    """ECN in bytes."""

    kmin_bytes: int
    kmax_bytes: int
    pmax: float


@dataclass(frozen=True, kw_only=True)
class Lossless:
    """PFC in bytes."""

    alpha: Fraction
    """0: `xoff_bytes` counts."""
    xoff_bytes: int
    xon_offset_bytes: int
    headroom_bytes: int
    quanta: int
    watchdog: Watchdog | None


@dataclass(frozen=True, kw_only=True)
class PortDecision:
    """One egress port."""

    interface: str
    node: str
    is_switch: bool
    overhead_bytes: int
    buffer_bytes: int
    """Of the whole switch; 0 at a host."""
    limit_bytes: int
    """Of this port; 0 is none."""
    reserve_bytes: int
    egress_alpha: Fraction
    """0 is none."""
    ingress_alpha: Fraction
    """Of a lossy data class; 0 is all that is free."""
    dscp_classes: tuple[int, ...]
    marking: Marking | None
    """In every class."""
    lossless: Lossless | None
    """In the data class."""

    @property
    def classes_in_use(self) -> tuple[int, ...]:
        """The data class and those that the map names."""
        return tuple(sorted({DATA_CLASS, *self.dscp_classes}))

    def priority(self, index: int) -> int:
        """Classes above the data class go first, the others take turns."""
        return index if index > DATA_CLASS else 0


def decide(
    policy: PortPolicy, topology: Topology, instead: Mapping[str, PortPolicy] | None = None
) -> dict[str, PortDecision]:
    """Interface -> what its port is told; `instead` replaces the policy of single ports.  Raises UserError."""
    rtt_ns = base_rtt_ns(topology)
    found = {}
    for end in topology.interfaces():
        chosen = (instead or {}).get(end.name, policy)
        found[end.name] = _port(chosen, topology, end, rtt_ns)
    for switch in topology.switches:
        _check_buffer(topology, switch.name, found)
    return found


def link_of(topology: Topology, interface: str, rtt_ns: int) -> Link:
    """What thresholds of this port refer to."""
    cable = topology.link_of[interface]
    return Link(rate_bps=cable.rate_bps, delay_ns=cable.delay_ns, frame_bytes=topology.mtu + 14, base_rtt_ns=rtt_ns)


def headroom_bytes(link: Link) -> int:
    """What may still come in after XOFF.

    HPCC's 3 x rate x delay, and what it leaves out because its frames are short: the frame that crossed the threshold,
    the one that the pause waits for on our side, the one that the far end has begun; and the pause frame's own time.
    """
    return -(-3 * link.rate_bps * link.delay_ns // (8 * 10**9)) + 3 * link.frame_bytes + PFC_FRAME_BYTES


def auto_alpha(rate_bps: int, nic_rate_bps: int) -> Fraction:
    """HPCC's: free >> 3 at the NICs' rate, one bit less for each doubling of the rate, free itself at most."""
    alpha = _AUTO_ALPHA
    while rate_bps >= 2 * nic_rate_bps and alpha < 1:
        alpha, rate_bps = alpha * 2, rate_bps // 2
    return alpha


def _port(policy: PortPolicy, topology: Topology, end: Interface, rtt_ns: int) -> PortDecision:
    link = link_of(topology, end.name, rtt_ns)
    is_switch = end.node in topology.switch_named
    dscp = [DATA_CLASS] * DSCPS
    for number, index in policy.classes:
        dscp[number] = index
    return PortDecision(
        interface=end.name,
        node=end.node,
        is_switch=is_switch,
        overhead_bytes=OVERHEAD_BYTES if policy.overhead else 0,
        buffer_bytes=_buffer_bytes(policy, topology, end, link) if is_switch else 0,
        limit_bytes=_limit_bytes(policy, topology, end, link) if is_switch else 0,
        reserve_bytes=_or(policy.reserve, link, max(link.frame_bytes, LEAST_RESERVE_BYTES)) if is_switch else 0,
        egress_alpha=(policy.egress_alpha or Fraction(0)) if is_switch else Fraction(0),
        ingress_alpha=(policy.alpha or Fraction(0)) if is_switch and not policy.pfc else Fraction(0),
        dscp_classes=tuple(dscp),
        marking=_marking(policy, end.name, link) if is_switch else None,
        lossless=_lossless(policy, topology, link, is_switch) if policy.pfc else None,
    )


def _or(threshold: Threshold | None, link: Link, automatic: int) -> int:
    return automatic if threshold is None else threshold.bytes_on(link)


def _buffer_bytes(policy: PortPolicy, topology: Topology, end: Interface, link: Link) -> int:
    if policy.buffer is not None:
        return policy.buffer.bytes_on(link)
    return sum(topology.link_of[own.name].buffer_bytes for own in topology.interfaces_of[end.node])


def _limit_bytes(policy: PortPolicy, topology: Topology, end: Interface, link: Link) -> int:
    if isinstance(policy.limit, Threshold):
        found = policy.limit.bytes_on(link)
    elif policy.limit == "link":
        found = topology.link_of[end.name].buffer_bytes
    else:
        return 0
    if found < link.frame_bytes:
        raise UserError(f"policy: limit of {found} B at {end.name} holds no frame of {link.frame_bytes} B")
    return found


def _marking(policy: PortPolicy, name: str, link: Link) -> Marking | None:
    if policy.kmin is None:
        return None
    kmin = policy.kmin.bytes_on(link)
    kmax = kmin if policy.kmax is None else policy.kmax.bytes_on(link)
    if kmax < kmin:
        raise UserError(f"policy: at {name} kmax is {kmax} B and below kmin, {kmin} B")
    return Marking(kmin_bytes=kmin, kmax_bytes=kmax, pmax=policy.pmax)


def _lossless(policy: PortPolicy, topology: Topology, link: Link, is_switch: bool) -> Lossless:
    if not is_switch:
        return Lossless(
            alpha=Fraction(0),
            xoff_bytes=0,
            xon_offset_bytes=0,
            headroom_bytes=0,
            quanta=policy.quanta,
            watchdog=None,
        )
    nic_rate_bps = min(topology.link_of[end.name].rate_bps for end in topology.host_interfaces())
    alpha = policy.alpha or auto_alpha(link.rate_bps, nic_rate_bps)
    return Lossless(
        alpha=alpha if policy.xoff is None else Fraction(0),
        xoff_bytes=_or(policy.xoff, link, 0),
        xon_offset_bytes=_or(policy.xon, link, XON_FRAMES * link.frame_bytes),
        headroom_bytes=_or(policy.headroom, link, headroom_bytes(link)),
        quanta=policy.quanta,
        watchdog=policy.watchdog,
    )


def _check_buffer(topology: Topology, switch: str, found: Mapping[str, PortDecision]) -> None:
    """A pool must be left after all that is promised."""
    ports = [found[own.name] for own in topology.interfaces_of[switch]]
    if not ports:
        return
    sizes = {port.buffer_bytes for port in ports}
    if len(sizes) > 1:
        raise UserError(
            f"policy: the ports of {switch} would give it buffers of {', '.join(map(format_size, sorted(sizes)))}; "
            "it has one: write buffer= in bytes, and change it for whole switches"
        )
    promised = sum(
        len(port.classes_in_use) * port.reserve_bytes + (port.lossless.headroom_bytes if port.lossless else 0)
        for port in ports
    )
    frame = topology.mtu + 14
    if promised + frame > ports[0].buffer_bytes:
        raise UserError(
            f"policy: the buffer of {switch}, {format_size(ports[0].buffer_bytes)}, has no room for a frame beside the "
            f"reserves and headrooms of its {len(ports)} ports, {format_size(promised)}; give a larger buffer= (or "
            "links with more buffer), or a smaller headroom= or reserve="
        )
