"""Whole tensors between chosen ranks, and what they cost the host's link: what servers are built of.  Ranks only."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from testbed.workers.counters import read_header_bytes
from testbed.workers.rank import Rank


def collect(sources: Sequence[int], like: torch.Tensor) -> list[torch.Tensor]:
    """One tensor of this shape from each of these ranks, all at once; in the order of `sources`."""
    found = [torch.empty_like(like) for _ in sources]
    works = [dist.irecv(tensor, src=source) for tensor, source in zip(found, sources, strict=True)]
    for work in works:
        if work is not None:
            work.wait()
    return found


def spread(tensor: torch.Tensor, destinations: Sequence[int]) -> None:
    """The same tensor to each of these ranks, all at once."""
    works = [dist.isend(tensor, dst=destination) for destination in destinations]
    for work in works:
        if work is not None:
            work.wait()


def average(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Summed in order, so that everybody who adds the same gets the same bits."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total.add_(tensor)
    return total.div_(len(tensors))


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """TCP payload of one host between two line-ups, headers excluded."""

    tx_bytes: int
    rx_bytes: int
    retransmitted_segments: int


class Traffic:
    """What crosses this rank's NIC from here on; all ranks start at one instant."""

    def __init__(self, rank: Rank) -> None:
        """Waits for every rank."""
        self._rank = rank
        rank.line_up("before the work")
        self._before = rank.counters()
        rank.line_up("start of the work")

    def end(self) -> Transferred:
        """Until now, once every rank has come this far and the fabric is quiet."""
        self._rank.line_up("end of the work")
        found, header_bytes = self._rank.counters() - self._before, read_header_bytes()
        return Transferred(
            tx_bytes=found.tx_payload_bytes(header_bytes),
            rx_bytes=found.rx_payload_bytes(header_bytes),
            retransmitted_segments=found.retransmitted_segments,
        )
