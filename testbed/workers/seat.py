"""Where a rank sits: one host's network namespace and NICs.  Knows nothing of Mininet, so any namespace will do."""

from dataclasses import dataclass
from pathlib import Path

from topologies.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One host as a rank sees it."""

    host: str
    """The name that tables and errors use."""
    namespace_path: Path | None
    """The network namespace as a file: `/proc/PID/ns/net` or `/run/netns/NAME`.  None: where the job's parent is,
    which needs no privileges."""
    addresses: tuple[str, ...]
    """IPv4 address of each NIC, in port order; the first is the one that other ranks know the host by."""
    interfaces: tuple[str, ...]
    """Linux name of each NIC, in the same order."""

    def __post_init__(self) -> None:
        """Refuses a seat that gloo could not use.  Raises UserError."""
        if not self.interfaces or len(self.interfaces) != len(self.addresses):
            raise UserError(
                f"host {self.host}: {len(self.interfaces)} NICs and {len(self.addresses)} addresses; "
                "a rank needs at least one NIC, each with one address"
            )

    def gloo_interfaces(self, connections: int) -> str:
        """Every NIC `connections` times, comma separated, for GLOO_SOCKET_IFNAME.

        Gloo opens one TCP connection per peer and per name in this list, and successive collectives rotate over
        them: naming a NIC four times is gloo's analogue of four queue pairs (measured: facts.md 4.3).
        """
        return ",".join(self.interfaces * connections)
