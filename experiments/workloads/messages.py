"""Which messages gloo sends for each collective: the wire side of facts.md 4.3, exact to the byte.

Written from the algorithms of gloo at pytorch/gloo 70dc360 (allreduce.cc, reduce.cc, ...) and confirmed by counters:
with no loss, the payload that leaves and reaches a host is equal to the byte.

    sender    --- "send ready" (48 B) --->
              <-- "receive ready" (48 B)    receiver
              --- header (48 B) + payload -->

Every message costs those three headers (transport/tcp/pair.cc), whichever side comes first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PREAMBLE_BYTES = 48
"""Six size_t of `Op::preamble` in gloo/transport/tcp/pair.h."""
MAX_SEGMENT_BYTES = 1024 * 1024
"""`kMaxSegmentSize` of the ring algorithms."""
ELEMENT_BYTES = 4
"""float32 everywhere here."""


@dataclass(frozen=True)
class Message:
    """One gloo message."""

    src: int
    dst: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class WireBytes:
    """TCP payload that one rank sends and receives for an operation, gloo's headers included."""

    tx: int = 0
    rx: int = 0


def wire_bytes(messages: Iterable[Message], *, ranks: int) -> tuple[WireBytes, ...]:
    """Per rank: what its NIC must carry, TCP and Ethernet headers apart."""
    tx, rx = [0] * ranks, [0] * ranks
    for message in messages:
        forward = 2 * PREAMBLE_BYTES + message.size_bytes
        tx[message.src] += forward
        rx[message.dst] += forward
        tx[message.dst] += PREAMBLE_BYTES
        rx[message.src] += PREAMBLE_BYTES
    return tuple(WireBytes(tx=sent, rx=received) for sent, received in zip(tx, rx, strict=True))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _ring_pass(
    *, ranks: int, size_bytes: int, segments: int, segment_bytes: int, first_chunk: int, sends: int
) -> Iterator[Message]:
    """Every rank sends `sends` segments to rank - 1, beginning with the chunk `rank + first_chunk`.

    Segments beyond the end of the array are empty and not sent, the one across the end is cut.
    """
    per_rank = segments // ranks
    for rank in range(ranks):
        for i in range(sends):
            offset = ((rank + first_chunk) * per_rank + i) * segment_bytes % (segments * segment_bytes)
            length = min(segment_bytes, size_bytes - offset)
            if length > 0:
                yield Message(rank, (rank - 1) % ranks, length)


def all_reduce(ranks: int, size_bytes: int, *, element_bytes: int = ELEMENT_BYTES) -> Iterator[Message]:
    """Ring reduce-scatter, then ring all-gather, in segments of at most 1 MiB and at least two per rank."""
    if ranks == 1 or size_bytes == 0:
        return
    segments = _round_up(max(-(-size_bytes // MAX_SEGMENT_BYTES), ranks * 2), ranks)
    segment_bytes = _round_up(-(-size_bytes // segments), element_bytes)
    for first_chunk in (1, 0):
        yield from _ring_pass(
            ranks=ranks,
            size_bytes=size_bytes,
            segments=segments,
            segment_bytes=segment_bytes,
            first_chunk=first_chunk,
            sends=segments - segments // ranks,
        )


def reduce_ring(ranks: int, size_bytes: int) -> Iterator[Message]:
    """The first phase of `reduce`: a ring reduce-scatter that goes on for too long.

    It stops two segments before the end instead of one chunk before it: with more than two segments a chunk, that is
    above 2 MiB per rank, gloo sends more than a ring needs, and we count what it sends.
    """
    segments, segment_bytes = _reduce_segments(ranks, size_bytes)
    return _ring_pass(
        ranks=ranks,
        size_bytes=size_bytes,
        segments=segments,
        segment_bytes=segment_bytes,
        first_chunk=1,
        sends=segments - 2,
    )


def _reduce_segments(ranks: int, size_bytes: int) -> tuple[int, int]:
    segment_bytes = _round_up(min(-(-size_bytes // (ranks * 2)), MAX_SEGMENT_BYTES), ELEMENT_BYTES)
    return _round_up(max(-(-size_bytes // segment_bytes), ranks * 2), ranks), segment_bytes


def reduce(ranks: int, size_bytes: int) -> Iterator[Message]:
    """The ring, then every rank sends its chunk to rank 0."""
    if ranks == 1 or size_bytes == 0:
        return
    yield from reduce_ring(ranks, size_bytes)
    segments, segment_bytes = _reduce_segments(ranks, size_bytes)
    chunk_bytes = segments // ranks * segment_bytes
    for rank in range(1, ranks):
        length = min(chunk_bytes, size_bytes - rank * chunk_bytes)
        if length > 0:
            yield Message(rank, 0, length)


def all_gather(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Ring towards rank + 1, each chunk in two halves."""
    chunk_bytes = size_bytes // ranks
    if chunk_bytes == 0:
        return
    for rank in range(ranks):
        for _ in range(ranks - 1):
            yield Message(rank, (rank + 1) % ranks, chunk_bytes // 2)
            yield Message(rank, (rank + 1) % ranks, chunk_bytes - chunk_bytes // 2)


def reduce_scatter(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Torch's gloo back end runs an all-reduce of the whole array and keeps a chunk of it."""
    return all_reduce(ranks, size_bytes)


def broadcast(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Binomial tree from rank 0, whole messages: in round i, ranks below 2**i send to their peer 2**i above."""
    reach = 1
    while reach < ranks:
        for rank in range(min(reach, ranks - reach)):
            yield Message(rank, rank + reach, size_bytes)
        reach *= 2


def gather(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Every rank sends its part to rank 0, all at once: an incast."""
    return (Message(rank, 0, size_bytes // ranks) for rank in range(1, ranks))


def scatter(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Rank 0 sends every rank its part, all at once."""
    return (Message(0, rank, size_bytes // ranks) for rank in range(1, ranks))


def all_to_all(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Every rank sends every other its part, all posted at once."""
    return (
        Message(rank, (rank + distance) % ranks, size_bytes // ranks)
        for rank in range(ranks)
        for distance in range(1, ranks)
    )


def barrier(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Dissemination: in round i every rank sends an empty message 2**i further.  `size_bytes` does not matter."""
    distance = 1
    while distance < ranks:
        yield from (Message(rank, (rank + distance) % ranks, 0) for rank in range(ranks))
        distance *= 2


def send_recv(ranks: int, size_bytes: int) -> Iterator[Message]:
    """Every rank sends the whole array to rank + 1."""
    if ranks > 1:
        yield from (Message(rank, (rank + 1) % ranks, size_bytes) for rank in range(ranks))
