"""ARP answers, against scapy's idea of ARP."""

from ipaddress import IPv4Address

import pytest
from scapy.layers.l2 import ARP, Ether

from controller.arp import answer, neighbours
from topologies.registry import parse_topology

KNOWN = neighbours(parse_topology("star:hosts=3"))
FIRST, SECOND = IPv4Address("10.0.1.1"), IPv4Address("10.0.1.2")


def mac(ip: IPv4Address) -> str:
    return KNOWN[ip].hex(":")


def request(target: str, *, sender: IPv4Address = FIRST, sender_ip: str | None = None, **fields: int) -> bytes:
    arp = ARP(op=1, hwsrc=mac(sender), psrc=sender_ip or str(sender), pdst=target, **fields)
    return bytes(Ether(src=mac(sender), dst="ff:ff:ff:ff:ff:ff") / arp)


def test_the_mac_of_a_host_is_told_to_who_asked() -> None:
    reply = Ether(answer(request(str(SECOND)), KNOWN))
    assert (reply.src, reply.dst, reply[ARP].op) == (mac(SECOND), mac(FIRST), 2)
    assert (reply[ARP].hwsrc, reply[ARP].psrc) == (mac(SECOND), str(SECOND))
    assert (reply[ARP].hwdst, reply[ARP].pdst) == (mac(FIRST), str(FIRST))


def test_padding_to_the_least_ethernet_frame_does_not_matter() -> None:
    assert answer(request(str(SECOND)) + bytes(18), KNOWN) == answer(request(str(SECOND)), KNOWN)


@pytest.mark.parametrize(
    ("case", "frame"),
    [
        ("an address nobody has", request("10.0.9.9")),
        ("its own address, announced", request(str(FIRST))),
        ("its own address, probed", request(str(FIRST), sender_ip="0.0.0.0")),
        ("a reply", bytes(Ether() / ARP(op=2, psrc=str(FIRST), pdst=str(SECOND)))),
        ("another protocol", request(str(SECOND), ptype=0x86DD)),
        ("a short frame", request(str(SECOND))[:41]),
    ],
)
def test_everything_else_is_met_with_silence(case: str, frame: bytes) -> None:
    assert answer(frame, KNOWN) is None, case
