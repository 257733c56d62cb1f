"""Buckets: a gradient of G bytes sent in k pieces, one after the other.  What does each piece cost on its own?

    G = 32 MB   [========================]                 1 bucket    T0 + c G/B
                [=====][=====][=====][=====]               4           4 T0 + c G/B
                [=][=][=][=][=][=][=][=][=] ...            k           k T0 + c G/B

T0 is what an all-reduce takes however small it is: 2 (P-1) steps round the ring, each a link's latency, a wake-up of
gloo's thread and of its peer.  c is 2 (P-1)/P, over what a large all-reduce reaches of the line rate.  Both are
measured first, then the sweep is predicted from them.

    ./run experiments/buckets.py
    ./run experiments/buckets.py --topology star:hosts=8,rate=400G --set buckets=64KiB,1MiB,25MiB

Expected: the prediction explains the sweep (R2 > 0.98); torch's default of 25 MiB lies on the flat part, 64 KiB does
not.  Around 1 MiB a bucket takes longer than predicted: gloo then cuts each rank's chunk into two segments in flight,
each with a message of its own that says "ready to receive", and too little data follows to hide those round trips.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, Sizes, written
from testbed.workers.rank import Rank

ELEMENT_BYTES = 4
TINY_BYTES = 1024
STRAIGHT = 0.98
"""R2 of time against k T0 + c G/B (facts.md, test 24)."""
FLAT, STEEP = 1.10, 1.25
"""Of the time in one piece: what the default bucket may take at most, and 64 KiB must take at least."""
DEFAULT_BYTES = 25 << 20
SMALL_BYTES = 64 << 10


class Settings(BaseSettings):
    """The gradient and the sizes of its pieces."""

    gradient: Size = Field(default=written("32MiB"), ge=1 << 16, description="bytes of the whole gradient")
    buckets: Sizes = Field(default=written("64KiB,256KiB,1MiB,4MiB,25MiB"), description="bytes per bucket")
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


def program(rank: Rank, gradient_bytes: int, bucket_bytes: int, repetitions: int) -> list[tuple[int, int]]:
    """(start, end) in ns of each pass over the whole gradient, bucket by bucket; the first pass is a warm-up."""
    import torch
    import torch.distributed as dist

    gradient = torch.ones(gradient_bytes // ELEMENT_BYTES)
    spans = []
    for _ in range(repetitions + 1):
        gradient.fill_(rank.rank + 1)
        rank.line_up("pass")
        with rank.operation("buckets", bucket_bytes) as span:
            for bucket in torch.split(gradient, bucket_bytes // ELEMENT_BYTES):
                dist.all_reduce(bucket)
        spans.append((span.start_ns, span.end_ns))
        expected = rank.size * (rank.size + 1) / 2
        if not bool((gradient == expected).all()):
            raise ValueError(f"a bucketed all-reduce gave wrong sums, expected {expected} everywhere")
    return spans[1:]


def run(lab: Lab, settings: Settings) -> None:
    """T0 and c first, then the sweep."""
    tiny_ns = _time_ns(lab, TINY_BYTES, TINY_BYTES, settings.repetitions + 2)
    whole_ns = _time_ns(lab, settings.gradient, settings.gradient, settings.repetitions)
    table = []
    for bucket_bytes in settings.buckets:
        count = -(-settings.gradient // bucket_bytes)
        time_ns = _time_ns(lab, settings.gradient, bucket_bytes, settings.repetitions)
        predicted_ns = whole_ns + (count - 1) * tiny_ns
        table.append(
            {
                "bucket_bytes": bucket_bytes,
                "buckets": count,
                "time_us": round(time_ns / 1e3, 3),
                "predicted_us": round(predicted_ns / 1e3, 3),
                "against_one_piece": round(time_ns / whole_ns, 4),
            }
        )
    line = Line.through([(float(row["buckets"]), float(row["time_us"])) for row in table])
    lab.add("buckets", table)
    lab.add(
        "cost",
        {
            "smallest_us": round(tiny_ns / 1e3, 3),
            "one_piece_us": round(whole_ns / 1e3, 3),
            "fitted_us_per_bucket": round(line.slope, 3),
            "fitted_us_of_the_bytes": round(line.offset, 3),
            "straightness_R2": round(line.straightness, 5),
        },
    )
    _claim(lab, table, line)


def _time_ns(lab: Lab, gradient_bytes: int, bucket_bytes: int, repetitions: int) -> float:
    found = cast("list[list[tuple[int, int]]]", lab.job(program, gradient_bytes, bucket_bytes, repetitions))
    times = [max(end for _, end in spans) - min(start for start, _ in spans) for spans in zip(*found, strict=True)]
    lab.add_busy_ns(sum(times))
    return float(mean(times))


def _claim(lab: Lab, table: Sequence[dict[str, float]], line: Line) -> None:
    explained = straightness([row["time_us"] for row in table], [row["predicted_us"] for row in table])
    lab.add_claim(
        "k T0 + c G/B, from a tiny and a whole all-reduce measured before, explains the sweep",
        expected=f"R2 above {STRAIGHT}",
        measured=f"{explained:.4f}; fitted to the sweep itself {line.straightness:.4f}",
        holds=explained > STRAIGHT,
    )
    shares = {row["bucket_bytes"]: row["against_one_piece"] for row in table}
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
)

if __name__ == "__main__":
    main(EXPERIMENT)
