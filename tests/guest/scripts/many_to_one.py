"""All hosts but the first send to the first at once, once with the run's congestion control and once with another.

h2 ---\
h3 ----[s1]---> h1     job 1, a pause of `idle`, job 2 with `cc2`; after each, what the ports have counted
h4 ---/

./run many_to_one.py --topology star:hosts=9 --policy dctcp
"""

import socket
import time

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Delay, Size, written
from experiments.settings import Settings as BaseSettings
from testbed.workers.rank import Rank

PORT = 5001


class Settings(BaseSettings):
    """How much, and what runs the second time."""

    block: Size = Field(default=written("1M"), description="bytes from each sender")
    idle: Delay = Field(default=written("10ms"), description="between the two jobs")
    cc2: str = Field(default="reno", description="congestion control of the second job")


def program(rank: Rank, size_bytes: int) -> int:
    """Rank 0 receives; the bytes that it got."""
    if rank.rank:
        rank.line_up("listening")
        with socket.create_connection((rank.addresses[0], PORT)) as connection:
            rank.line_up("connected")
            with rank.operation("send", size_bytes):
                connection.sendall(bytes(size_bytes))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
        return size_bytes
    with socket.create_server((rank.addresses[0], PORT), backlog=rank.size) as listener:
        rank.line_up("listening")
        connections = [listener.accept()[0] for _ in range(rank.size - 1)]
        rank.line_up("connected")
        with rank.operation("receive", size_bytes * len(connections)):
            received = sum(drain(connection) for connection in connections)
        for connection in connections:
            connection.close()
    return received


def drain(connection: socket.socket) -> int:
    """Bytes until the sender has no more."""
    received, buffer = 0, bytearray(1 << 18)
    while count := connection.recv_into(buffer):
        received += count
    return received


def run(lab: Lab, settings: Settings) -> None:
    """Two jobs, and what is left behind."""
    counted = []
    for cc in (None, settings.cc2):
        received = lab.job(program, settings.block, process_group=False, cc=cc)[0]
        ports = {name: counters.port for name, counters in lab.sample().items()}
        counted.append(
            {
                "received": received,
                "marks": sum(port.marked_packets for port in ports.values()),
                "drops": sum(port.dropped_packets for port in ports.values()),
                "pauses_sent": sum(port.pauses_sent for port in ports.values()),
            }
        )
        time.sleep(settings.idle / 1e9)
    lab.add("counted", counted)
    lab.add("tcp_metrics", [host.cmd("ip tcp_metrics show").strip() for host in lab.fabric.net.hosts])
    lab.fabric.verify()
    lab.add("ports_in_force", lab.fabric.in_force()["ports"])


EXPERIMENT = Experiment(
    name="many_to_one",
    question="What do ports do when many send to one?",
    settings=Settings,
    run=run,
    topology="star:hosts=9",
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
