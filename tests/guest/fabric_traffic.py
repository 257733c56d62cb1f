"""Traffic for the fabric's tests: datagrams and TCP streams between hosts, all from one process in the guest."""

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.fabric import Fabric

SOL_UDP_FORCE_RECEIVE, SOL_UDP_FORCE_SEND = 33, 32
QUIET_S = 0.3
TCP_INFO, TCP_CONGESTION = 11, 13


def datagram_socket(fabric: Fabric, host: str, *, address: str | None = None, port: int = 5000) -> socket.socket:
    """Bound in the host's namespace, with room for a burst."""
    node = fabric.net.get(host)
    with node.entered():
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, SOL_UDP_FORCE_RECEIVE, 64 << 20)
    one.setsockopt(socket.SOL_SOCKET, SOL_UDP_FORCE_SEND, 64 << 20)
    one.bind((address or node.IP(), port))
    one.settimeout(QUIET_S)
    return one


@contextlib.contextmanager
def datagram_pair(fabric: Fabric, one: str, other: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets whose switch has learnt both ways."""
    with datagram_socket(fabric, one) as a, datagram_socket(fabric, other) as b:
        b.sendto(b"x", a.getsockname())
        a.recv(10)
        a.sendto(b"x", b.getsockname())
        b.recv(10)
        yield a, b


def burst(sender: socket.socket, receiver: socket.socket, *, count: int, payload: int) -> int:
    """Sends `count` datagrams at once; how many arrived."""
    target = receiver.getsockname()
    for number in range(count):
        sender.sendto(struct.pack("=I", number).ljust(payload, b"p"), target)
    return drain(receiver)


def paced(sender: socket.socket, receiver: socket.socket, *, count: int, payload: int, gap_ns: int) -> int:
    """One datagram every `gap_ns`; how many arrived."""
    target, start = receiver.getsockname(), time.monotonic_ns()
    for number in range(count):
        wait = start + number * gap_ns - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        sender.sendto(b"p" * payload, target)
    return drain(receiver)


def drain(receiver: socket.socket) -> int:
    """How many datagrams are there, until none comes for a while."""
    found = 0
    with contextlib.suppress(TimeoutError):
        while receiver.recv(65535):
            found += 1
    return found


def tcp_connects(fabric: Fabric, *, port: int = 7000) -> dict[str, int]:
    """A TCP connection between all ordered pairs of hosts: attempts, failures, checksum errors."""
    listeners = {}
    for node in fabric.net.hosts:
        with node.entered():
            listeners[node.name] = socket.create_server((node.IP(), port), backlog=128)
    attempts = failures = 0
    for source in fabric.net.hosts:
        for target in fabric.net.hosts:
            if source is target:
                continue
            attempts += 1
            with source.entered():
                client = socket.socket()
            client.settimeout(2)
            try:
                client.connect((target.IP(), port))
                served, _ = listeners[target.name].accept()
                served.settimeout(2)
                client.sendall(b"a" * 3000)
                served.recv(3000)
                served.close()
            except OSError:
                failures += 1
            client.close()
    for listener in listeners.values():
        listener.close()
    return {"attempts": attempts, "failures": failures, "checksum_errors": sum(map(checksum_errors, fabric.net.hosts))}


def checksum_errors(node: object) -> int:
    """InCsumErrors of a host's TCP."""
    with node.entered():  # type: ignore[attr-defined]
        names, values = [
            line.split()[1:]
            for line in Path("/proc/thread-self/net/snmp").read_text().splitlines()
            if line.startswith("Tcp:")
        ]
    return int(dict(zip(names, values, strict=True))["InCsumErrors"])


def tcp_stream(
    fabric: Fabric, source: str, target: str, *, seconds: float, skip: float, port: int = 7001
) -> dict[str, object]:
    """One stream for `seconds`: goodput after the first `skip`, and what limited the sender (struct tcp_info)."""
    sender, receiver = fabric.net.get(source), fabric.net.get(target)
    with receiver.entered():
        listener = socket.create_server((receiver.IP(), port))
    answer, told = os.pipe()
    child = os.fork()
    if child == 0:
        _receive(listener, skip, told)
    listener.close()
    os.close(told)
    with sender.entered():
        client = socket.create_connection((receiver.IP(), port))
    chunk, start = b"\0" * (1 << 18), time.monotonic()
    while time.monotonic() - start < seconds:
        client.send(chunk)
    information = client.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 232)
    congestion = client.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).rstrip(b"\0").decode()
    busy, rwnd_limited, sndbuf_limited = struct.unpack_from("=QQQ", information, 168)
    client.close()
    with os.fdopen(answer) as stream:
        goodput = json.load(stream)
    os.waitpid(child, 0)
    return {
        "goodput_bps": goodput,
        "busy_us": busy,
        "rwnd_limited_us": rwnd_limited,
        "sndbuf_limited_us": sndbuf_limited,
        "retransmissions": struct.unpack_from("=I", information, 100)[0],
        "congestion": congestion,
    }


def _receive(listener: socket.socket, skip: float, told: int) -> None:
    served, _ = listener.accept()
    start, counted, first, last = time.monotonic(), 0, 0.0, 0.0
    room = bytearray(1 << 20)  # one for all: a fresh megabyte per read costs the guest more than the packets
    while length := served.recv_into(room):
        last = time.monotonic()
        if last - start >= skip:
            counted, first = (counted + length, first) if first else (0, last)
    os.write(told, json.dumps(counted * 8 / (last - first)).encode())
    os._exit(0)
