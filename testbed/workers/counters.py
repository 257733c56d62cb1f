"""What a rank's own host has sent and received, read in its namespace: NIC counters and TCP's event counters.

A rank's view needs no privileges, costs two small reads and is exact for its host: the byte audit rests on it.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from testbed.port.config import PFC_FRAME_BYTES
from testbed.workers.mac_control import MacControlArrivals
from testbed.workers.polled import PolledArrivals

ETHERNET_HEADER_BYTES = 14
IPV4_HEADER_BYTES = 20
TCP_HEADER_BYTES = 20
TIMESTAMP_OPTION_BYTES = 12
"""With its padding; on Linux every segment after the SYN carries it unless timestamps are off."""


@dataclass(frozen=True, kw_only=True)
class HostCounters:
    """One reading, or the difference of two.  Sums over all NICs of the host, loopback excluded."""

    tx_bytes: int
    tx_packets: int
    rx_bytes: int
    rx_packets: int
    retransmitted_segments: int
    """TCP RetransSegs."""
    timeouts: int
    """TcpExt TCPTimeouts: retransmission timers that fired, whatever the state of the recovery."""
    loss_probes: int
    """TcpExt TCPLossProbes: tail loss probes (TLP), the sender's last hope before a timeout."""

    def __sub__(self, earlier: "HostCounters") -> "HostCounters":
        """What happened since `earlier`."""
        return HostCounters(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})

    def tx_payload_bytes(self, header_bytes: int) -> int:
        """TCP payload sent, retransmissions included: bytes less the headers of each packet, so that ACKs are 0."""
        return self.tx_bytes - header_bytes * self.tx_packets

    def rx_payload_bytes(self, header_bytes: int) -> int:
        """TCP payload received, duplicates included."""
        return self.rx_bytes - header_bytes * self.rx_packets


def header_bytes(*, timestamps: bool) -> int:
    """Of a TCP packet as an interface counts it: no preamble, FCS or gap.  SACK and SYN options come on top."""
    return ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES + TCP_HEADER_BYTES + (TIMESTAMP_OPTION_BYTES if timestamps else 0)


def read_header_bytes(*, sysctl: Path = Path("/proc/sys/net/ipv4/tcp_timestamps")) -> int:
    """`header_bytes` as the calling thread's network namespace is set."""
    return header_bytes(timestamps=sysctl.read_text().strip() != "0")


def parse_interfaces(text: str) -> dict[str, tuple[int, int, int, int]]:
    """/proc/net/dev -> name: (rx_bytes, rx_packets, tx_bytes, tx_packets)."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, values = line.partition(":")
        numbers = [int(value) for value in values.split()]
        found[name.strip()] = (numbers[0], numbers[1], numbers[8], numbers[9])
    return found


def parse_protocols(text: str) -> dict[str, dict[str, int]]:
    """/proc/net/snmp and /proc/net/netstat: pairs of lines, names then numbers -> protocol: {counter: value}."""
    lines = text.splitlines()
    found: dict[str, dict[str, int]] = {}
    for names, numbers in zip(lines[::2], lines[1::2], strict=True):
        protocol, _, columns = names.partition(":")
        values = numbers.partition(":")[2].split()
        found[protocol] = dict(zip(columns.split(), map(int, values), strict=True))
    return found


class HostReader:
    """Reads the counters of a host's NICs and TCP in the network namespace that the thread is in when this is made."""

    def __init__(self, interfaces: tuple[str, ...], *, proc_net: Path = Path("/proc/thread-self/net")) -> None:
        """`interfaces` are the NICs to add up."""
        self._proc_net = proc_net
        self._polled = {name: PolledArrivals(name) for name in interfaces}
        self._mac_control = MacControlArrivals(interfaces)

    def read(self) -> HostCounters:
        """All of them, now; arrivals with their Ethernet header, however a NIC took them in, without pause frames."""
        nics = parse_interfaces((self._proc_net / "dev").read_text())
        rx_bytes, rx_packets, tx_bytes, tx_packets = (sum(nics[name][i] for name in self._polled) for i in range(4))
        polled = sum(nic.read() for nic in self._polled.values())
        pauses = self._mac_control.read()
        protocols, extensions = (parse_protocols((self._proc_net / name).read_text()) for name in ("snmp", "netstat"))
        return HostCounters(
            tx_bytes=tx_bytes,
            tx_packets=tx_packets,
            rx_bytes=rx_bytes + ETHERNET_HEADER_BYTES * polled - PFC_FRAME_BYTES * pauses,
            rx_packets=rx_packets - pauses,
            retransmitted_segments=protocols["Tcp"]["RetransSegs"],
            timeouts=extensions["TcpExt"]["TCPTimeouts"],
            loss_probes=extensions["TcpExt"]["TCPLossProbes"],
        )
