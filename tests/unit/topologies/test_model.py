"""A Topology that exists can be built: everything else is refused by name, before any interface is created."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from topologies.errors import UserError
from topologies.model import Host, Interface, Link, Switch, Topology

H1 = Host(name="h1")
H2 = Host(name="h2")
S1 = Switch(name="s1", dpid=1, tier="leaf")
H1_END = Interface(node="h1", port=0, name="h1-eth0", ip=IPv4Address("10.0.1.1"), mac="02:00:0a:00:01:01")
H2_END = Interface(node="h2", port=0, name="h2-eth0", ip=IPv4Address("10.0.1.2"), mac="02:00:0a:00:01:02")
S1_END1 = Interface(node="s1", port=1, name="s1-eth1")
S1_END2 = Interface(node="s1", port=2, name="s1-eth2")
CABLE = Link(a=H1_END, b=S1_END1, rate_bps=10**11, delay_ns=1000, buffer_bytes=500_000)
CABLE2 = replace(CABLE, a=H2_END, b=S1_END2)
TWO = Topology(name="two", hosts=(H1, H2), switches=(S1,), links=(CABLE, CABLE2))


def test_indexes_agree_with_the_links() -> None:
    assert TWO.peer_of["h1-eth0"] == S1_END1
    assert TWO.peer_of["s1-eth2"] == H2_END
    assert TWO.interfaces_of["s1"] == (S1_END1, S1_END2)
    assert TWO.link_of["s1-eth2"] is CABLE2
    assert TWO.link_named["h2-s1"] is CABLE2
    assert [end.name for end in TWO.host_interfaces()] == ["h1-eth0", "h2-eth0"]
    assert TWO.nodes == (H1, H2, S1)


def test_equal_fabrics_are_equal_and_hash_alike() -> None:
    again = replace(TWO, parameters={})
    assert again == TWO
    assert hash(again) == hash(TWO)
    assert replace(TWO, parameters={"hosts": "2"}) != TWO


def test_parallel_cables_have_names_of_their_own() -> None:
    assert replace(CABLE, number=2).name == "h1-s1.2"


SECOND = Switch(name="s2", dpid=1, tier="leaf")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hosts": (H1, H2, Host(name="s1"))}, "two nodes are called 's1'"),
        ({"hosts": (H1, H2, Host(name="h 3"))}, "'h 3' cannot name a node"),
        ({"hosts": (H1, H2, Host(name="h-3"))}, "'h-3' cannot name a node"),
        ({"switches": (S1, SECOND)}, "switches s1 and s2 share dpid 1"),
        ({"switches": (replace(S1, dpid=0),)}, "s1: dpid 0 is not in"),
        ({"switches": (replace(S1, dpid=2**48),)}, f"s1: dpid {2**48} is not in"),
        ({"hosts": (H1,)}, "node 'h2' does not exist"),
        ({"links": (replace(CABLE, b=replace(S1_END1, name="s1-eth0000000001")),)}, "16 characters, Linux allows 15"),
        ({"links": (CABLE, replace(CABLE2, b=S1_END1))}, "interface s1-eth1: name s1-eth1 is used twice"),
        ({"links": (CABLE, replace(CABLE2, b=replace(S1_END2, port=1)))}, "s1-eth2: port ('s1', 1) is used twice"),
        ({"links": (CABLE, replace(CABLE2, a=replace(H2_END, ip=H1_END.ip)))}, "ip 10.0.1.1 is used twice"),
        ({"links": (CABLE, replace(CABLE2, a=replace(H2_END, mac=H1_END.mac)))}, "02:00:0a:00:01:01 is used twice"),
        ({"links": (CABLE, replace(CABLE2, a=replace(H2_END, ip=None)))}, "hosts' interfaces have an address"),
        ({"links": (CABLE, replace(CABLE2, b=replace(S1_END2, ip=H2_END.ip)))}, "switches' have neither"),
        ({"links": (replace(CABLE, a=S1_END2),)}, "both ends are on s1"),
        ({"links": (replace(CABLE, rate_bps=0),)}, "link h1-s1: rate must be above 0"),
        ({"links": (replace(CABLE, delay_ns=-1),)}, "link h1-s1: delay must not be negative"),
        ({"links": (replace(CABLE, buffer_bytes=9013),)}, "cannot hold one frame of 9014 B"),
        ({"mtu": 575}, "mtu 575 is not in"),
        ({"mtu": 65522}, "mtu 65522 is not in"),
    ],
)
def test_refusals_name_the_topology_and_the_culprit(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        replace(TWO, **change)  # type: ignore[arg-type]
    assert str(caught.value).startswith("topology two: ")
    assert complaint in str(caught.value)


def test_two_links_of_one_name_are_refused() -> None:
    second = replace(
        CABLE,
        a=replace(H1_END, port=1, name="h1-eth1", ip=IPv4Address("10.0.1.9"), mac="02:00:0a:00:01:09"),
        b=replace(S1_END2, port=3, name="s1-eth3"),
    )
    with pytest.raises(UserError, match="two links have this name"):
        replace(TWO, links=(CABLE, CABLE2, second))
    assert len(replace(TWO, links=(CABLE, CABLE2, replace(second, number=2))).links) == 3
