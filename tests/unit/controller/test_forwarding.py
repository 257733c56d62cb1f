"""The rules of whole fabrics, played on switches in memory: every pair, every mark, the path that was predicted."""

from ipaddress import IPv4Address
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fake_switch import FakeFabric, FakeSwitch, Packet
from controller.forwarding import plan
from controller.path_marks import encode, path, widths
from controller.pipeline import ETH_TYPE_ARP, Band, Drop, Match, Rule, Table, ToController
from topologies.errors import UserError
from topologies.graph import distances, leaf_of, leaves, switch_cables
from topologies.model import Host, Interface, Link, Switch, Topology
from topologies.registry import parse_topology

FABRICS = ("star", "dumbbell", "leaf_spine", "leaf_spine:leaves=3,spines=5,hosts=2", "fat_tree:k=4", "rail", "ring")
IPV6, LLDP = 0x86DD, 0x88CC


def check_every_path(topology: Topology, *, one_host_per_leaf: bool = False, down: frozenset[str] = frozenset()) -> int:
    """Every pair and mark; the number of packets that were sent."""
    fabric = FakeFabric(topology, plan(topology, down))
    hosts = list(topology.host_interfaces())
    if one_host_per_leaf:
        hosts = list({leaf_of(topology, end.name).name: end for end in hosts}.values())
    sent = 0
    for source, destination in product(hosts, hosts):
        ends = leaf_of(topology, source.name).name, leaf_of(topology, destination.name).name
        if source == destination or ends[0] not in distances(topology, ends[1], down):
            continue
        for digits in product(*(range(width) for width in widths(topology, *ends, down))):
            mark, sent = encode(digits), sent + 1
            taken = fabric.trace(source, Packet(ipv4_dst=destination.ip, mark=mark))
            assert taken == path(topology, source, destination, mark, down), (source.name, destination.name, digits)
            assert topology.peer_of[taken[-1]] == destination
    return sent


@pytest.mark.parametrize("spec", FABRICS)
def test_every_pair_and_mark_takes_the_predicted_path(spec: str) -> None:
    assert check_every_path(parse_topology(spec)) > 0


def test_a_large_fat_tree_takes_the_predicted_paths_between_all_leaves_with_few_rules() -> None:
    topology = parse_topology("fat_tree:k=8")
    assert check_every_path(topology, one_host_per_leaf=True) == 32 * 28 * 16 + 32 * 3 * 4
    rules = plan(topology)
    assert (len(rules), sum(map(len, rules.values())), max(map(len, rules.values()))) == (80, 1536, 25)


def test_every_path_of_a_fat_tree_is_used() -> None:
    topology = parse_topology("fat_tree:k=4")
    fabric = FakeFabric(topology, plan(topology))
    first, *_, last = topology.host_interfaces()
    marks = [encode((0, 0, third, fourth)) for third in range(2) for fourth in range(2)]
    assert len({fabric.trace(first, Packet(ipv4_dst=last.ip, mark=mark)) for mark in marks}) == 4


@pytest.mark.parametrize("down", [{"leaf1-spine1"}, {"leaf1-spine1", "leaf2-spine2"}, {"leaf3-spine1", "leaf3-spine4"}])
def test_the_rules_avoid_what_is_down(down: set[str]) -> None:
    topology = parse_topology("leaf_spine:leaves=4,spines=4,hosts=1")
    broken = {end.name for name in down for end in (topology.link_named[name].a, topology.link_named[name].b)}
    assert check_every_path(topology, down=frozenset(down)) > 0
    fabric = FakeFabric(topology, plan(topology, frozenset(down)))
    for source, destination, digit in product(topology.host_interfaces(), topology.host_interfaces(), range(4)):
        taken = fabric.trace(source, Packet(ipv4_dst=destination.ip, mark=digit << 8))
        assert not broken & set(taken)


def test_a_leaf_that_is_cut_off_is_dropped_and_not_looped() -> None:
    topology = parse_topology("leaf_spine:leaves=2,spines=2,hosts=1")
    fabric = FakeFabric(topology, plan(topology, frozenset({"leaf2-spine1", "leaf2-spine2"})))
    h1, h2 = topology.host_interfaces()
    assert fabric.trace(h1, Packet(ipv4_dst=h2.ip)) == ("h1-eth0",)


@pytest.mark.parametrize("spec", FABRICS)
def test_only_ipv4_to_known_hosts_moves_and_only_arp_requests_reach_the_controller(spec: str) -> None:
    topology = parse_topology(spec)
    known = [end.ip for end in topology.host_interfaces()]
    for switch, rules in plan(topology).items():
        fake = FakeSwitch(rules)
        for ethertype in (IPV6, LLDP, 0x8808):
            assert fake.forward(Packet(eth_type=ethertype)) == Drop(), switch
        assert fake.forward(Packet(eth_type=ETH_TYPE_ARP, arp_op=1)) == ToController()
        assert fake.forward(Packet(eth_type=ETH_TYPE_ARP, arp_op=2)) == Drop()
        for stray in ("10.255.255.255", "255.255.255.255", "224.0.0.251", "192.0.2.1", "10.99.1.1"):
            assert IPv4Address(stray) not in known
            assert fake.forward(Packet(ipv4_dst=IPv4Address(stray))) == Drop()


@pytest.mark.parametrize("spec", FABRICS)
def test_a_packet_to_an_address_that_nobody_has_never_loops(spec: str) -> None:
    topology = parse_topology(spec)
    fabric = FakeFabric(topology, plan(topology))
    for pod, leaf, host in product(range(6), range(6), (0, 77, 255)):
        for source in topology.host_interfaces():
            address = IPv4Address(f"10.{pod}.{leaf}.{host}")
            assert topology.peer_of[fabric.trace(source, Packet(ipv4_dst=address))[-1]].node in topology.switch_named


@pytest.mark.parametrize("spec", FABRICS)
def test_each_switch_has_exactly_one_rule_of_priority_0_and_it_drops(spec: str) -> None:
    for rules in plan(parse_topology(spec)).values():
        assert [rule for rule in rules if rule.priority == 0] == [
            Rule(table=Table.ROUTE, priority=Band.MISS, match=Match(), action=Drop())
        ]


def test_a_digit_that_names_no_port_is_dropped() -> None:
    topology = parse_topology("leaf_spine")
    fabric = FakeFabric(topology, plan(topology))
    first, *_, last = topology.host_interfaces()
    assert fabric.trace(first, Packet(ipv4_dst=last.ip, mark=4 << 8)) == (first.name,)


def test_too_many_equal_paths_are_refused_with_a_reason() -> None:
    with pytest.raises(UserError, match=r"256 equal paths, 1 hops from s[12].*at most 255"):
        plan(chain_of_switches(cables=[256]))


def test_a_choice_too_far_from_its_destination_is_refused_with_a_reason() -> None:
    assert plan(chain_of_switches(cables=[2, 2, 2, 2]))
    with pytest.raises(UserError, match=r"2 equal paths, 5 hops from s1.*last 4 hops"):
        plan(chain_of_switches(cables=[1, 1, 1, 1, 2]))


def test_a_long_way_without_choices_is_fine() -> None:
    assert check_every_path(chain_of_switches(cables=[1, 2, 3, 2, 1])) > 0


def chain_of_switches(*, cables: list[int]) -> Topology:
    """s1 = s2 = s3 ..., so many parallel cables each, a host at either end."""
    edges = [(at, at + 1) for at, count in enumerate(cables) for _ in range(count)]
    return assemble(switches=len(cables) + 1, edges=edges, hosts=[0, len(cables)])


def assemble(*, switches: int, edges: list[tuple[int, int]], hosts: list[int]) -> Topology:
    """A fabric from numbers: cables between switches, and the switch of each host."""
    ports = dict.fromkeys(range(switches), 0)

    def end(switch: int) -> Interface:
        ports[switch] += 1
        return Interface(node=f"s{switch + 1}", port=ports[switch], name=f"s{switch + 1}-eth{ports[switch]}")

    def nic(host: int) -> Interface:
        raw = bytes((10, 0, hosts[host - 1] + 1, host))
        mac = ":".join(f"{byte:02x}" for byte in b"\x02\0" + raw)
        return Interface(node=f"h{host}", port=0, name=f"h{host}-eth0", ip=IPv4Address(raw), mac=mac)

    pairs: list[tuple[str, Interface, Interface]] = [("", nic(host + 1), end(at)) for host, at in enumerate(hosts)]
    pairs += [(f"{min(edge)} {max(edge)}", end(edge[0]), end(edge[1])) for edge in edges]
    seen: dict[str, int] = {}
    links = []
    for key, a, b in pairs:
        seen[key] = seen.get(key, 0) + 1
        number = seen[key] if key else 1
        links.append(Link(a=a, b=b, rate_bps=10**9, delay_ns=1000, buffer_bytes=10**5, number=number))
    return Topology(
        name="assembled",
        hosts=tuple(Host(name=f"h{host + 1}") for host in range(len(hosts))),
        switches=tuple(Switch(name=f"s{at + 1}", dpid=at + 1, tier="leaf") for at in range(switches)),
        links=tuple(links),
    )


@st.composite
def any_fabric(draw: st.DrawFn) -> tuple[Topology, frozenset[str]]:
    """A connected graph of switches with parallel cables, hosts anywhere, and some cables down."""
    switches = draw(st.integers(2, 6))
    tree = [(draw(st.integers(0, at - 1)), at) for at in range(1, switches)]
    pair = st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1)).filter(lambda edge: edge[0] != edge[1])
    more = draw(st.lists(pair, max_size=8))
    hosts = draw(st.lists(st.integers(0, switches - 1), min_size=2, max_size=5))
    topology = assemble(switches=switches, edges=tree + more, hosts=hosts)
    cables = [own.name for switch in topology.switches for own, _ in switch_cables(topology, switch.name)]
    return topology, frozenset(draw(st.lists(st.sampled_from(cables), max_size=2)))


@given(any_fabric())
@settings(max_examples=150, deadline=None)
def test_any_fabric_even_damaged_takes_the_predicted_paths(drawn: tuple[Topology, frozenset[str]]) -> None:
    topology, down = drawn
    try:
        plan(topology, down)
    except UserError as error:
        if "hops from" not in str(error):
            raise
        return
    check_every_path(topology, down=down)
    assert leaves(topology)
