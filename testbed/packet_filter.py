"""Which packets a tap accepts, as a program that the kernel runs before anything is copied (classic BPF).  Pure.

Selection()                                          everything
Selection(dscps=frozenset({8}), paused=frozenset({1}))   IPv4 with DSCP 8, and PFC frames about class 1
"""

from collections.abc import Sequence
from dataclasses import dataclass

ETHERTYPE_IPV4, ETHERTYPE_PAUSE = 0x0800, 0x8808
_LOAD_HALF, _LOAD_BYTE, _EQUAL, _ANY_BIT, _SHIFT_RIGHT, _RETURN = 0x28, 0x30, 0x15, 0x45, 0x74, 0x06
_TYPE_AT, _TOS_AT, _ENABLED_AT = 12, 15, 17
"""Of the Ethernet frame; the last is the low byte of a PFC frame's vector of classes."""

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What to keep."""

    dscps: frozenset[int] | None = None
    """None: everything."""
    paused: frozenset[int] = frozenset()
    """Classes whose PFC frames are kept as well."""


EVERYTHING = Selection()


def program(selection: Selection, *, keep_bytes: int) -> Sequence[Instruction]:
    """Keeps so many bytes of each packet of the selection; 0 is nothing at all."""
    keep: Instruction = (_RETURN, 0, 0, keep_bytes)
    if selection.dscps is None or not keep_bytes:
        return [keep]
    drop: Instruction = (_RETURN, 0, 0, 0)
    dscps, mask = sorted(selection.dscps), sum(1 << index for index in selection.paused)
    # each test jumps to `keep`, the last instruction, which lies so far beyond the next one
    tests = [(_EQUAL, len(dscps) - place, 0, dscp) for place, dscp in enumerate(dscps)]
    return [
        (_LOAD_HALF, 0, 0, _TYPE_AT),
        (_EQUAL, 3, 0, ETHERTYPE_IPV4),
        (_EQUAL, 0, len(tests) + 4, ETHERTYPE_PAUSE),
        (_LOAD_BYTE, 0, 0, _ENABLED_AT),
        (_ANY_BIT, len(tests) + 3, len(tests) + 2, mask),
        (_LOAD_BYTE, 0, 0, _TOS_AT),
        (_SHIFT_RIGHT, 0, 0, 2),
        *tests,
        drop,
        keep,
    ]
