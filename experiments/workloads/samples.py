"""What ranks bring back from measured operations, and how rows and the byte audit follow from it.  Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.results import Row
from experiments.workloads.messages import WireBytes
from testbed.workers.counters import HostCounters


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operation at one size; sizes are what the operation makes of them, not what the user wrote."""

    op: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One iteration of one step as one rank saw it."""

    iteration: int
    """Negative for warm-up."""
    start_ns: int
    end_ns: int
    wrong: int
    counters: HostCounters
    """Of this rank's host, from before the iteration until the fabric was quiet again."""
    header_bytes: int
    """Of each packet in `counters`."""


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration of one step over all ranks."""

    step: Step
    samples: tuple[Sample, ...]
    """In rank order."""

    @property
    def number(self) -> int:
        """Negative for warm-up."""
        return self.samples[0].iteration

    @property
    def time_ns(self) -> int:
        """From the first rank's start to the last rank's end.  All ranks share one clock and start at one instant."""
        return max(sample.end_ns for sample in self.samples) - min(sample.start_ns for sample in self.samples)


def iterations(steps: Sequence[Step], samples: Sequence[Sequence[Sequence[Sample]]]) -> Iterator[Iteration]:
    """samples[rank][step][iteration] -> one Iteration each, in the order in which they ran."""
    for index, step in enumerate(steps):
        for across in zip(*(of_rank[index] for of_rank in samples), strict=True):
            yield Iteration(step=step, samples=tuple(across))


def row(iteration: Iteration, *, factor: float) -> Row:
    """The row of results.json; `factor` is busbw / algbw."""
    return Row.of(
        op=iteration.step.op,
        size_bytes=iteration.step.size_bytes,
        ranks=len(iteration.samples),
        iteration=iteration.number,
        time_ns=iteration.time_ns,
        factor=factor,
        wrong=sum(sample.wrong for sample in iteration.samples),
    )


def audit(iteration: Iteration, expected: Sequence[WireBytes]) -> dict[str, Any]:
    """Per rank: TCP payload that the wire carried and that it had to carry, and what explains a difference."""
    samples = iteration.samples
    return {
        "op": iteration.step.op,
        "bytes": iteration.step.size_bytes,
        "iteration": iteration.number,
        "header_bytes_per_packet": samples[0].header_bytes,
        "expected_tx_bytes": [wire.tx for wire in expected],
        "tx_payload_bytes": [sample.counters.tx_payload_bytes(sample.header_bytes) for sample in samples],
        "expected_rx_bytes": [wire.rx for wire in expected],
        "rx_payload_bytes": [sample.counters.rx_payload_bytes(sample.header_bytes) for sample in samples],
        "tx_packets": [sample.counters.tx_packets for sample in samples],
        "rx_packets": [sample.counters.rx_packets for sample in samples],
        "retransmitted_segments": [sample.counters.retransmitted_segments for sample in samples],
        "timeouts": [sample.counters.timeouts for sample in samples],
        "loss_probes": [sample.counters.loss_probes for sample in samples],
    }
