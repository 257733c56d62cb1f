"""How fast does this machine emulate?

    16 ranks, ring all-reduce:   job A, few iterations    |---hops A---|            wall A
                                 job B, more iterations   |------hops B-------|     wall B

    packet-hops per second = (hops B - hops A) / (wall B - wall A)

A packet-hop is one packet, data or ACK, crossing one link.  Starting ranks and connecting them costs both jobs the
same, so the difference leaves the cost of moving packets.  Wall time is read on the machine, not in the guest.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from experiments.console import Console
from experiments.experiment import Experiment, execute, main
from experiments.lab import Lab
from experiments.request import Request, named_script
from experiments.run_folder import read_json
from experiments.settings import Settings, Size
from testbed.workers.rank import Rank


class BenchSettings(Settings):
    """What the two jobs move."""

    size: Size = Field(default=16_000_000, description="bytes of each all-reduce")
    short: int = Field(default=1, ge=1, description="iterations of job A")
    long: int = Field(default=5, ge=2, description="iterations of job B")


def traffic(rank: Rank, size_bytes: int, iterations: int) -> None:
    """All-reduces of zeros and nothing else: filling and checking arrays is not what is measured here."""
    import torch
    import torch.distributed as dist

    array = torch.zeros(size_bytes // 4)
    for _ in range(iterations):
        with rank.operation("all_reduce", size_bytes):
            dist.all_reduce(array)


def run(lab: Lab, settings: BenchSettings) -> None:
    """Runs both jobs between marks, and writes down how many packets crossed how many links."""
    lab.job(traffic, settings.size, 1)  # loads torch and warms every cache: neither job's business
    hops = {}
    for job, iterations in (("short", settings.short), ("long", settings.long)):
        before = lab.packet_hops()
        lab.mark(f"{job}-begins")
        lab.job(traffic, settings.size, iterations)
        lab.mark(f"{job}-ends")
        hops[job] = lab.packet_hops() - before
    lab.add("packet_hops", hops)


EXPERIMENT = Experiment(
    name="bench",
    question="How many packet-hops a second of wall time does this machine emulate?  (./run bench)",
    settings=BenchSettings,
    run=run,
)


def measure(console: Console, *, out: Path | None) -> Iterator[str]:
    """Runs the benchmark; lines for people."""
    request = Request(
        experiment=EXPERIMENT.name,
        script=named_script(Path(__file__)),
        topology=EXPERIMENT.topology,
        policy=EXPERIMENT.policy,
    )
    folder = execute(EXPERIMENT, request, out=out)
    hops = read_json(folder.results)["packet_hops"]
    at = read_json(folder.wall)["marks_s"]
    wall_s = (at["long-ends"] - at["long-begins"]) - (at["short-ends"] - at["short-begins"])
    moved = hops["long"] - hops["short"]
    yield f"{moved} packet-hops in {wall_s:.2f} s of wall time: {moved / wall_s:,.0f} packet-hops per second"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(EXPERIMENT)
    else:
        with Console() as terminal:
            for line in measure(terminal, out=None):
                terminal.say(line)
