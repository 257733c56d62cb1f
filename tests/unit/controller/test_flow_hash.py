"""The hash by itself: known values, avalanche, and choices."""

from dataclasses import replace
from ipaddress import IPv4Address
from random import Random
from statistics import mean

import pytest

from controller.selector.flow_hash import TCP, Flow, choose, derive_seeds, flow_hash

FLOW = Flow(src=IPv4Address("10.0.1.1"), dst=IPv4Address("10.0.2.1"), proto=TCP, sport=40000, dport=5001)
ZERO = Flow(src=IPv4Address(0), dst=IPv4Address(0), proto=0, sport=0, dport=0)


def test_it_is_murmurhash3() -> None:
    """Of 16 zero bytes; made with an independent implementation of MurmurHash3_x86_32."""
    assert flow_hash(ZERO, 0) == murmur3(bytes(16), 0)
    raw = FLOW.src.packed + FLOW.dst.packed + (40000).to_bytes(2) + (5001).to_bytes(2) + (6).to_bytes(4, "little")
    assert flow_hash(FLOW, 12345) == murmur3(raw, 12345)


def test_the_reference_used_above_knows_the_published_vectors() -> None:
    """Verification values that circulate with the algorithm (smhasher and its ports)."""
    assert murmur3(b"", 1) == 0x514E28B7
    assert murmur3(b"\0\0\0\0", 0) == 0x2362F9DE
    assert murmur3(b"\x21\x43\x65\x87", 0) == 0xF55B516B


@pytest.mark.parametrize("field", ["src", "dst", "sport", "dport", "seed"])
def test_one_bit_of_the_input_flips_half_of_the_output(field: str) -> None:
    rng, flips = Random(field), []
    for _ in range(1000):
        flow, seed = replace(FLOW, sport=rng.randrange(2**16)), rng.randrange(2**32)
        bit = 1 << rng.randrange(16)
        if field == "seed":
            other, other_seed = flow, seed ^ bit
        else:
            value = getattr(flow, field)
            other, other_seed = replace(flow, **{field: type(value)(int(value) ^ bit)}), seed
        flips.append((flow_hash(flow, seed) ^ flow_hash(other, other_seed)).bit_count())
    assert mean(flips) == pytest.approx(16, abs=0.5)
    assert min(flips) >= 2


@pytest.mark.parametrize("width", [1, 2, 3, 16, 255])
def test_choices_cover_the_width_and_nothing_else(width: int) -> None:
    assert choose(0, width) == 0
    assert choose(2**32 - 1, width) == width - 1


def test_seeds_depend_on_every_part_and_differ_from_each_other() -> None:
    assert derive_seeds("ecmp", 1) == derive_seeds("ecmp", 1)
    assert len({*derive_seeds("ecmp", 1), *derive_seeds("ecmp", 2), *derive_seeds("other", 1)}) == 12


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 of whole words, written independently of the code under test."""
    total = seed
    for at in range(0, len(data), 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 % 2**32
        k = (k * 2**15 % 2**32 + k // 2**17) * 0x1B873593 % 2**32
        total ^= k
        total = (total * 2**13 % 2**32 + total // 2**19) * 5 % 2**32
        total = (total + 0xE6546B64) % 2**32
    total ^= len(data)
    total = (total ^ total // 2**16) * 0x85EBCA6B % 2**32
    total = (total ^ total // 2**13) * 0xC2B2AE35 % 2**32
    return total ^ total // 2**16
