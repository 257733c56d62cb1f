"""Ring all-reduce: how much of the line rate do the ranks of a training job get on this fabric?

      r0 <--- r1 <--- r2 <--- ... <--- rN-1        each rank sends 2(N-1)/N of the array to one neighbour:
       |                                ^          N flows, one per host, all of them long and in lock-step
       +--------------------------------+

Data-parallel training ends every step with this operation.  It is the low-entropy case that the field fights with:
a handful of flows, each able to fill a link, so that two of them hashed to one uplink halve the speed of all.

    ./run experiments/all_reduce.py --topology leaf_spine:leaves=4,hosts=4,spines=4 --set sizes=16M --set iterations=4

Expected: busbw near the line rate less headers when every flow has a link to itself, the same for any number of
ranks; line rate / n where n flows share a link.  `paths` in results.json says which flow took which uplink.
"""

from collections.abc import Sequence

from pydantic import Field

from experiments.bounds import line_rate_bps
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.placement import MEANING, place
from experiments.results import Row
from experiments.settings import Settings as BaseSettings
from experiments.settings import Sizes, written
from experiments.workloads.collectives import measure, steps_of


class Settings(BaseSettings):
    """What to reduce, how often, over how many connections."""

    sizes: Sizes = Field(
        default=written("1M,16M,64M"), description="bytes of the array, comma separated: 16M is 16e6, 16Mi is 16 x 2^20"
    )
    iterations: int = Field(default=2, ge=1, description="measured iterations of each size")
    warmup: int = Field(default=1, ge=0, description="iterations before them: TCP's slow start belongs here")
    connections: int = Field(
        default=1, ge=1, le=64, description="TCP connections per pair of ranks; successive all-reduces rotate over them"
    )
    placement: str = Field(default="contiguous", description=MEANING)


def run(lab: Lab, settings: Settings) -> None:
    """One job, one row per size and iteration."""
    hosts = place(lab.topology, settings.placement, seed=lab.seed)
    measured = measure(
        lab,
        steps_of(["all_reduce"], settings.sizes, len(hosts)),
        iterations_each=settings.iterations,
        warmup=settings.warmup,
        hosts=hosts,
        connections=settings.connections,
    )
    lab.add_rows(measured.rows)
    lab.add_busy_ns(measured.busy_ns)
    lab.add("audit", measured.audit)
    share = best_share(measured.rows, line_rate_bps(lab.topology))
    lab.add_claim(
        "the largest ring all-reduce is limited by the hosts' links, not by collisions inside the fabric",
        expected=f"busbw at least {FAIR_SHARE} of the line rate",
        measured=f"{share:.3f}",
        holds=share >= FAIR_SHARE,
    )


FAIR_SHARE = 0.95
"""Of the line rate, at the largest size: headers take 0.007, the lock-step of the ring the rest."""


def best_share(rows: Sequence[Row], rate_bps: int) -> float:
    """The best iteration at the largest size, as a share of the line rate."""
    largest = max(row.bytes for row in rows)
    return max(row.busbw_GBps for row in rows if row.bytes == largest) * 8e9 / rate_bps


EXPERIMENT = Experiment(
    name="all_reduce",
    question="How much of the line rate does a ring all-reduce get on this fabric?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
