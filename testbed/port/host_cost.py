"""What a host's software adds to what it sends: the alpha and beta of the cost models, at the NIC's egress.  Pure.

    application -> [ stack: message_ns later, at most so many bytes a second ] -> NIC -> cable

A port's own propagation delay grows by `message_ns`, and it serialises no faster than the software feeds it.  Packets
follow each other through that delay as through a cable: the packets of one message pay once together, a message that
waits for an answer pays on both ways (acknowledgements pay too), and so does every step of a collective.  What this is
not: a processor that is busy.  Messages of one host that are under way together pay side by side, so the number of
messages per second has no limit.  The kernel knows TCP's bytes, not where gloo's messages begin and end, and gloo sends
from its own threads: there is no place at which a cost could be charged to each message by turns.

Measured without interrupt moderation: a 32 B all-reduce of 4 ranks takes 24.27 us, with 100 us per message 1224.27 us.
That is 12 costs: 2 (P-1) steps, each a notification and then the data, as gloo sends them.
"""

from dataclasses import dataclass, replace

from testbed.port.config import PortConfig

MEGABYTE_BITS = 8 * 10**6


@dataclass(frozen=True, kw_only=True)
class HostCost:
    """Nothing, by default."""

    message_ns: int = 0
    """Added to every packet's way out: usual figures are 100 us for TCP and 2 us for RDMA."""
    megabyte_ns: int = 0
    """Time of the software per 10^6 bytes; 0 is as fast as the link."""

    @property
    def is_free(self) -> bool:
        """Whether there is none."""
        return not (self.message_ns or self.megabyte_ns)

    def told(self, config: PortConfig) -> PortConfig:
        """The port of a NIC behind this software."""
        if self.is_free:
            return config
        rate_bps = config.rate_bps
        if self.megabyte_ns:
            rate_bps = min(rate_bps, MEGABYTE_BITS * 10**9 // self.megabyte_ns)
        return replace(config, rate_bps=rate_bps, delay_ns=config.delay_ns + self.message_ns)


FREE = HostCost()
"""Software that costs nothing."""
