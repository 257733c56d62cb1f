"""Do the ranks' sockets really run what was asked?  The kernel is asked about each of them, not the sysctl.

At a line-up all ranks stand; then every established connection of every host is read.  A job that opens its connections
between line-ups shows them by one more `rank.line_up("connected")`.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

from testbed.netlink import NetlinkSocket
from testbed.node import FabricHost
from testbed.tcp_sockets import NETLINK_SOCK_DIAG, TcpSocket, established

SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every socket of a job must run."""

    cc: str
    ecn: bool


@dataclass(kw_only=True)
class SocketAudit:
    """All sockets seen so far.  A context manager: it holds a netlink socket per host."""

    _seen: dict[tuple[int, str], tuple[Asked, TcpSocket]] = field(default_factory=dict)
    """(job, name) -> what was asked of it and its latest reading."""
    _diagnoses: dict[str, NetlinkSocket] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "SocketAudit":
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes its sockets."""
        self._stack.close()

    def look(self, hosts: Iterable[FabricHost], *, job: int, asked: Asked) -> None:
        """Reads every connection of these hosts as it is now."""
        for host in hosts:
            if host.name not in self._diagnoses:
                with host.entered():
                    self._diagnoses[host.name] = self._stack.enter_context(NetlinkSocket(NETLINK_SOCK_DIAG))
            self.note(established(self._diagnoses[host.name]), job=job, asked=asked)

    def note(self, sockets: Iterable[TcpSocket], *, job: int, asked: Asked) -> None:
        """Remembers a reading."""
        for each in sockets:
            if not each.source.startswith("127."):
                self._seen[job, each.name] = (asked, each)

    def faults(self) -> list[str]:
        """Sockets that run something else, the first few in words."""
        found = []
        for (job, name), (asked, seen) in self._seen.items():
            if seen.cc != asked.cc:
                found.append(f"job {job}, socket {name}: runs {seen.cc}, {asked.cc} was asked for")
            if seen.ecn != asked.ecn:
                states = {True: "ECN negotiated", False: "ECN not negotiated"}
                found.append(f"job {job}, socket {name}: {states[seen.ecn]}, the opposite was asked for")
        left = len(found) - SHOWN
        return [*found[:SHOWN], f"and {left} more sockets like it"] if left > 0 else found

    def section(self) -> dict[str, object]:
        """`sockets` of results.json."""
        seen = [each for _, each in self._seen.values()]
        return {
            "seen": len(seen),
            "cc": dict(sorted(Counter(each.cc for each in seen).items())),
            "ecn_negotiated": sum(each.ecn for each in seen),
            "ect_seen": sum(each.ect_seen for each in seen),
            "as_asked": not self.faults(),
        }
