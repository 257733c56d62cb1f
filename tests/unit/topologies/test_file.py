"""Fabric files: the shipped examples, the short forms, and every mistake in the user's words."""

from pathlib import Path

import pytest

from topologies.errors import UserError
from topologies.file import read_file, read_text
from topologies.graph import leaf_of, path_count
from topologies.model import Topology
from topologies.registry import parse_topology

EXAMPLES = sorted(Path("topologies").glob("*.yaml"))


def fabric(text: str) -> Topology:
    return read_text(text, where="fabric.yaml", name="fabric")


def complaint(text: str) -> str:
    with pytest.raises(UserError) as caught:
        fabric(text)
    return str(caught.value)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_drawn_named_and_whole(path: Path) -> None:
    topology = read_file(path)
    assert topology.name == path.stem
    assert path.read_text(encoding="utf-8").startswith("# ")
    nics = list(topology.host_interfaces())
    for one in nics:
        for other in nics:
            a, b = leaf_of(topology, one.name).name, leaf_of(topology, other.name).name
            assert path_count(topology, a, b) >= 1


def test_short_forms_mean_the_long_ones() -> None:
    short = fabric("{hosts: [h1, h2], switches: [s1], links: [[h1, s1], [h2, 's1:4']]}")
    long = fabric(
        """
        name: fabric
        mtu: 9000
        rate: 100G
        delay: 1us
        buffer: auto
        hosts: [{name: h1}, {name: h2, addresses: [10.0.1.2]}]
        switches: [{name: s1, tier: switch, pod: 0, dpid: 1}]
        links:
          - {ends: ["h1:0", "s1:1"], rate: 100G, delay: 1us, buffer: 500kB, cables: 1}
          - {ends: ["h2:0", "s1:4"]}
        """
    )
    assert short == long


def test_automatic_ports_and_addresses_go_around_the_given_ones() -> None:
    topology = fabric(
        """
        hosts: [h1, h2, {name: h3, addresses: [10.2.1.2]}]
        switches: [{name: s1, pod: 2, dpid: 2}, s2]
        links: [[h1, s1], [h2, s1], [h3, "s1:2"], {ends: [s1, s2], cables: 2}]
        """
    )
    assert [link.b.name for link in topology.links[:3]] == ["s1-eth1", "s1-eth3", "s1-eth2"]
    assert [str(nic.ip) for nic in topology.host_interfaces()] == ["10.2.1.1", "10.2.1.3", "10.2.1.2"]
    assert [switch.dpid for switch in topology.switches] == [2, 1]
    assert [link.name for link in topology.links[3:]] == ["s1-s2", "s1-s2.2"]
    assert [(host.pod, host.rack) for host in topology.hosts] == [(2, 1)] * 3


def test_settings_replace_the_top_of_the_file_but_not_what_a_link_says() -> None:
    topology = parse_topology("topologies/two_rates.yaml:rate=25G,delay=3us,mtu=1500,buffer=1MB")
    assert topology.mtu == 1500
    assert {link.rate_bps // 10**9 for link in topology.links} == {400, 25}
    assert {(link.delay_ns, link.buffer_bytes) for link in topology.links} == {(3000, 10**6)}
    assert topology.parameters == {"rate": "25G", "delay": "3us", "mtu": "1500", "buffer": "1MB"}


def test_every_mistake_of_form_is_named_at_once() -> None:
    text = """
mtu: 99
hosts: [h1, {name: h2, address: [10.0.0.1]}, {name: h3, addresses: [1.2.3.4]}]
switches: [s1, {tier: leaf}]
links: [[h1, s1], [h1, s1], [h1, s1], {ends: ["h2:x", s1], rate: 100X}, {ends: [h3], delay: 5}]
speed: fast
"""
    assert complaint(text).splitlines() == [
        "fabric.yaml: mtu: Input should be greater than or equal to 576",
        "fabric.yaml: hosts[1].address: unknown key; known: name, addresses",
        "fabric.yaml: hosts[2].addresses[0]: 1.2.3.4 is not in 10.0.0.0/8",
        "fabric.yaml: switches[1].name: is missing",
        "fabric.yaml: links[3].ends[0]: 'h2:x' is not NODE or NODE:PORT",
        "fabric.yaml: links[3].rate: '100X' is not a rate; write a number and a unit, "
        "for instance 100G, 25Gbit or 400Gb/s",
        "fabric.yaml: links[4].ends[1]: is missing",
        "fabric.yaml: links[4].delay: '5' is not a delay; write a number and a unit, for instance 1us, 500ns or 0.1ms",
        "fabric.yaml: speed: unknown key; known: name, mtu, rate, delay, buffer, hosts, switches, links",
    ]


def test_every_mistake_of_sense_is_named_at_once() -> None:
    text = """
hosts: [h1, h2, {name: h3, addresses: [10.1.1.1, 10.1.1.2]}, h4]
switches: [s1]
links: [[h1, "s1:0"], [h2, "s1:4"], [h3, "s1:4"], [h1, h2], [h1, s9], {ends: [h1, "s1:7"], cables: 2}]
"""
    assert complaint(text).splitlines() == [
        "fabric.yaml: hosts[2].addresses: 2 given, h3 has 1 NICs",
        "fabric.yaml: hosts[3]: h4 is not in any link",
        "fabric.yaml: links[0].ends[1]: a switch's ports are numbered from 1",
        "fabric.yaml: links[2].ends[1]: port 4 of s1 is taken by links[1].ends[1]",
        "fabric.yaml: links[3].ends: both are hosts; a link needs a switch at one end at least",
        "fabric.yaml: links[4].ends[1]: node 's9' does not exist; declare it under hosts or switches",
        "fabric.yaml: links[5].ends[1]: parallel cables cannot all be at port 7; leave the port out",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hosts: [h1]\nhosts: [h2]\n", "key 'hosts' is given twice"),
        ("- h1", "a fabric is a mapping"),
        ("", "a fabric is a mapping"),
        ("hosts: [h1", "not YAML"),
        ("{hosts: [], switches: [s1], links: [[h1, s1]]}", "hosts: Tuple should have at least 1 item"),
        ("{hosts: [h1], switches: [s1, {name: s2, dpid: 0}], links: [[h1, s1]]}", "switches[1].dpid: Input should be"),
        ("{hosts: [h1], switches: [a_rather_long_name], links: [[h1, a_rather_long_name]]}", "Linux allows 15"),
        ("{hosts: [h1, h1], switches: [s1], links: [[h1, s1]]}", "two nodes are called 'h1'"),
        ("{hosts: [h1], switches: [s1, s1], links: [[h1, s1]]}", "two nodes are called 's1'"),
        (
            "{hosts: [h1], switches: [{name: s1, dpid: 3}, {name: s2, dpid: 3}], links: [[h1, s1]]}",
            "switches s1 and s2 share dpid 3",
        ),
    ],
)
def test_other_mistakes(text: str, expected: str) -> None:
    found = complaint(text)
    assert found.startswith("fabric.yaml: ")
    assert expected in found


def test_names_must_differ_even_between_hosts_and_switches() -> None:
    assert "called 's1'" in complaint("{hosts: [h1, s1], switches: [s1, s2], links: [[h1, s2], [s1, s2]]}")
