"""Which scenario a fabric allows and what it would send there; streams and storms as values."""

import pytest

from experiments.pfc import EXPERIMENT, SCENARIOS, Settings
from experiments.port_plan import PortPlan
from experiments.settings import parse_settings
from experiments.workloads.pfc.deadlock import ring_streams
from experiments.workloads.pfc.propagation import senders_to
from experiments.workloads.pfc.streams import Received, Storm
from topologies.errors import UserError
from topologies.registry import parse_topology


def obstacles(topology: str, policy: str = EXPERIMENT.policy) -> dict[str, str]:
    """The scenarios that cannot be played, with why."""
    plan = PortPlan.of(policy=policy, topology=parse_topology(topology), seed=1)
    return {name: why for name, each in SCENARIOS.items() if (why := each.obstacle(plan))}


@pytest.mark.parametrize(
    ("topology", "policy", "left_out"),
    [
        (EXPERIMENT.topology, EXPERIMENT.policy, {"deadlock": "ring of four"}),
        ("star", "pfc_only", {"deadlock": "ring of four", "victim": "two leaves", "propagation": "two leaves"}),
        ("ring", "pfc_only:lb=single", {"victim": "two leaves"}),
        ("leaf_spine", EXPERIMENT.policy, {"deadlock": "ring of four", "victim": "one spine"}),
        ("leaf_spine:spines=1", EXPERIMENT.policy, {"deadlock": "ring of four", "victim": "uplink_rate=400G"}),
        (EXPERIMENT.topology, "pfc_only", {"deadlock": "ring of four", "victim": "classes=8:1"}),
        (EXPERIMENT.topology, "pfc_only:classes=8:1,watchdog=off", {"deadlock": "", "storm": "watchdog=200ms"}),
        ("topologies/ring_of_switches.yaml", "pfc_only", {"deadlock": "", "victim": "", "propagation": "two hosts"}),
        ("star:hosts=2", "pfc_only", dict.fromkeys(SCENARIOS, "")),
    ],
)
def test_what_cannot_be_played_says_what_would_do(topology: str, policy: str, left_out: dict[str, str]) -> None:
    found = obstacles(topology, policy)
    assert set(found) == set(left_out)
    for name, words in left_out.items():
        assert words in found[name]


def test_scenarios_are_asked_for_by_name() -> None:
    assert parse_settings(Settings, {"scenarios": "storm,incast"}).scenarios == ("storm", "incast")
    with pytest.raises(UserError, match="unknown scenario 'strom'; known: deadlock, fitting, incast"):
        parse_settings(Settings, {"scenarios": "strom"})
    with pytest.raises(UserError, match="from 2500000 to 1000000000 B: buffers must have time"):
        parse_settings(Settings, {"volume": "1MB"})


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("leaf_spine:leaves=3,hosts=3,spines=1,uplink_rate=400G", ["h1", "h4", "h2", "h5", "h7", "h8"]),
        ("leaf_spine:leaves=2,hosts=2,spines=4", ["h1", "h3"]),
        ("dumbbell:hosts=3", ["h1", "h4", "h5"]),
        ("ring:hosts=2", ["h3", "h7"]),
    ],
)
def test_nobody_but_the_receivers_port_is_overloaded(topology: str, expected: list[str]) -> None:
    """One spine of 400G takes four hosts; four spines of 100G take one, because all may choose the same."""
    fabric = parse_topology(topology)
    assert senders_to(fabric, fabric.hosts[-1].name) == expected


@pytest.mark.parametrize("topology", ["ring", "ring:switches=6,hosts=1"])
def test_a_deadlock_is_tried_two_switches_on(topology: str) -> None:
    fabric = parse_topology(topology)
    count = len(fabric.switches)
    racks = {host.name: host.rack for host in fabric.hosts}
    streams = ring_streams(fabric, 1000)
    assert len(streams) == len(fabric.hosts) == len({each.source for each in streams})
    assert {(racks[each.destination] - racks[each.source]) % count for each in streams} == {2}


def test_a_storm_is_over_when_its_last_pause_runs_out() -> None:
    storm = Storm(host="h1", index=3, quanta=1000, rate_bps=512 * 10**9, start_ns=100, stop_ns=2000)
    assert (storm.pause_ns, storm.period_ns) == (1000, 500)
    assert storm.over_ns == 1600 + 1000  # frames at 100, 600, 1100, 1600


def received(bins: tuple[int, ...], lasts_ns: tuple[int, ...]) -> Received:
    return Received(
        packets=0, bytes=sum(bins), bins=bins, lasts_ns=lasts_ns, out_of_order=0, first_ns=0, last_ns=max(lasts_ns)
    )


def test_throughput_is_from_arrival_to_arrival() -> None:
    """A packet of 700 B every 700 ns, in bins of 1,000 ns: 8 Gb/s, wherever one looks."""
    got = received((700, 700, 700, 1400, 700), (700, 1400, 2100, 3500, 4200))
    assert got.between(1000, 4000, 1000) == 2800 * 8e9 / 2800 == 8e9
    assert got.between(900, 4100, 1000) == 8e9


def test_throughput_counts_the_time_in_which_nothing_came() -> None:
    got = received((0, 500, 0, 0), (-1, 1500, -1, -1))
    assert got.between(0, 4000, 1000) == 500 * 8e9 / 4000
    assert got.between(2000, 4000, 1000) == 0
    assert got.between(1000, 2000, 1000) == 500 * 8e9 / 500


def test_streams_into_one_port_are_counted_together() -> None:
    one, other = received((700, 0, 700), (300, -1, 2400)), received((700, 1400, 0), (1000, 1700, -1))
    both = Received.together([one, other])
    assert (both.bins, both.lasts_ns, both.bytes) == ((1400, 1400, 700), (1000, 1700, 2400), 3500)
    assert both.between(1000, 3000, 1000) == 2100 * 8e9 / 1400
