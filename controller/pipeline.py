"""The forwarding pipeline by name: tables, priority bands, and a rule as a value.

    ROUTE   where to?      IPv4 destination -> a port, or a choice among equals
    CHOICE  which of them? (choice, one digit of the packet's mark) -> a port

Two tables and not one, because k destinations behind n equal ports then cost k + n rules instead of k x n.
Nothing here knows OpenFlow's wire format (messages.py) or a topology (forwarding.py).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Network

ETH_TYPE_IPV4 = 0x0800
ETH_TYPE_ARP = 0x0806
ARP_REQUEST = 1


class Table(IntEnum):
    """OpenFlow table numbers."""

    ROUTE = 0
    CHOICE = 1


class Band(IntEnum):
    """Priorities: a more exact rule stands in a higher band."""

    MISS = 0
    """Table ROUTE: what nobody asked for is dropped.  The only rule of priority 0 on a switch."""
    STRAY = 1
    """Table CHOICE: a digit that names no port is dropped, and counted, instead of taking some other path."""
    POD = 100
    """Destinations behind several leaves that are all reached alike."""
    LEAF = 200
    """Destinations behind one leaf."""
    HOST = 300
    """One host interface."""
    ARP = 400
    """ARP requests go to the controller, and nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What a packet must look like; None does not care."""

    eth_type: int | None = None
    ipv4_dst: IPv4Network | None = None
    arp_op: int | None = None
    choice: int | None = None
    """The number that table ROUTE wrote (OpenFlow metadata)."""
    mark: int | None = None
    """Value of the bits of the packet's mark (skb->mark) under `mark_mask`."""
    mark_mask: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """Send the packet out of this port."""

    port: int


@dataclass(frozen=True, slots=True)
class Choose:
    """Go on to table CHOICE with this number; it means something on this switch only."""

    choice: int


@dataclass(frozen=True, slots=True)
class ToController:
    """Hand the whole packet to the controller."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The packet ends here."""


Action = Output | Choose | ToController | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of a flow table, as a value: plans are compared with what a switch reports by set equality."""

    table: Table
    priority: int
    match: Match = field(default_factory=Match)
    action: Action = field(default_factory=Drop)


@dataclass(frozen=True, slots=True)
class AddRule:
    """Install a rule, or replace the one with its table, priority and match."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Remove exactly this rule."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class Wipe:
    """Remove every rule of every table, those of others included."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ask the switch to say when everything before this has taken effect."""


@dataclass(frozen=True, slots=True)
class ReadTables:
    """Ask for all rules that the switch really holds."""


@dataclass(frozen=True, slots=True)
class ReadPorts:
    """Ask for the counters of all ports."""


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Send this frame out of one port."""

    port: int
    frame: bytes


Request = AddRule | DeleteRule | Wipe | Barrier | ReadTables | ReadPorts | SendPacket
"""Everything that the core ever asks of a switch."""
