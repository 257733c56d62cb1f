"""The path selector as it is, in the kernel, against its twin in Python and against arithmetic (facts.md 1.8)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from random import Random
from statistics import mean

import pytest

from controller.selector import libbpf
from controller.selector.flow_hash import TCP, UDP, Flow, derive_seeds
from controller.selector.frames import CONTEXT_BYTES, frame, mark_given
from controller.selector.selection import Selection
from controller.selector.selector import Selector
from topologies.errors import RunFailed

Load = Callable[..., Selector]
LEAF_OF = {IPv4Address(f"10.0.{leaf}.{host}"): f"leaf{leaf}" for leaf in range(1, 5) for host in range(1, 5)}
PAIRS = [(a, b) for a in sorted(set(LEAF_OF.values())) for b in sorted(set(LEAF_OF.values())) if a != b]
H1, H2, H5 = (IPv4Address(f"10.0.{leaf}.{host}") for leaf, host in ((1, 1), (1, 2), (2, 1)))
FLOW = Flow(src=H1, dst=H5, proto=TCP, sport=40000, dport=5001)


def selection(width: int, *seed: object, level: int = 2) -> Selection:
    widths = [1, 1, 1, 1]
    widths[level - 1] = width
    four = widths[0], widths[1], widths[2], widths[3]
    return Selection(seeds=derive_seeds(*seed), widths=dict.fromkeys(PAIRS, four))


def random_flow(rng: Random) -> Flow:
    src, dst = rng.choice(list(LEAF_OF)), rng.choice(list(LEAF_OF))
    return Flow(src=src, dst=dst, proto=rng.randrange(256), sport=rng.randrange(65536), dport=rng.randrange(65536))


def seen(flow: Flow) -> Flow:
    """What a switch can tell of a flow: ports only where the protocol has them."""
    return flow if flow.proto in (6, 17, 33, 132) else replace(flow, sport=0, dport=0)


@pytest.mark.parametrize("seed", range(4))
def test_the_program_gives_the_mark_of_its_twin(load: Load, seed: int) -> None:
    rng = Random(seed)
    selector = load(LEAF_OF)
    widths = {pair: tuple(rng.choice((1, 2, 3, 4, 16, 255)) for _ in range(4)) for pair in PAIRS}
    pinned = {(rng.choice(list(LEAF_OF)), rng.choice(list(LEAF_OF))): rng.randrange(2**32) for _ in range(10)}
    exact = {seen(random_flow(rng)): rng.randrange(2**32) for _ in range(50)}
    chosen = Selection(seeds=derive_seeds(seed), widths=widths, assigned=pinned, exact=exact)  # type: ignore[arg-type]
    selector.select(chosen)
    for flow in [*exact, *(random_flow(rng) for _ in range(2000))]:
        packet = frame(flow, option_words=rng.choice((0, 0, 1, 10)))
        assert mark_given(selector, packet) == chosen.mark(seen(flow), LEAF_OF), flow


def test_ports_of_a_fragment_do_not_count_so_that_all_fragments_stay_together(load: Load) -> None:
    selector = load(LEAF_OF)
    chosen = selection(255, "fragments")
    selector.select(chosen)
    portless = chosen.mark(replace(FLOW, sport=0, dport=0), LEAF_OF)
    assert {mark_given(selector, frame(FLOW, fragment=field)) for field in (0x2000, 0x2010, 0x0010)} == {portless}
    assert mark_given(selector, frame(FLOW, fragment=0x4000)) == chosen.mark(FLOW, LEAF_OF)  # "don't fragment" is none


@pytest.mark.parametrize("cut", [34, 35, 37, 38])
def test_a_frame_that_ends_early_is_no_trouble(load: Load, cut: int) -> None:
    selector = load(LEAF_OF)
    chosen = selection(255, "short")
    selector.select(chosen)
    expected = {38: chosen.mark(FLOW, LEAF_OF)}
    portless = chosen.mark(replace(FLOW, sport=0, dport=0), LEAF_OF)
    assert mark_given(selector, frame(FLOW)[:cut]) == expected.get(cut, portless)


def test_arp_and_ipv6_keep_mark_0_and_are_no_flows(load: Load) -> None:
    selector = load(LEAF_OF)
    selector.select(selection(255, 1))
    for ethertype in (b"\x08\x06", b"\x86\xdd"):
        assert mark_given(selector, bytes(12) + ethertype + bytes(60)) == 0
    assert list(selector.flows()) == []


def test_packets_to_strangers_and_within_a_leaf_keep_mark_0(load: Load) -> None:
    selector = load(LEAF_OF)
    selector.select(selection(255, 1))
    assert mark_given(selector, frame(replace(FLOW, dst=H2))) == 0
    assert mark_given(selector, frame(replace(FLOW, dst=IPv4Address("10.9.9.9")))) == 0


def test_flows_are_counted_in_packets_and_bytes(load: Load) -> None:
    selector = load(LEAF_OF)
    selector.select(selection(4, 1))
    packet = frame(FLOW)
    for _ in range(3):
        mark_given(selector, packet)
    (record,) = selector.flows()
    assert (record.flow, record.packets, record.bytes) == (FLOW, 3, 3 * len(packet))
    assert record.mark == selection(4, 1).mark(FLOW, LEAF_OF)


def test_more_flows_than_one_batch_are_all_read(load: Load) -> None:
    selector = load(LEAF_OF)
    selector.select(selection(4, 1))
    for sport in range(2 * libbpf.BATCH + 5):
        mark_given(selector, frame(replace(FLOW, sport=sport)))
    assert {record.flow.sport for record in selector.flows()} == set(range(2 * libbpf.BATCH + 5))


def test_a_full_table_counts_what_it_misses_and_still_gives_paths(load: Load) -> None:
    selector = load(LEAF_OF, flows=64)
    chosen = selection(255, 1)
    selector.select(chosen)
    for sport in range(200):
        flow = replace(FLOW, sport=sport)
        assert mark_given(selector, frame(flow)) == chosen.mark(flow, LEAF_OF)
    recorded = sum(record.packets for record in selector.flows())
    assert recorded + selector.unrecorded_packets() == 200
    assert recorded >= 64


def test_flows_choose_again_after_a_change_and_count_on_each_path(load: Load) -> None:
    selector = load(LEAF_OF)
    before, after = selection(255, "before"), selection(255, "after")
    for chosen in (before, after):
        selector.select(chosen)
        assert mark_given(selector, frame(FLOW)) == chosen.mark(FLOW, LEAF_OF)
    assert before.mark(FLOW, LEAF_OF) != after.mark(FLOW, LEAF_OF)
    counted = {record.mark: record.packets for record in selector.flows()}
    assert counted == {chosen.mark(FLOW, LEAF_OF): 1 for chosen in (before, after)}


def test_a_mark_that_stays_the_same_is_counted_apart_for_every_set_of_dead_links(load: Load) -> None:
    """The same digits lead elsewhere once a link is down; a selection anew on the same links makes no further line."""
    selector = load(LEAF_OF)
    chosen = Selection(seeds=derive_seeds("x"), widths={}, assigned={(H1, H5): 7})
    for down, packets in ((0, 1), (0, 2), (1, 4), (1, 8), (0, 16)):
        selector.select(chosen, down)
        for _ in range(packets):
            assert mark_given(selector, frame(FLOW)) == 7
    assert {record.down: record.packets for record in selector.flows()} == {0: 1 + 2 + 16, 1: 4 + 8}
    assert len(list(selector.flows())) == 2


def test_what_a_change_no_longer_assigns_or_widens_is_forgotten(load: Load) -> None:
    selector = load(LEAF_OF)
    selector.select(replace(selection(255, 1), assigned={(H1, H5): 0x0700}))
    assert mark_given(selector, frame(FLOW)) == 0x0700
    selector.select(Selection(widths={}))
    assert mark_given(selector, frame(FLOW)) == 0


def test_an_interface_that_does_not_exist_is_named(load: Load) -> None:
    with pytest.raises(RunFailed, match="interface leaf1-eth99 does not exist"):
        load(LEAF_OF).attach("leaf1-eth99")


def digits(selector: Selector, flows: list[Flow], level: int) -> list[int]:
    return [mark_given(selector, frame(flow)) >> 8 * (level - 1) & 0xFF for flow in flows]


def imbalance(load: Load, *, ports: int, flows: int, seeds: int) -> float:
    """Mean over seeds of busiest/mean, with random flows between leaf 1 and the others, from the program itself."""
    selector, found = load(LEAF_OF), []
    for seed in range(seeds):
        rng = Random(seed)
        selector.select(selection(ports, "imbalance", seed))
        drawn = [replace(FLOW, dst=rng.choice([*LEAF_OF][4:]), sport=rng.randrange(2**16)) for _ in range(flows)]
        found.append(max(Counter(digits(selector, drawn, 2)).values()) * ports / flows)
    return mean(found)


def test_1000_flows_on_16_ports_are_as_uneven_as_chance_has_it(load: Load) -> None:
    assert imbalance(load, ports=16, flows=1000, seeds=50) == pytest.approx(1.228, abs=0.06)


def test_4_flows_on_4_links_are_as_uneven_as_chance_has_it(load: Load) -> None:
    assert imbalance(load, ports=4, flows=4, seeds=200) == pytest.approx(2.13, abs=0.1)


@pytest.mark.parametrize("proto", [TCP, UDP])
def test_flows_that_differ_in_the_source_port_only_spread_evenly(load: Load, proto: int) -> None:
    """P12: plain OpenFlow groups hash no UDP ports."""
    selector = load(LEAF_OF)
    selector.select(selection(2, "ports"))
    flows = [replace(FLOW, proto=proto, sport=40000 + at) for at in range(200)]
    assert digits(selector, flows, 2).count(0) == pytest.approx(100, abs=21)


def test_equal_seeds_polarise_the_second_tier_and_different_ones_do_not(load: Load) -> None:
    selector = load(LEAF_OF)
    flows = [replace(FLOW, sport=40000 + at) for at in range(400)]
    for polarised in (True, False):
        seeds = derive_seeds("tiers")
        chosen = (seeds[0],) * 4 if polarised else seeds
        selector.select(Selection(seeds=chosen, widths=dict.fromkeys(PAIRS, (1, 1, 2, 2))))
        first, second = digits(selector, flows, 4), digits(selector, flows, 3)
        below_first_link = [digit for digit, uplink in zip(second, first, strict=True) if uplink == 0]
        if polarised:
            assert set(below_first_link) == {0}
        else:
            share = below_first_link.count(0) / len(below_first_link)
            assert share == pytest.approx(0.5, abs=0.5 * 21 / 100 * (200 / len(below_first_link)) ** 0.5)


def test_the_program_leaves_room_for_traffic(load: Load) -> None:
    """A known flow costs one look-up; with a compiled program that is tens of nanoseconds, and never microseconds."""
    selector = load(LEAF_OF)
    selector.select(selection(4, 1))
    verdict, _, nanoseconds = libbpf.run_on_frame(selector.program, frame(FLOW), bytes(CONTEXT_BYTES), repeat=20000)
    assert verdict == 0xFFFFFFFF  # TC_ACT_UNSPEC: the next filter decides
    assert nanoseconds < 2000
