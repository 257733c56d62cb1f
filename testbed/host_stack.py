"""A host's network stack, set as HostSettings ask and read back: sysctls, offloads, interrupt moderation, routes.

Every function works in the network namespace that the calling thread is in.
"""

import errno
import struct
from collections.abc import Iterable, Mapping

from testbed import rtnl
from testbed.host_settings import HostSettings, quiet_sysctls
from testbed.namespace import Offloads, Sysfs, read_sysctl, write_sysctl
from testbed.netlink import KernelRefused, NetlinkSocket, attributes
from topologies.errors import MissingFeature, RunFailed, UnknownName

_CC = "net/ipv4/tcp_congestion_control"
_ALLOWED = "net/ipv4/tcp_allowed_congestion_control"
_AVAILABLE = "net/ipv4/tcp_available_congestion_control"
_RTO_MIN_US = "net/ipv4/tcp_rto_min_us"
_MODULES = "bbr bic cdg cubic dctcp highspeed htcp hybla illinois lp nv reno scalable vegas veno westwood yeah"
"""What Linux has as modules: such a name is missing here, any other is the user's mistake."""
_RTM_GETROUTE, _RTM_GETRULE = 26, 34
_IFLA_OPERSTATE, _IF_OPER_UP = 16, 6


def silence() -> None:
    """No IPv6 in this namespace: must come before its first interface.  Nothing to do where the kernel has no IPv6."""
    for key, value in quiet_sysctls().items():
        if read_sysctl(key) is not None:
            write_sysctl(key, value)


def set_sysctls(settings: HostSettings) -> None:
    """Raises UnknownName or MissingFeature for a congestion control that the kernel cannot give, KernelRefused."""
    for key, value in settings.sysctls().items():
        if key == _CC:
            _set_congestion_control(value)
        else:
            write_sysctl(key, value)
    if read_sysctl(_RTO_MIN_US) is not None:
        write_sysctl(_RTO_MIN_US, str(settings.rto_min_us))


def allow_every_congestion_control() -> None:
    """Lets namespaces choose any that the kernel has.  Machine-wide, so only for a machine that is ours: the guest."""
    write_sysctl(_ALLOWED, read_sysctl(_AVAILABLE) or "")


def use_congestion_control(name: str) -> None:
    """New sockets of this namespace run `name`.  Raises UnknownName or MissingFeature."""
    _set_congestion_control(name)


def use_rto_min(rto_min_us: int) -> None:
    """New sockets of this namespace wait at least so long for a retransmission.  Raises MissingFeature."""
    if read_sysctl(_RTO_MIN_US) is None:
        remedy = "Linux 6.11 or later has it; give rto_min once for the whole run"
        raise MissingFeature("this kernel has no tcp_rto_min_us, which rto_min for single jobs needs", remedy)
    write_sysctl(_RTO_MIN_US, str(rto_min_us))


def _set_congestion_control(name: str) -> None:
    try:
        write_sysctl(_CC, name)
    except KernelRefused as refused:
        available = (read_sysctl(_AVAILABLE) or "").split()
        if refused.code == errno.EPERM:
            remedy = f"as root: sysctl -w net.ipv4.tcp_allowed_congestion_control='{' '.join([*available])}'"
            raise MissingFeature(f"this machine does not let namespaces use cc={name}", remedy) from refused
        if name not in _MODULES.split():
            raise UnknownName("congestion control cc", name, available) from refused
        remedy = f"load tcp_{name}, or choose one of: {', '.join(available)}"
        raise MissingFeature(f"this kernel has no congestion control cc={name}", remedy) from refused


def route_metrics(settings: HostSettings) -> dict[int, int]:
    """RTAX_* of every route.  Raises MissingFeature for a timeout that an old kernel's route metric cannot express."""
    metrics = {rtnl.RTAX_INITCWND: settings.initial_window}
    if settings.delayed_ack == "off":
        metrics[rtnl.RTAX_QUICKACK] = 1
    if read_sysctl(_RTO_MIN_US) is None:
        if settings.rto_min_us % 1000:
            remedy = "Linux 6.11 or later has it; or give rto_min in whole milliseconds"
            raise MissingFeature(f"this kernel has no tcp_rto_min_us, which rto_min={settings.rto_min} needs", remedy)
        metrics[rtnl.RTAX_RTO_MIN] = settings.rto_min_us // 1000
    return metrics


def set_nic(interfaces: Iterable[str], *, moderation_ns: int) -> None:
    """Segmentation offloads off; arrivals merged for `moderation_ns`, or each delivered at once when that is 0."""
    offloads, sysfs = Offloads(), Sysfs()
    try:
        for interface in interfaces:
            offloads.set(interface, {"tso": False, "gso": False, "gro": moderation_ns > 0})
            sysfs.write(f"class/net/{interface}/napi_defer_hard_irqs", str(int(moderation_ns > 0)))
            sysfs.write(f"class/net/{interface}/gro_flush_timeout", str(moderation_ns))
    finally:
        offloads.close()
        sysfs.close()


def nics_in_force(interfaces: Iterable[str]) -> dict[str, dict[str, object]]:
    """Interface -> offloads and moderation as the kernel has them."""
    offloads, sysfs = Offloads(), Sysfs()
    try:
        return {
            interface: {
                **offloads.get(interface),
                "napi_defer_hard_irqs": int(sysfs.read(f"class/net/{interface}/napi_defer_hard_irqs")),
                "gro_flush_timeout_ns": int(sysfs.read(f"class/net/{interface}/gro_flush_timeout")),
            }
            for interface in interfaces
        }
    finally:
        offloads.close()
        sysfs.close()


def nic_wanted(moderation_ns: int) -> dict[str, object]:
    """What `nics_in_force` must find."""
    on = moderation_ns > 0
    return {
        "tso": False,
        "gso": False,
        "gro": on,
        "napi_defer_hard_irqs": int(on),
        "gro_flush_timeout_ns": moderation_ns,
    }


def sysctls_in_force(settings: HostSettings) -> dict[str, str | None]:
    """Key -> value in this namespace, of every key that was set."""
    keys = [*settings.sysctls(), *quiet_sysctls()]
    if read_sysctl(_RTO_MIN_US) is not None:
        keys.append(_RTO_MIN_US)
    return {key: read_sysctl(key) for key in keys}


def sysctls_wanted(settings: HostSettings) -> dict[str, str | None]:
    """What `sysctls_in_force` must find; a kernel without IPv6 has nothing to disable."""
    wanted: dict[str, str | None] = dict(settings.sysctls())
    wanted |= {key: value if read_sysctl(key) is not None else None for key, value in quiet_sysctls().items()}
    if read_sysctl(_RTO_MIN_US) is not None:
        wanted[_RTO_MIN_US] = str(settings.rto_min_us)
    return wanted


def compare(what: str, wanted: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Raises RunFailed naming object, setting, asked and got for the first difference."""
    for setting, value in wanted.items():
        if found.get(setting) != value:
            raise RunFailed(f"{what}: {setting}: asked for {value}, got {found.get(setting)}")


def links_in_force(route: NetlinkSocket) -> dict[int, dict[str, object]]:
    """Interface index -> name, MAC, MTU, gso_max_segs, tag and whether it is up, from one dump."""
    found = {}
    for _kind, payload in route.dump(rtnl.RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
        _family, index, flags, _change = struct.unpack_from("=BxxxiII", payload)
        parts = attributes(payload[16:])
        found[index] = {
            "name": _text(parts[rtnl.IFLA_IFNAME]),
            "mac": parts.get(rtnl.IFLA_ADDRESS, b"").hex(":"),
            "mtu": struct.unpack("=I", parts[rtnl.IFLA_MTU])[0],
            "gso_max_segs": struct.unpack("=I", parts.get(rtnl.IFLA_GSO_MAX_SEGS, bytes(4)))[0],
            "tag": _text(parts.get(rtnl.IFLA_IFALIAS, b"")),
            "up": bool(flags & rtnl.IFF_UP),
            "carrier": parts.get(_IFLA_OPERSTATE, b"\0")[0] == _IF_OPER_UP,
        }
    return found


def neighbours_in_force(route: NetlinkSocket) -> dict[tuple[int, bytes], str]:
    """(interface index, IPv4 address) -> MAC of every permanent entry."""
    found = {}
    for _kind, payload in route.dump(rtnl.RTM_GETNEIGH, struct.pack("=BxxxiHBB", 2, 0, 0, 0, 0)):
        index, state = struct.unpack_from("=iH", payload, 4)
        parts = attributes(payload[12:])
        if state == rtnl.NUD_PERMANENT:
            found[index, parts[1]] = parts[2].hex(":")
    return found


def rules_in_force(route: NetlinkSocket) -> dict[int, str]:
    """Routing table -> source address, of every source rule."""
    found = {}
    for _kind, payload in route.dump(_RTM_GETRULE, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 0, 0, 0, 0, 0)):
        parts = attributes(payload[12:])
        if 2 in parts:  # FRA_SRC
            found[struct.unpack("=I", parts[15])[0]] = ".".join(map(str, parts[2]))
    return found


def routes_in_force(route: NetlinkSocket) -> dict[tuple[int, str], dict[str, object]]:
    """(table, destination) of every route that we made (static) -> interface index and metrics."""
    found = {}
    for _kind, payload in route.dump(_RTM_GETROUTE, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 0, 0, 0, 0, 0)):
        _family, prefix, _source, _tos, _table, protocol, _scope, _type, _flags = struct.unpack_from(
            "=BBBBBBBBI", payload
        )
        parts = attributes(payload[12:])
        if protocol != 4:  # RTPROT_STATIC
            continue
        table = struct.unpack("=I", parts[15])[0]
        metrics = {kind: struct.unpack("=I", value)[0] for kind, value in attributes(parts.get(8, b"")).items()}
        destination = ".".join(map(str, parts.get(1, bytes(4)))) + f"/{prefix}"
        found[table, destination] = {"index": struct.unpack("=I", parts[4])[0], "metrics": metrics}
    return found


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode()
