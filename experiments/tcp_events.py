"""What TCP counted at every host over a run: sent again, for want of what, and what arrived out of order.

With `results.json`'s `paths` it answers what a load balancer's changes of path cost: `out_of_order` is TcpExt's
TCPOFOQueue (a packet came before one that was sent earlier), `needless` its TCPDSACKRecv (a receiver told that it had
what was sent again; linux/Documentation/networking/snmp_counter.rst).
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.workers.counters import parse_protocols

if TYPE_CHECKING:  # ranks read their own host's, and need no Mininet for it
    from testbed.node import FabricHost

_PROC_NET = Path("/proc/thread-self/net")


@dataclass(frozen=True, kw_only=True)
class TcpEvents:
    """One reading of a host, in segments, or the difference of two."""

    retransmitted: int = 0
    timeouts: int = 0
    loss_probes: int = 0
    out_of_order: int = 0
    needless: int = 0

    def __sub__(self, earlier: "TcpEvents") -> "TcpEvents":
        """What happened since `earlier`."""
        return TcpEvents(**{it.name: getattr(self, it.name) - getattr(earlier, it.name) for it in fields(self)})

    def __add__(self, other: "TcpEvents") -> "TcpEvents":
        """Of both hosts."""
        return TcpEvents(**{it.name: getattr(self, it.name) + getattr(other, it.name) for it in fields(self)})

    @classmethod
    def parse(cls, snmp: str, netstat: str) -> "TcpEvents":
        """/proc/net/snmp and /proc/net/netstat."""
        tcp, extended = parse_protocols(snmp)["Tcp"], parse_protocols(netstat)["TcpExt"]
        return cls(
            retransmitted=tcp["RetransSegs"],
            timeouts=extended["TCPTimeouts"],
            loss_probes=extended["TCPLossProbes"],
            out_of_order=extended["TCPOFOQueue"],
            needless=extended["TCPDSACKRecv"],
        )

    @classmethod
    def here(cls) -> "TcpEvents":
        """Of the network namespace that the calling thread is in, so far."""
        return cls.parse(*((_PROC_NET / name).read_text() for name in ("snmp", "netstat")))


def read_events(hosts: Iterable["FabricHost"]) -> dict[str, TcpEvents]:
    """Host -> its counters now."""
    found = {}
    for host in hosts:
        with host.entered():
            found[host.name] = TcpEvents.here()
    return found


def section(before: Mapping[str, TcpEvents], after: Mapping[str, TcpEvents]) -> dict[str, Any]:
    """`tcp` of results.json: the sums, and those of every host where anything happened."""
    each = {host: after[host] - before[host] for host in after}
    total = sum(each.values(), TcpEvents())
    return {**asdict(total), "hosts": {host: asdict(seen) for host, seen in each.items() if seen != TcpEvents()}}
