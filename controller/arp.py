"""Answers ARP requests from what the topology says, so that nothing is ever flooded.

A request reaches the controller only (pipeline.Band.ARP).  Hosts with static entries never ask; those of a plain
Mininet run do.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address
from struct import Struct

from controller.pipeline import ARP_REQUEST, ETH_TYPE_ARP
from topologies.model import Topology

_ARP = Struct("!6s6sHHHBBH6s4s6s4s")
"""Ethernet destination, source, type; hardware and protocol type, their lengths, operation; sender, target: RFC 826."""
_ETHERNET = 1
_ARP_REPLY = 2
_IPV4 = 0x0800


def neighbours(topology: Topology) -> Mapping[IPv4Address, bytes]:
    """Address -> MAC of every host interface."""
    return {
        end.ip: bytes.fromhex(end.mac.replace(":", ""))
        for end in topology.host_interfaces()
        if end.ip is not None and end.mac is not None
    }


def answer(frame: bytes, known: Mapping[IPv4Address, bytes]) -> bytes | None:
    """The reply to an ARP request, or None for what is none, for an address nobody has, and for one's own address.

    Who asks for its own address wants to know whether somebody else has it (RFC 5227): silence is the good answer.
    """
    if len(frame) < _ARP.size:
        return None
    fields = _ARP.unpack_from(frame)
    ethertype, *kind = fields[2:8]
    sender_mac, _, _, target_ip = fields[8:]
    mac = known.get(IPv4Address(target_ip))
    if ethertype != ETH_TYPE_ARP or kind != [_ETHERNET, _IPV4, 6, 4, ARP_REQUEST] or mac in (None, sender_mac):
        return None
    sender_ip = fields[9]
    reply = (sender_mac, mac, ETH_TYPE_ARP, _ETHERNET, _IPV4, 6, 4, _ARP_REPLY, mac, target_ip, sender_mac, sender_ip)
    return _ARP.pack(*reply)
