"""A cable that loses packets: a BPF program of ours on the sender's egress hook, in front of its port's queue.

    sender --[clsact egress: lot drawn per packet]--> fabric qdisc --> cable --> receiver

A lost packet is swallowed as if it had been sent (TC_ACT_STOLEN): the sender's TCP must not hear of it, as it would of
a drop in its own host.  The port never sees it, so the port's books need no new cause; what was lost is counted here.
A lost packet takes no time on the wire, which at the loss rates of real cables nobody can see.  PFC frames are made by
the port itself and are never lost.

Lots come from a 64-bit linear congruential generator per direction (Knuth, MMIX), seeded by the run: the n-th packet of
a direction is lost in every run with that seed.  The sending side is used because hosts merge what they receive (GRO):
behind that, one lot would decide over dozens of packets.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from testbed.bpf import Cell, instruction, load_classifier, wide_immediate
from testbed.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NetlinkSocket,
    Request,
    attribute,
    attributes,
    text_attribute,
    u32_attribute,
)
from testbed.traffic_control import RTM_NEWTFILTER, TCA_KIND, TCA_OPTIONS, tcmsg
from topologies.errors import RunFailed

MULTIPLIER, INCREMENT = 6364136223846793005, 1442695040888963407
_STATE, _THRESHOLD, _PASSED, _LOST, _LOST_BYTES = 0, 8, 16, 24, 32
"""Offsets in the cell."""
_CELL = struct.Struct("=QQQQQ")
_STOLEN, _GO_ON = 4, -1
_CLSACT, _EGRESS = 0xFFFFFFF1, 0xFFFFFFF3
_RTM_NEWQDISC, _RTM_GETTFILTER = 36, 46
_PROTOCOL_ALL = socket.htons(3)
_NAME = "packet_loss"


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What a direction of a cable has swallowed, and let pass, since it first lost anything."""

    packets: int
    bytes: int
    passed_packets: int


def threshold(share: Fraction) -> int:
    """A lot below this, of 2^32, is lost."""
    return round(share * 2**32)


def lots(seed: int) -> Iterator[int]:
    """The program's twin: the lots of a direction, each in 0..2^32-1."""
    state = seed
    while True:
        state = (state * MULTIPLIER + INCREMENT) % 2**64
        yield state >> 32


def lost_packets(seed: int, share: Fraction, packets: int) -> int:
    """How many of so many packets the program loses."""
    return sum(lot < threshold(share) for lot in islice(lots(seed), packets))


class LossyEgress:
    """The program on one interface, from the first time that it shall lose packets until `remove`."""

    def __init__(self, route: NetlinkSocket, *, index: int, interface: str, seed: int) -> None:
        """Hangs it on the interface, losing nothing yet.  Raises MissingFeature or KernelRefused."""
        self.interface = interface
        self._route, self._index = route, index
        self._cell = Cell(_CELL.pack(seed, 0, 0, 0, 0))
        self._program = load_classifier(_program(self._cell.fd))
        clsact = Request(
            kind=_RTM_NEWQDISC,
            flags=NLM_F_CREATE | NLM_F_EXCL,
            body=tcmsg(index=index, handle=0xFFFF0000, parent=_CLSACT) + text_attribute(TCA_KIND, "clsact"),
            what=f"give {interface} an egress hook",
        )
        for refusal in route.refusals([clsact]):
            if refusal.code != errno.EEXIST:  # the path selector's is as good as ours
                raise refusal
        options = u32_attribute(6, self._program) + text_attribute(7, _NAME) + u32_attribute(8, 1)
        body = tcmsg(index=index, handle=1, parent=_EGRESS, info=1 << 16 | _PROTOCOL_ALL)
        body += text_attribute(TCA_KIND, "bpf") + attribute(TCA_OPTIONS, options)
        flags = NLM_F_CREATE | NLM_F_REPLACE
        route.execute([Request(kind=RTM_NEWTFILTER, flags=flags, body=body, what=f"make {interface} lose packets")])

    def lose(self, share: Fraction) -> None:
        """From now on."""
        struct.pack_into("=Q", self._cell.memory, _THRESHOLD, threshold(share))

    def lost(self) -> Lost:
        """So far.  Raises RunFailed where somebody took the program away: what it would have lost went through."""
        hung = self._route.dump(_RTM_GETTFILTER, tcmsg(index=self._index, handle=0, parent=_EGRESS))
        if not any(_NAME.encode() in attributes(payload[20:]).get(TCA_OPTIONS, b"") for _, payload in hung):
            raise RunFailed(
                f"the loss of {self.interface} was taken away: Open vSwitch clears a port's hooks when it configures it"
            )
        _, _, passed, packets, size = _CELL.unpack_from(self._cell.memory)
        return Lost(packets=packets, bytes=size, passed_packets=passed)

    def close(self) -> None:
        """Lets go of program and cell; the kernel keeps them while they hang on the interface."""
        os.close(self._program)
        self._cell.close()


def _program(cell: int) -> list[bytes]:
    """Draws a lot, compares, counts.  r6 is the cell, r7 the packet."""
    lose = [
        instruction(0xB7, dst=1, immediate=1),  # r1 = 1
        instruction(0xDB, dst=6, src=1, offset=_LOST),  # lost += r1, atomically
        instruction(0x61, dst=1, src=7),  # r1 = packet->len
        instruction(0xDB, dst=6, src=1, offset=_LOST_BYTES),
        instruction(0xB7, immediate=_STOLEN),
        instruction(0x95),
    ]
    keep = [
        instruction(0xB7, dst=1, immediate=1),
        instruction(0xDB, dst=6, src=1, offset=_PASSED),
        instruction(0xB7, immediate=_GO_ON),
        instruction(0x95),
    ]
    return [
        instruction(0xBF, dst=7, src=1),  # r7 = r1
        instruction(0x62, dst=10, offset=-4),  # key on the stack = 0
        wide_immediate(1, cell, source=1),
        instruction(0xBF, dst=2, src=10),
        instruction(0x07, dst=2, immediate=-4),
        instruction(0x85, immediate=1),  # r0 = map_lookup_elem(r1, r2)
        instruction(0x55, dst=0, offset=2),  # if r0 != 0 skip
        instruction(0xB7, immediate=_GO_ON),
        instruction(0x95),
        instruction(0xBF, dst=6, src=0),
        instruction(0x79, dst=1, src=6, offset=_STATE),
        wide_immediate(2, MULTIPLIER),
        instruction(0x2F, dst=1, src=2),
        wide_immediate(2, INCREMENT),
        instruction(0x0F, dst=1, src=2),
        instruction(0x7B, dst=6, src=1, offset=_STATE),
        instruction(0x77, dst=1, immediate=32),
        instruction(0x79, dst=2, src=6, offset=_THRESHOLD),
        instruction(0xAD, dst=1, src=2, offset=len(keep)),  # if r1 < r2 goto lose
        *keep,
        *lose,
    ]
