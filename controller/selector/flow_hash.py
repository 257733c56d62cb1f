"""The hash that selects paths, in Python: the twin of flow_hash.h, equal bit for bit.

MurmurHash3 x86_32 over four words: source address, destination address, the two ports, the protocol, each as the four
bytes on the wire read as a little-endian number (the protocol as a number).  A hash of 32 bits becomes a choice among n
by its high bits, h x n / 2**32, which needs no division.
Source: Austin Appleby's public-domain MurmurHash3 (constants and order of steps).
"""

from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv4Address

MASK = 0xFFFFFFFF
HASHED_BYTES = 16

TCP, UDP = 6, 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A 5-tuple.  Ports are 0 where the protocol has none, and for fragments."""

    src: IPv4Address
    dst: IPv4Address
    proto: int
    sport: int
    dport: int


def flow_words(flow: Flow) -> tuple[int, int, int, int]:
    """The four words that are hashed."""
    ports = flow.sport.to_bytes(2) + flow.dport.to_bytes(2)
    return (
        int.from_bytes(flow.src.packed, "little"),
        int.from_bytes(flow.dst.packed, "little"),
        int.from_bytes(ports, "little"),
        flow.proto,
    )


def flow_hash(flow: Flow, seed: int) -> int:
    """32 bits of a 5-tuple under a seed."""
    h = seed & MASK
    for word in flow_words(flow):
        h = _rotate(h ^ scramble(word), 13) * 5 + 0xE6546B64 & MASK
    h ^= HASHED_BYTES
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def scramble(word: int) -> int:
    """A word of 32 bits, mixed; 0 stays 0."""
    return _rotate(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK


def choose(hashed: int, width: int) -> int:
    """A hash as a choice in 0..width-1."""
    return hashed * width >> 32


def derive_seeds(*parts: object) -> tuple[int, int, int, int]:
    """Four unrelated 32-bit seeds, one per level of a path, from anything that prints the same every time."""
    digest = blake2b(repr(parts).encode(), digest_size=16).digest()
    first, second, third, fourth = (int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
    return first, second, third, fourth


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & MASK
