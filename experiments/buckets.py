"""Buckets: a gradient of G bytes sent in k pieces, one after the other.  What does each piece cost on its own?

    G = 32 MB   [========================]                 1 bucket    T0 + c G/B
                [=====][=====][=====][=====]               4           4 T0 + c G/B
                [=][=][=][=][=][=][=][=][=] ...            k           k T0 + c G/B

T0 is what an all-reduce takes however small it is: 2 (P-1) steps round the ring, each with a message that says "ready
to receive" and one of data.  c is 2 (P-1)/P, over what a large all-reduce reaches of the line rate.  Both are measured
first, on the same connections, then the sweep is predicted from them.  T0 is measured with packets of 128 B; two parts
of it that depend on a bucket's size are computed (`Ring`): in each step every switch on the way takes in a whole packet
before it sends it on, and gloo has two segments in flight, so that what one waits for, the other may hide.

    ./run experiments/buckets.py
    ./run experiments/buckets.py --topology star:hosts=8,rate=400G --set buckets=64KiB,1MiB,25MiB
    ./run experiments/buckets.py --set host.moderation=8us

Expected: the prediction explains the sweep (R2 > 0.98); torch's default of 25 MiB lies on the flat part, 64 KiB does
not.

Where the law holds: NICs without interrupt moderation, which this experiment therefore starts from.  A moderating NIC
hands a message over at its next flush, so that a step takes whole flushes and the bytes of a bucket come for nothing
until they no longer fit between two: a staircase, not a line.  (4 ranks, 100 Gb/s, 8 us: 1 KiB to 128 KiB take 96 us
all alike, 256 KiB and 512 KiB take 144 us; without moderation 24.4 us and their bytes.)  Each of the 2 (P-1) steps can
lose one flush so: that much is claimed of a moderating fabric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, Sizes, written
from testbed.workers.rank import Rank
from topologies.errors import UserError
from topologies.graph import distance, leaf_of
from topologies.model import Topology

ELEMENT_BYTES = 4
SEGMENT_BYTES = 1 << 20
"""Largest segment of gloo's ring (allreduce.h, maxSegmentSize)."""
TINY_BYTES, TINY_COUNT = 1024, 16
"""Pieces from which T0 is measured, back to back as in the sweep."""
STRAIGHT = 0.98
"""R2 of time against k T0 + c G/B (facts.md, test 24)."""
FLAT, STEEP = 1.10, 1.25
"""Of the time in one piece: what the default bucket may take at most, and 64 KiB must take at least."""
DEFAULT_BYTES = 25 << 20
SMALL_BYTES = 64 << 10
BAND = 0.15
"""Of a point against the law: how two segments share a link is computed to first order only, and as if all neighbours
were equally far apart (found: 6% on a star, 11% where some have one switch between them and some three)."""


class Settings(BaseSettings):
    """The gradient and the sizes of its pieces."""

    gradient: Size = Field(default=written("32MiB"), ge=1 << 16, description="bytes of the whole gradient")
    buckets: Sizes = Field(default=written("64KiB,256KiB,1MiB,4MiB,25MiB"), description="bytes per bucket")
    warmup: int = Field(default=1, ge=1, description="passes of each before those that count: TCP's windows open")
    repetitions: int = Field(default=1, ge=1, description="measured passes of each")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A straight line through points, and how straight they lie (R2)."""

    offset: float
    slope: float
    straightness: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> "Line":
        """Least squares.  Needs two different abscissae."""
        middle_x, middle_y = mean(x for x, _ in points), mean(y for _, y in points)
        spread = sum((x - middle_x) ** 2 for x, _ in points)
        slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
        offset = middle_y - slope * middle_x
        fitted = [offset + slope * x for x, _ in points]
        return cls(offset=offset, slope=slope, straightness=straightness([y for _, y in points], fitted))


def straightness(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """R2: the share of the measurements' variance that the prediction explains."""
    middle = mean(measured)
    total = sum((value - middle) ** 2 for value in measured)
    rest = sum((value - wanted) ** 2 for value, wanted in zip(measured, predicted, strict=True))
    return 1 - rest / total if total else 1.0


@dataclass(frozen=True, kw_only=True)
class Cut:
    """So many bytes in pieces of that size."""

    total_bytes: int
    bucket_bytes: int

    @property
    def buckets(self) -> int:
        """How many pieces."""
        return -(-self.total_bytes // self.bucket_bytes)


@dataclass(frozen=True, kw_only=True)
class Ring:
    """What an all-reduce waits for, beside its bytes, in 2 (P-1) steps; nanoseconds."""

    ranks: int
    switches: float
    """Between two neighbours: their mean, because a chunk meets all of them in turn."""
    byte_ns: float
    """Of the slowest link."""
    frame_bytes: int
    smallest_ns: float
    """T0 as measured: packets too small to count."""

    @classmethod
    def of(cls, topology: Topology, *, smallest_ns: float) -> "Ring":
        """All hosts in their order."""
        leaves = [leaf_of(topology, topology.interfaces_of[host.name][0].name).name for host in topology.hosts]
        return cls(
            ranks=len(leaves),
            switches=mean(distance(topology, *two) + 1 for two in zip(leaves, [*leaves[1:], leaves[0]], strict=True)),
            byte_ns=8e9 / min(link.rate_bps for link in topology.links),
            frame_bytes=topology.mtu,
            smallest_ns=smallest_ns,
        )

    @property
    def steps(self) -> int:
        """One after the other."""
        return 2 * (self.ranks - 1)

    def latency_ns(self, bucket_bytes: int) -> float:
        """T0 of a bucket of this size: measured, and store and forward, less what its other segment hides.

        A segment is half a rank's chunk, of at most 1 MiB.  When one arrives, a rank says that it is ready for the next
        and waits for its neighbour to say so; the segment behind it is on the wire meanwhile, for as long as it lasts,
        but no longer than until the first has arrived: half a step's latency, less what a switch held of it.  The last
        step of reducing and that of gathering are waited for to the end: they hide nothing.
        """
        segment_ns = min(bucket_bytes / (2 * self.ranks), SEGMENT_BYTES) * self.byte_ns
        packet_ns = min(segment_ns, self.frame_bytes * self.byte_ns)
        hidden_ns = min(segment_ns, max(0.0, self.smallest_ns / self.steps / 2 - packet_ns))
        return self.smallest_ns + self.steps * self.switches * packet_ns - (self.steps - 2) * hidden_ns


def program(rank: Rank, cuts: Sequence[Cut], warmup: int, repetitions: int) -> list[list[tuple[int, int]]]:
    """Of each cut, (start, end) in ns of each pass over all its pieces; all on the same connections."""
    return [_passes(rank, cut, warmup, repetitions) for cut in cuts]


def _passes(rank: Rank, cut: Cut, warmup: int, repetitions: int) -> list[tuple[int, int]]:
    import torch
    import torch.distributed as dist

    gradient = torch.ones(cut.total_bytes // ELEMENT_BYTES)
    spans = []
    for _ in range(warmup + repetitions):
        gradient.fill_(rank.rank + 1)
        rank.line_up("pass")
        with rank.operation("buckets", cut.bucket_bytes) as span:
            for bucket in torch.split(gradient, cut.bucket_bytes // ELEMENT_BYTES):
                dist.all_reduce(bucket)
        spans.append((span.start_ns, span.end_ns))
        expected = rank.size * (rank.size + 1) / 2
        if not bool((gradient == expected).all()):
            raise ValueError(f"a bucketed all-reduce gave wrong sums, expected {expected} everywhere")
    return spans


def run(lab: Lab, settings: Settings) -> None:
    """T0 and c first, then the sweep."""
    ranks = len(lab.topology.hosts)
    if ranks < 2:
        raise UserError(f"--topology: {ranks} host; an all-reduce needs two or more")
    tiny = Cut(total_bytes=TINY_COUNT * TINY_BYTES, bucket_bytes=TINY_BYTES)
    whole = Cut(total_bytes=settings.gradient, bucket_bytes=settings.gradient)
    sweep = [Cut(total_bytes=settings.gradient, bucket_bytes=size_bytes) for size_bytes in settings.buckets]
    tiny_ns, whole_ns, *times_ns = _times_ns(lab, [tiny, whole, *sweep], settings)
    ring = Ring.of(lab.topology, smallest_ns=tiny_ns / TINY_COUNT)
    bytes_ns = whole_ns - ring.latency_ns(settings.gradient)
    table: list[dict[str, Any]] = [
        {
            "bucket_bytes": cut.bucket_bytes,
            "buckets": cut.buckets,
            "time_us": round(time_ns / 1e3, 3),
            "predicted_us": round((bytes_ns + cut.buckets * ring.latency_ns(cut.bucket_bytes)) / 1e3, 3),
            "against_one_piece": round(time_ns / whole_ns, 4),
        }
        for cut, time_ns in zip(sweep, times_ns, strict=True)
    ]
    lab.add("buckets", table)
    line = Line.through([(float(row["buckets"]), row["time_us"]) for row in table]) if len(table) > 1 else None
    lab.add(
        "cost",
        {
            "smallest_us": round(ring.smallest_ns / 1e3, 3),
            "one_piece_us": round(whole_ns / 1e3, 3),
            "fitted_us_per_bucket": round(line.slope, 3) if line else None,
            "fitted_us_of_the_bytes": round(line.offset, 3) if line else None,
            "straightness_R2": round(line.straightness, 5) if line else None,
        },
    )
    if lab.fabric.hosts.moderation_ns:
        _claim_stairs(lab, table, ring, bytes_us=bytes_ns / 1e3)
    else:
        _claim_line(lab, table)
    _claim_sizes(lab, {row["bucket_bytes"]: row["against_one_piece"] for row in table})


def _times_ns(lab: Lab, cuts: Sequence[Cut], settings: Settings) -> list[float]:
    """Of each cut: from the first rank's start to the last rank's end, mean over its passes."""
    found = cast("list[list[list[tuple[int, int]]]]", lab.job(program, cuts, settings.warmup, settings.repetitions))
    means = []
    for of_cut in zip(*found, strict=True):
        times = [max(end for _, end in spans) - min(start for start, _ in spans) for spans in zip(*of_cut, strict=True)]
        lab.add_busy_ns(sum(times))
        means.append(float(mean(times[settings.warmup :])))
    return means


def _claim_line(lab: Lab, table: Sequence[dict[str, Any]]) -> None:
    explained = straightness([row["time_us"] for row in table], [row["predicted_us"] for row in table])
    if len(table) > 1:
        lab.add_claim(
            "k T0 + c G/B, from tiny all-reduces and one of the whole measured before, explains the sweep",
            expected=f"R2 above {STRAIGHT}",
            measured=f"{explained:.4f}",
            holds=explained > STRAIGHT,
        )
    for row in table:
        if row["buckets"] > 1:  # one bucket is the whole again
            lab.add_claim(
                f"{row['buckets']} buckets of {row['bucket_bytes']} B take what the law says",
                expected=f"{row['predicted_us']:.1f} us +- {BAND:.0%}",
                measured=f"{row['time_us']:.1f} us",
                holds=abs(row["time_us"] / row["predicted_us"] - 1) <= BAND,
            )


def _claim_stairs(lab: Lab, table: Sequence[dict[str, Any]], ring: Ring, *, bytes_us: float) -> None:
    """Of NICs that moderate: no line, but bounds."""
    lost_us = ring.steps * lab.fabric.hosts.moderation_ns / 1e3
    for row in table:
        latency_us = row["buckets"] * ring.smallest_ns / 1e3
        least_us, most_us = max(latency_us, bytes_us), latency_us + bytes_us + row["buckets"] * lost_us
        if row["buckets"] > 1:
            lab.add_claim(
                f"{row['buckets']} buckets of {row['bucket_bytes']} B, with NICs that moderate: between the larger of "
                "latency and bytes, and their sum with one more flush in every step",
                expected=f"{least_us:.1f} to {most_us:.1f} us +- {BAND:.0%}",
                measured=f"{row['time_us']:.1f} us",
                holds=(1 - BAND) * least_us <= row["time_us"] <= (1 + BAND) * most_us,
            )


def _claim_sizes(lab: Lab, shares: dict[int, float]) -> None:
    if DEFAULT_BYTES in shares:
        lab.add_claim(
            "torch's default of 25 MiB lies on the flat part",
            expected=f"at most {FLAT} of the time in one piece",
            measured=f"{shares[DEFAULT_BYTES]:.3f}",
            holds=shares[DEFAULT_BYTES] <= FLAT,
        )
    if SMALL_BYTES in shares:
        lab.add_claim(
            "buckets of 64 KiB do not",
            expected=f"at least {STEEP} of it",
            measured=f"{shares[SMALL_BYTES]:.3f}",
            holds=shares[SMALL_BYTES] >= STEEP,
        )


EXPERIMENT = Experiment(
    name="buckets",
    question="What does cutting a gradient into buckets cost, and how large must a bucket be for that not to matter?",
    settings=Settings,
    run=run,
    topology="star:hosts=8",
    host={"moderation": "off"},
)

if __name__ == "__main__":
    main(EXPERIMENT)
