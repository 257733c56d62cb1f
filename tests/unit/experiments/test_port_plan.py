"""What a policy means for the testbed: ports, hosts, warnings; and that the two sides' words mean the same."""

from fractions import Fraction

import pytest

from experiments.port_plan import PortPlan
from testbed.port.config import CLASSES, ClassConfig, PortConfig, Watchdog
from testbed.port.fabric_port import FabricPort, described
from testbed.port.netlink import decode, encode
from testbed.port.stock import StockPort
from topologies.errors import UserError
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,hosts=2,spines=2,rate=100G")


def plan(policy: str, **options: str) -> PortPlan:
    return PortPlan.of(policy=policy, topology=FABRIC, seed=7, **options)


def configs(policy: str) -> dict[str, PortConfig]:
    made = plan(policy)
    return {name: made.config(decision) for name, decision in made.decisions.items()}


def test_ports_of_a_switch_share_one_buffer_and_no_two_switches_do() -> None:
    made = plan("roce")
    ids: dict[str, set[int]] = {}
    for name, decision in made.decisions.items():
        ids.setdefault(name.split("-")[0], set()).add(made.config(decision).buffer_id)
    assert all(len(found) == 1 for found in ids.values())
    assert [ids[f"h{number}"] for number in (1, 2, 3, 4)] == [{0}] * 4
    assert sorted(min(found) for node, found in ids.items() if node[0] != "h") == [1, 2, 3, 4]


def test_roce_in_the_testbeds_words() -> None:
    made = plan("roce:classes=46:6,watchdog=1ms/forward")
    config = made.config(made.decisions["leaf1-eth1"])
    data, control = config.classes[3], config.classes[6]
    assert (config.rate_bps, config.delay_ns, config.buffer_bytes, config.default_class) == (
        100 * 10**9,
        1000,
        2 * 10**6,
        3,
    )
    assert (data.pfc, data.alpha, data.headroom_bytes, data.egress_alpha) == (True, Fraction(1, 8), 64_602, Fraction(0))
    assert data.watchdog == Watchdog(limit_ns=10**6, restore_ns=10**6, forward=True)
    assert data.marking is not None
    assert (data.marking.kmin, data.marking.kmax, data.marking.pmax) == (400_000, 1_600_000, 0.2)
    assert (control.pfc, control.egress_alpha, control.priority > data.priority) == (False, Fraction(1), True)
    assert [config.classes[index] for index in (0, 1, 2, 4, 5, 7)] == [ClassConfig()] * 6


def test_a_nic_obeys_pauses_and_neither_limits_nor_marks() -> None:
    made = plan("roce")
    config = made.config(made.decisions["h1-eth0"])
    assert (config.buffer_id, config.limit_bytes, config.classes[3].limit_bytes) == (0, 0, 0)
    assert config.classes[3].pfc
    assert config.classes[3].marking is None


def test_every_port_draws_its_own_lots_from_the_runs_seed() -> None:
    seeds = {name: config.seed for name, config in configs("roce").items()}
    assert len(set(seeds.values())) == len(seeds)
    assert seeds == {name: config.seed for name, config in configs("roce").items()}


@pytest.mark.parametrize(
    "policy", ["lossy", "dctcp", "roce:watchdog=1ms/forward", "pfc_only:classes=46:6", "lossy:alpha=2"]
)
def test_what_is_described_survives_the_kernels_encoding(policy: str) -> None:
    made = plan(policy)
    for decision in made.decisions.values():
        config = made.config(decision)
        assert described(decode(encode(config))) == described(config)
        assert len(config.classes) == CLASSES


def test_the_manifest_has_thresholds_in_bytes() -> None:
    made = plan("dctcp:kmin=1bdp")
    found = described(made.config(made.decisions["leaf1-eth1"]))
    assert found["class3_kmin_bytes"] == found["class3_kmax_bytes"] == round(13_769 * 100 / 8)


@pytest.mark.parametrize(
    ("policy", "asked", "cc", "ecn"),
    [
        ("dctcp", {}, "dctcp", "on"),
        ("lossy", {}, "cubic", "off"),
        ("roce", {"cc": "cubic"}, "cubic", "on"),
        ("lossy", {"cc": "dctcp"}, "dctcp", "on"),
        ("lossy:cc=bbr", {}, "bbr", "off"),
        ("roce:cc=cubic", {"ecn": "off"}, "cubic", "off"),
    ],
)
def test_hosts_follow_the_policy_unless_told_otherwise(policy: str, asked: dict[str, str], cc: str, ecn: str) -> None:
    found = plan(policy).host_settings(asked)
    assert (found["cc"], found["ecn"]) == (cc, ecn)


@pytest.mark.parametrize("policy", ["dctcp", "lossy:cc=dctcp"])
def test_dctcp_without_ecn_is_refused(policy: str) -> None:
    with pytest.raises(UserError, match=r"host\.cc=dctcp with host\.ecn=off: the kernel's dctcp negotiates ECN"):
        plan(policy).host_settings({"ecn": "off"})


@pytest.mark.parametrize(
    ("policy", "asked", "warned"),
    [
        ("lossy:cc=dctcp", {}, ["DCTCP without marks"]),
        ("roce:cc=cubic", {"ecn": "off"}, ["ports mark, but hosts with ecn=off"]),
        ("dctcp", {}, []),
        ("lossy", {}, []),
    ],
)
def test_what_will_not_do_what_it_promises_is_said(policy: str, asked: dict[str, str], warned: list[str]) -> None:
    made = plan(policy)
    found = made.warnings(made.host_settings(asked))
    assert [start for start, text in zip(warned, found, strict=True) if text.startswith(start)] == warned


def test_stock_ports_take_only_what_they_can_do() -> None:
    assert isinstance(plan("ecmp", kind="stock").port(), StockPort)
    assert isinstance(plan("ecmp").port(), FabricPort)
    for policy in ("roce", "dctcp", "lossy:buffer=1MB"):
        with pytest.raises(UserError, match="ports of kind stock have"):
            plan(policy, kind="stock")
    with pytest.raises(UserError, match="--policy-file: ports of kind stock cannot change"):
        plan("ecmp", kind="stock").steps("at 1ms: limit=1MB")
