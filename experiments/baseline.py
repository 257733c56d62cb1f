"""Is the testbed itself exact?  The two things every later figure rests on, held against arithmetic.

    h1 --- leaf1 --- h2                     2 links     RTT over n links = 2 n (delay + frame / rate)
    h1 --- leaf1 === spine === leaf4 --- h16   4 links

    h1 ===============================> h16  one TCP flow: goodput = rate x payload share of a frame

Echoes are small datagrams between idle hosts; the flow is one connection that never pauses, timed by its receiver once
slow start is over.  Interrupt moderation is off here: it is a delay, and this asks for the delay of the links alone.

    ./run experiments/baseline.py
    ./run experiments/baseline.py --topology leaf_spine:rate=400G
"""

import socket
import time
from dataclasses import asdict, dataclass
from typing import cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size
from testbed.workers.rank import Rank
from topologies.graph import distance, leaf_of
from topologies.model import Topology

PORT = 5001
ECHO_BYTES = 64
UDP_HEADERS_BYTES = 14 + 20 + 8
TCP_HEADERS_BYTES = 14 + 20 + 20 + 12
"""Ethernet, IPv4, TCP and its timestamps: what a full frame carries beside payload."""
CHUNK_BYTES = 1 << 20


class Settings(BaseSettings):
    """How long to look."""

    echoes: int = Field(default=10, ge=1, description="datagrams there and back, per path length")
    flow: Size = Field(
        default=1_000_000_000, ge=10_000_000, description="bytes of the TCP flow; 0.4 of them are slow start's"
    )


@dataclass(frozen=True, kw_only=True)
class Echo:
    """Round trips between two hosts."""

    source: str
    destination: str
    links: int
    rtt_us: float
    """The median."""
    expected_us: float


@dataclass(frozen=True, kw_only=True)
class Flow:
    """One TCP flow, seen by its receiver after slow start."""

    source: str
    destination: str
    goodput_gbps: float
    expected_gbps: float
    """Payload share of the line rate."""


def echo(rank: Rank, count: int) -> list[int]:
    """Rank 0 sends datagrams to rank 1, which returns them; round trips in ns at rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind((rank.addresses[rank.rank], PORT))
        rank.line_up("echo")
        if rank.rank == 1:
            for _ in range(count):
                end.sendto(*end.recvfrom(ECHO_BYTES))
            return []
        trips = []
        for _ in range(count):
            with rank.operation("echo", ECHO_BYTES) as span:
                end.sendto(bytes(ECHO_BYTES), (rank.addresses[1], PORT))
                end.recvfrom(ECHO_BYTES)
            trips.append(span.duration_ns)
        return trips


def flow(rank: Rank, size_bytes: int) -> float:
    """Rank 0 sends to rank 1; goodput in bit/s at rank 1 once 0.4 of the bytes are in."""
    if rank.rank == 1:
        with socket.create_server((rank.addresses[1], PORT)) as listener:
            rank.line_up("listening")
            connection, _ = listener.accept()
            with connection:
                rank.line_up("connected")
                return _receive(rank, connection, size_bytes)
    rank.line_up("listening")
    with socket.create_connection((rank.addresses[1], PORT)) as connection:
        rank.line_up("connected")
        with rank.operation("send", size_bytes):
            block = bytes(CHUNK_BYTES)
            for start in range(0, size_bytes, CHUNK_BYTES):
                connection.sendall(block[: size_bytes - start])
    return 0.0


def _receive(rank: Rank, connection: socket.socket, size_bytes: int) -> float:
    buffer = bytearray(CHUNK_BYTES)
    received, warm_bytes, warm_ns = 0, 0, 0
    with rank.operation("receive", size_bytes):
        while count := connection.recv_into(buffer):
            received += count
            if not warm_ns and received >= 0.4 * size_bytes:
                warm_bytes, warm_ns = received, time.monotonic_ns()
        return (received - warm_bytes) * 8e9 / (time.monotonic_ns() - warm_ns)


def run(lab: Lab, settings: Settings) -> None:
    """Echoes to the nearest and to the farthest host, one flow to the farthest."""
    topology = lab.topology
    source = topology.hosts[0].name
    near, far = topology.hosts[1].name, topology.hosts[-1].name
    link = topology.link_of[topology.interfaces_of[source][0].name]
    echoes = [_echo(lab, source, other, settings.echoes) for other in (near, far)]
    goodput = cast("list[float]", lab.job(flow, settings.flow, hosts=[source, far], process_group=False))[1]
    frame = topology.mtu + 14
    best = link.rate_bps * (frame - TCP_HEADERS_BYTES) / frame
    found = Flow(
        source=source,
        destination=far,
        goodput_gbps=round(goodput / 1e9, 3),
        expected_gbps=round(best / 1e9, 3),
    )
    lab.add("echoes", [asdict(each) for each in echoes])
    lab.add("flow", asdict(found))
    for each in echoes:
        lab.add_claim(
            f"the round trip {each.source} - {each.destination} over {each.links} links is that of the links",
            expected=f"{each.expected_us:.3f} us +- 2%",
            measured=f"{each.rtt_us:.3f} us",
            holds=abs(each.rtt_us / each.expected_us - 1) <= 0.02,
        )
    lab.add_claim(
        f"one TCP flow {source} - {far} fills its links",
        expected=f"at least 0.97 of {found.expected_gbps} Gb/s, the payload share",
        measured=f"{found.goodput_gbps} Gb/s = {goodput / best:.4f}",
        holds=goodput >= 0.97 * best,
    )


def _echo(lab: Lab, source: str, destination: str, count: int) -> Echo:
    found = lab.job(echo, count, hosts=[source, destination], process_group=False)
    trips = sorted(cast("list[list[int]]", found)[0])
    return Echo(
        source=source,
        destination=destination,
        links=links_between(lab.topology, source, destination),
        rtt_us=trips[len(trips) // 2] / 1e3,
        expected_us=expected_rtt_ns(lab.topology, source, destination) / 1e3,
    )


def links_between(topology: Topology, source: str, destination: str) -> int:
    """How many links a packet crosses from host to host."""
    ends = [leaf_of(topology, topology.interfaces_of[host][0].name).name for host in (source, destination)]
    return 2 + distance(topology, ends[0], ends[1])


def expected_rtt_ns(topology: Topology, source: str, destination: str) -> float:
    """n x 2 x (delay + serialisation) where all links of the path are alike, as in the generated fabrics."""
    link = topology.link_of[topology.interfaces_of[source][0].name]
    serialisation_ns = (ECHO_BYTES + UDP_HEADERS_BYTES) * 8e9 / link.rate_bps
    return 2 * links_between(topology, source, destination) * (link.delay_ns + serialisation_ns)


EXPERIMENT = Experiment(
    name="baseline",
    question="Is the testbed itself exact: round trips and the goodput of one flow against arithmetic?",
    settings=Settings,
    run=run,
    needs_torch=False,
    host={"moderation": "off"},
)

if __name__ == "__main__":
    main(EXPERIMENT)
