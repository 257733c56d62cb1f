"""Files of changes: two forms that say the same, and what each change does to which port."""

import pytest

from controller.port_policies.changes import Change, parse_changes, plan_changes
from controller.port_policies.composition import PRESETS
from topologies.errors import UserError
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,hosts=2,spines=2")
ROCE = PRESETS["roce"].policy
LINES = """
# tighten, then relax the spines
at 5ms: ecn.kmin=100kB, ecn.kmax=400kB
at 8ms on spine*: kmin=off
"""
YAML = """
- at: 8ms
  set: {kmin: off}
  where: spine*
- at: 5ms
  set:
    ecn.kmin: 100kB
    ecn.kmax: 400kB
"""


def test_both_forms_say_the_same_in_order_of_time() -> None:
    expected = (
        Change(at_ns=5_000_000, settings={"ecn.kmin": "100kB", "ecn.kmax": "400kB"}),
        Change(at_ns=8_000_000, settings={"kmin": "off"}, where="spine*"),
    )
    assert parse_changes(LINES) == parse_changes(YAML) == expected


def test_without_a_place_a_change_is_for_every_switch_port() -> None:
    (step,) = plan_changes(ROCE, FABRIC, parse_changes("at 1ms: kmin=1p"))
    assert set(step.ports) == {end.name for end in FABRIC.interfaces() if end.node in FABRIC.switch_named}


@pytest.mark.parametrize(
    ("where", "ports"),
    [
        ("leaf1-eth3", {"leaf1-eth3"}),
        ("spine2", {"spine2-eth1", "spine2-eth2"}),
        ("*-eth4", {"leaf1-eth4", "leaf2-eth4"}),
        ("h1", {"h1-eth0"}),
    ],
)
def test_a_place_is_a_node_or_an_interface(where: str, ports: set[str]) -> None:
    (step,) = plan_changes(ROCE, FABRIC, parse_changes(f"at 1ms on {where}: quanta=1000"))
    assert set(step.ports) == ports


def test_changes_add_up_port_by_port() -> None:
    steps = plan_changes(
        ROCE, FABRIC, parse_changes("at 1ms on leaf1: ecn.pmax=0.5\nat 2ms: ecn.kmin=10us\nat 3ms on leaf1: xoff=50kB")
    )
    second, third = steps[1].ports, steps[2].ports
    assert second["leaf1-eth1"].marking is not None
    assert second["leaf2-eth1"].marking is not None
    assert (second["leaf1-eth1"].marking.pmax, second["leaf1-eth1"].marking.kmin_bytes) == (0.5, 125_000)
    assert (second["leaf2-eth1"].marking.pmax, second["leaf2-eth1"].marking.kmin_bytes) == (0.2, 125_000)
    assert third["leaf1-eth1"].lossless is not None
    assert third["leaf1-eth1"].lossless.xoff_bytes == 50_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("at 5ms kmin=1", "policy file: 'at 5ms kmin=1' is not `at TIME"),
        ("at 5ms: kmin", "policy file: 'at 5ms: kmin': 'kmin' is not key=value"),
        ("at soon: kmin=1p", "policy file: at soon: kmin=1p: 'soon' is not a delay"),
        ("at 5ms: kmim=1p", "unknown key of policy file, change 1 'kmim'"),
        ("at 5ms: cc=bbr", "policy file, change 1: cc cannot change while a run is under way"),
        ("at 5ms: pfc=off", "policy file, change 1: pfc cannot change while a run is under way"),
        ("kmin: 3", "policy file: write a list of changes"),
        ("- at: 5ms", "policy file: change 1: a change needs `at`"),
        ("- {at: 5ms, set: {kmin: 1p}, wher: x}", "unknown field of change 1 of the policy file 'wher'"),
        ("- [", "policy file: while parsing"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        parse_changes(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("at 1ms on leaf9: kmin=1p", "policy file: where: 'leaf9' fits no node and no interface; nodes: h1, "),
        ("at 1ms on leaf1-eth1: buffer=8MB", "policy: the ports of leaf1 would give it buffers of"),
        ("at 1ms: kmax=1us", "policy: at leaf1-eth1 kmax is 12500 B and below kmin"),
        ("at 1ms: buffer=100kB", "policy: the buffer of leaf1, 100 kB, has no room"),
    ],
)
def test_what_cannot_be_is_refused_before_the_run(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        plan_changes(ROCE, FABRIC, parse_changes(text))
