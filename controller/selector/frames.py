"""Frames and contexts for running the selector without an interface (BPF_PROG_TEST_RUN), as the tests do."""

from struct import Struct

from controller.selector import libbpf
from controller.selector.flow_hash import Flow
from controller.selector.selector import Selector

CONTEXT_BYTES = 192
"""struct __sk_buff of linux/bpf.h."""
MARK_OFFSET = 8
"""Of `mark` in it."""
PADDING_BYTES = 24
_IPV4 = Struct("!BBHHHBBH4s4s")
_ETHERNET = bytes(12) + b"\x08\x00"


def frame(flow: Flow, *, option_words: int = 0, fragment: int = 0) -> bytes:
    """An Ethernet frame of this flow; IP options and a fragment field where asked for."""
    payload = flow.sport.to_bytes(2) + flow.dport.to_bytes(2) + bytes(PADDING_BYTES)
    options = b"\x01" * 4 * option_words
    length = _IPV4.size + len(options) + len(payload)
    header = _IPV4.pack(
        0x45 + option_words, 0, length, 0, fragment, 64, flow.proto, 0, flow.src.packed, flow.dst.packed
    )
    return _ETHERNET + header + options + payload


def mark_given(selector: Selector, packet: bytes) -> int:
    """The mark that the program in the kernel gives a frame."""
    _, context, _ = libbpf.run_on_frame(selector.program, packet, bytes(CONTEXT_BYTES))
    return int.from_bytes(context[MARK_OFFSET : MARK_OFFSET + 4], "little")
