"""An 802.1Qbb frame as bytes: what tells the far end of a cable to stop a class, and for how long.

01:80:C2:00:00:01 | source | 0x8808 | 0x0101 | classes (one bit each) | 8 x duration in units of 512 bit times
"""

import struct
from collections.abc import Mapping

from testbed.port.config import CLASSES, MAX_PAUSE_QUANTA, PFC_FRAME_BYTES
from topologies.errors import UserError

ETH_P_PAUSE = 0x8808
OPCODE = 0x0101
QUANTUM_BITS = 512
_DESTINATION = bytes.fromhex("0180c2000001")
_BODY = struct.Struct("!HHH8H")
_BODY_AT = 12


def pfc_frame(*, source: bytes, quanta: Mapping[int, int]) -> bytes:
    """Class -> duration; 0 lets a class go on.  `source` is a MAC of six bytes.  Raises UserError."""
    for index, duration in quanta.items():
        if not (0 <= index < CLASSES and 0 <= duration <= MAX_PAUSE_QUANTA):
            raise UserError(f"pause of class {index} for {duration} quanta: there are classes 0..7 and 0..65535 quanta")
    enabled = sum(1 << index for index in quanta)
    durations = [quanta.get(index, 0) for index in range(CLASSES)]
    head = _DESTINATION + source
    return (head + _BODY.pack(ETH_P_PAUSE, OPCODE, enabled, *durations)).ljust(PFC_FRAME_BYTES, b"\0")


def parse_pfc(frame: bytes) -> dict[int, int]:
    """Class -> duration of an Ethernet frame from its first byte; empty for what is no PFC frame."""
    if len(frame) < _BODY_AT + _BODY.size:
        return {}
    kind, opcode, enabled, *durations = _BODY.unpack_from(frame, _BODY_AT)
    if (kind, opcode) != (ETH_P_PAUSE, OPCODE):
        return {}
    return {index: durations[index] for index in range(CLASSES) if enabled >> index & 1}


def duration_ns(quanta: int, rate_bps: int) -> int:
    """How long a pause holds on a link of this rate, as the qdisc rounds it."""
    return quanta * QUANTUM_BITS * 10**9 // rate_bps
