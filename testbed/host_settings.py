"""How the hosts' TCP stacks and NICs are set: every knob with its meaning, none left as the machine happens to have it.

The fields are what a user writes after `--set host.KEY=`; the properties are the same in the units of the kernel.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from testbed.port.host_cost import HostCost
from topologies.errors import UserError
from topologies.units import parse_delay, parse_size

MICROSECOND_NS = 1000
_RESERVED_BYTES = 4096
"""The kernel's own least socket buffer (SOCK_MIN_RCVBUF is about a page)."""


class HostSettings(BaseModel):
    """What is asked of every host of a fabric.  Frozen; an unknown key or value is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    cc: str = Field(
        "cubic", description="TCP congestion control: one that the kernel has (cubic, dctcp, bbr, reno, ...)"
    )
    ecn: Literal["off", "on", "passive"] = Field(
        "off", description="ECN negotiation: on asks and answers, passive only answers, off does neither"
    )
    rto_min: str = Field("200ms", description="least retransmission timeout of TCP")
    socket_buffer: str = Field("64MiB", description="most that TCP's autotuning may give one socket, each way")
    output_limit: str = Field(
        "256KiB",
        description="most that one socket may have waiting in its NIC (TCP small queues); other sockets wait behind it",
    )
    initial_window: int = Field(10, ge=1, le=65535, description="TCP's initial congestion window, in segments")
    delayed_ack: Literal["on", "off"] = Field("on", description="off acknowledges every arrival at once (quickack)")
    sack: Literal["on", "off"] = Field("on", description="TCP selective acknowledgements")
    timestamps: Literal["on", "off"] = Field("on", description="TCP timestamps (12 B in every segment)")
    slow_start_after_idle: Literal["on", "off"] = Field(
        "off", description="on shrinks the window of a connection that paused for longer than its timeout"
    )
    moderation: str = Field(
        "8us",
        description="interrupt moderation: a NIC hands arrivals over, merged (GRO), this late at most; off: at once",
    )

    message_cost: str = Field(
        "off",
        description="what the software adds to a packet's way out of a host, as latency: about 100us for TCP, 2us for "
        "RDMA; packets pay side by side (testbed/port/host_cost.py)",
    )
    byte_cost: str = Field(
        "off",
        description="time of the software per megabyte sent, 200us for 40 Gb/s; the slower of it and the link counts",
    )

    @field_validator("rto_min", "moderation", "socket_buffer", "output_limit", "message_cost", "byte_cost")
    @classmethod
    def _readable(cls, value: str, info: ValidationInfo) -> str:
        """A unit that can be read and a size the kernel can hold; pydantic names the field."""
        try:
            _check_quantity(str(info.field_name), value)
        except UserError as error:
            raise ValueError(str(error)) from error
        return value

    @property
    def rto_min_us(self) -> int:
        """Microseconds."""
        return parse_delay(self.rto_min) // MICROSECOND_NS

    @property
    def socket_buffer_bytes(self) -> int:
        """Bytes, the third number of tcp_rmem and tcp_wmem."""
        return parse_size(self.socket_buffer)

    @property
    def moderation_ns(self) -> int:
        """Nanoseconds; 0 is off."""
        return 0 if self.moderation == "off" else parse_delay(self.moderation)

    @property
    def cost(self) -> HostCost:
        """Of the software, at every NIC."""
        message, megabyte = (0 if cost == "off" else parse_delay(cost) for cost in (self.message_cost, self.byte_cost))
        return HostCost(message_ns=message, megabyte_ns=megabyte)

    def sysctls(self) -> dict[str, str]:
        """Key under /proc/sys -> value, for each host's namespace.  The metrics cache never carries over."""
        most = self.socket_buffer_bytes
        return {
            "net/ipv4/tcp_congestion_control": self.cc,
            "net/ipv4/tcp_ecn": {"off": "0", "on": "1", "passive": "2"}[self.ecn],
            "net/ipv4/tcp_rmem": f"{_RESERVED_BYTES} {min(131072, most)} {most}",
            "net/ipv4/tcp_wmem": f"{_RESERVED_BYTES} {min(16384, most)} {most}",
            "net/ipv4/tcp_limit_output_bytes": str(parse_size(self.output_limit)),
            "net/ipv4/tcp_no_metrics_save": "1",
            "net/ipv4/tcp_slow_start_after_idle": _bit(self.slow_start_after_idle),
            "net/ipv4/tcp_timestamps": _bit(self.timestamps),
            "net/ipv4/tcp_sack": _bit(self.sack),
            "net/ipv4/tcp_moderate_rcvbuf": "1",
            "net/ipv4/conf/all/rp_filter": "0",
            "net/ipv4/conf/default/rp_filter": "0",
            "net/ipv4/conf/all/arp_ignore": "1",
            "net/ipv4/conf/all/arp_announce": "2",
        }


def quiet_sysctls() -> dict[str, str]:
    """What keeps a namespace silent: set before its first interface exists, so that no frame ever leaves by itself."""
    return {"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1"}


def _check_quantity(name: str, value: str) -> None:
    if name in ("socket_buffer", "output_limit"):
        if not _RESERVED_BYTES <= parse_size(value) < 2**31:
            raise UserError(f"'{value}' is not between 4096 B and 2 GiB")
    elif name in ("moderation", "message_cost", "byte_cost"):
        if value != "off" and not 0 < parse_delay(value) < 10**9:
            raise UserError(f"'{value}' is neither off nor between 1ns and 1s")
    elif not MICROSECOND_NS <= parse_delay(value) <= 120 * 10**9 or parse_delay(value) % MICROSECOND_NS:
        raise UserError(f"'{value}' is not a whole number of microseconds between 1us and 120s")


def _bit(state: str) -> str:
    return "1" if state == "on" else "0"
