"""Two TCP flows at once across a fabric, from ports that the asker chooses: do they share an uplink?

h1 === leaf1 ===+=== spine1 ===+=== leaf2 === h3      h1 -> h3 and h2 -> h4, both long, both from the same instant
h2 === leaf1 ===+=== spine2 ===+=== leaf2 === h4

./run two_flows.py --topology leaf_spine:leaves=2,hosts=2,spines=2 --seed 3
"""

import socket
import time
from typing import cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size
from testbed.workers.rank import Rank

PORT = 5001
BLOCK_BYTES = 1 << 18
Progress = list[tuple[int, int]]
"""(monotonic clock, bytes received so far) after each read."""


class Settings(BaseSettings):
    """What flows."""

    flow: Size = Field(default=400_000_000, ge=1_000_000, description="bytes of each flow")
    sport: int = Field(default=40001, description="source port of the first flow; the second has the next")


def flow(rank: Rank, size_bytes: int, sport: int) -> Progress:
    """Ranks 0 and 1 send to ranks 2 and 3; the receivers say when they had how much."""
    if rank.rank >= 2:
        with socket.create_server((rank.addresses[rank.rank], PORT)) as listener:
            rank.line_up("listening")
            connection, _ = listener.accept()
            with connection, rank.operation("receive", size_bytes):
                return receive(connection)
    rank.line_up("listening")
    with socket.socket() as connection, rank.operation("send", size_bytes):
        connection.bind((rank.addresses[rank.rank], sport + rank.rank))
        connection.connect((rank.addresses[rank.rank + 2], PORT))
        block = bytes(BLOCK_BYTES)
        for start in range(0, size_bytes, BLOCK_BYTES):
            connection.sendall(block[: size_bytes - start])
    return []


def receive(connection: socket.socket) -> Progress:
    """Until the sender closes."""
    buffer, received, progress = bytearray(BLOCK_BYTES), 0, []
    while count := connection.recv_into(buffer):
        received += count
        progress.append((time.monotonic_ns(), received))
    return progress


def at(progress: Progress, when_ns: float) -> float:
    """Bytes that had arrived by then, on straight lines between the reads."""
    before = max((entry for entry in progress if entry[0] <= when_ns), default=progress[0])
    after = min((entry for entry in progress if entry[0] > when_ns), default=progress[-1])
    if after[0] <= before[0]:
        return float(before[1])
    return before[1] + (after[1] - before[1]) * (when_ns - before[0]) / (after[0] - before[0])


def run(lab: Lab, settings: Settings) -> None:
    """Goodput of both while both flow, their first quarter (slow start) left out."""
    hosts = [host.name for host in lab.topology.hosts]
    found = cast("list[Progress]", lab.job(flow, settings.flow, settings.sport, hosts=hosts, process_group=False))[2:]
    end_ns = min(progress[-1][0] for progress in found)
    start_ns = max(progress[0][0] for progress in found)
    start_ns += (end_ns - start_ns) // 4
    goodputs = [(at(progress, end_ns) - at(progress, start_ns)) * 8 / (end_ns - start_ns) for progress in found]
    lab.add("goodput_gbps", [round(goodput, 3) for goodput in goodputs])


EXPERIMENT = Experiment(
    name="two_flows",
    question="Do two flows share an uplink?",
    settings=Settings,
    run=run,
    topology="leaf_spine:leaves=2,hosts=2,spines=2",
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
