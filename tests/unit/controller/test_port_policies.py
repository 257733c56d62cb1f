"""Presets by rate against the field's numbers, composition, contradictions, and what every port is told."""

from fractions import Fraction

import pytest

from controller.policies.ecmp import Ecmp
from controller.policies.single import Single
from controller.port_policies.composition import PRESETS, parse_composition
from controller.port_policies.decision import PortDecision, auto_alpha, decide
from controller.port_policies.settings import DATA_CLASS, PortPolicy, parameters
from topologies.errors import UnknownName, UserError
from topologies.registry import parse_topology


def leaf_port(policy: str, topology: str = "star:hosts=4") -> PortDecision:
    return decide(parse_composition(policy).ports, parse_topology(topology))["s1-eth1"]


# ---- the field's numbers (facts.md 3.1, 3.2) ----


@pytest.mark.parametrize(
    ("rate", "kmin", "kmax"), [("25G", 100_000, 400_000), ("100G", 400_000, 1_600_000), ("400G", 1_600_000, 6_400_000)]
)
def test_roce_marks_as_hpcc_does(rate: str, kmin: int, kmax: int) -> None:
    marking = leaf_port("roce", f"star:hosts=4,rate={rate}").marking
    assert marking is not None
    assert (marking.kmin_bytes, marking.kmax_bytes, marking.pmax) == (kmin, kmax, 0.2)


@pytest.mark.parametrize(("rate", "step"), [("10G", 30_000), ("25G", 75_000), ("100G", 300_000), ("400G", 1_200_000)])
def test_dctcp_marks_by_a_step_of_3_kb_per_gigabit(rate: str, step: int) -> None:
    port = leaf_port("dctcp", f"star:hosts=4,rate={rate}")
    assert port.marking is not None
    assert (port.marking.kmin_bytes, port.marking.kmax_bytes, port.marking.pmax) == (step, step, 1.0)
    assert port.lossless is None


def test_pfc_headroom_is_three_times_rate_by_delay_and_the_frames_that_are_under_way() -> None:
    lossless = leaf_port("pfc_only", "star:hosts=4,rate=100G,delay=2us").lossless
    assert lossless is not None
    assert lossless.headroom_bytes == 3 * 25_000 + 3 * 9014 + 60
    # after XOFF: the frame over the threshold, one before the pause, the pause, one begun at the far end, two delays
    assert lossless.headroom_bytes >= 3 * 9014 + 60 + 2 * 25_000
    assert lossless.xon_offset_bytes == 2 * 9014
    assert lossless.watchdog is not None
    assert lossless.watchdog.limit_ns == 200_000_000


@pytest.mark.parametrize(
    ("rate", "alpha"),
    [(25, Fraction(1, 8)), (49, Fraction(1, 8)), (50, Fraction(1, 4)), (100, Fraction(1, 2)), (800, 1)],
)
def test_alpha_doubles_with_the_rate(rate: int, alpha: Fraction) -> None:
    assert auto_alpha(rate * 10**9, 25 * 10**9) == alpha


def test_uplinks_that_are_faster_than_nics_have_a_larger_alpha() -> None:
    found = decide(parse_composition("roce").ports, parse_topology("leaf_spine:rate=100G,uplink_rate=400G"))
    alphas = {name: port.lossless.alpha for name, port in found.items() if port.lossless}
    assert alphas["leaf1-eth1"] == Fraction(1, 8)
    assert alphas["leaf1-eth5"] == Fraction(1, 2)


# ---- buffers ----


def test_a_switch_has_the_sum_of_its_links_buffers() -> None:
    found = decide(PortPolicy(), parse_topology("leaf_spine:leaves=2,hosts=4,spines=2,rate=100G"))
    assert found["leaf1-eth1"].buffer_bytes == 6 * 500_000
    assert found["spine1-eth1"].buffer_bytes == 2 * 500_000
    assert found["leaf1-eth1"].egress_alpha == 1


def test_a_32_port_tomahawk_has_its_16_megabytes() -> None:
    assert leaf_port("lossy", "star:hosts=32,rate=100G").buffer_bytes == 16_000_000


@pytest.mark.parametrize("policy", ["lossy", "dctcp", "roce", "pfc_only:buffer=2MB,limit=100kB"])
def test_a_hosts_nic_has_no_limit_and_marks_nothing(policy: str) -> None:
    nic = decide(parse_composition(policy).ports, parse_topology("star:hosts=4"))["h1-eth0"]
    assert (nic.limit_bytes, nic.buffer_bytes, nic.egress_alpha) == (0, 0, Fraction(0))
    assert nic.marking is None
    if nic.lossless:
        assert nic.lossless.watchdog is None


def test_a_ports_own_limit_is_the_links_buffer_where_asked() -> None:
    assert leaf_port("lossy:limit=link", "star:hosts=4,buffer=123456").limit_bytes == 123_456
    assert leaf_port("lossy:limit=100kB").limit_bytes == 100_000
    assert leaf_port("lossy").limit_bytes == 0


def test_promises_beyond_the_buffer_are_refused_with_what_to_change() -> None:
    with pytest.raises(UserError, match=r"the buffer of s1, 100 kB, has no room .* give a larger buffer="):
        leaf_port("roce:buffer=100kB")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "topology", ["leaf_spine", "fat_tree:k=4", "rail", "dumbbell", "star:hosts=2,rate=25G,mtu=1500"]
)
def test_every_preset_fits_every_fabric(preset: str, topology: str) -> None:
    fabric = parse_topology(topology)
    found = decide(parse_composition(preset).ports, fabric)
    assert set(found) == {end.name for end in fabric.interfaces()}


# ---- classes ----


def test_a_map_sends_dscps_to_classes_and_the_rest_to_the_data_class() -> None:
    port = leaf_port("roce:classes=46:6/8:1")
    assert (port.dscp_classes[46], port.dscp_classes[8], port.dscp_classes[0]) == (6, 1, DATA_CLASS)
    assert port.classes_in_use == (1, 3, 6)
    assert (port.priority(6) > port.priority(3), port.priority(1) == port.priority(3)) == (True, True)


# ---- composition ----


def test_a_preset_takes_keys_of_ports_and_of_its_load_balancer() -> None:
    found = parse_composition("roce:lb=ecmp,seed=3,cc=cubic,kmin=4us,polarised=yes")
    assert found.balancer == Ecmp(seed=3, polarised=True)
    assert found.balancer_spec == "ecmp:seed=3,polarised=yes"
    assert (found.preset, found.ports.cc, str(found.ports.kmin)) == ("roce", "cubic", "4000ns")
    assert found.ports.pfc


def test_the_name_of_a_load_balancer_alone_means_lossy_ports() -> None:
    found = parse_composition("single")
    assert (found.balancer, found.ports, found.preset) == (Single(), PRESETS["lossy"].policy, "lossy")
    assert parse_composition("ecmp:seed=3,buffer=8MB").ports.buffer is not None


@pytest.mark.parametrize(
    ("policy", "cc", "ecn"),
    [("lossy", "cubic", "off"), ("dctcp", "dctcp", "on"), ("roce", "dctcp", "on"), ("pfc_only", "cubic", "off")],
)
def test_a_preset_says_how_hosts_must_be_set(policy: str, cc: str, ecn: str) -> None:
    assert parse_composition(policy).host_settings == {"cc": cc, "ecn": ecn}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rocky", "unknown policy 'rocky'; known: .*dctcp, .*roce"),
        ("roce:kmim=4us", "unknown parameter of policy roce 'kmim'; known: .*kmax, kmin, .*lb.*xoff"),
        ("roce:lb=ecpm", "unknown load balancer lb 'ecpm'; known: .*ecmp"),
        ("ecmp:lb=single", "policy ecmp: it is a load balancer itself; write lossy:lb=single"),
        ("lossy:polarised=perhaps", "policy ecmp: polarised: 'perhaps' is neither yes nor no"),
        ("roce:kmin=fast", "policy roce: kmin: 'fast' is no threshold"),
        ("roce:pmax=2", "policy roce: pmax: '2' is no probability"),
        ("roce:alpha=0.3", "policy roce: alpha: 0.3 is not a multiple of 1/256"),
        ("roce:watchdog=1ms/explode", "policy roce: watchdog: 'explode' is neither drop nor forward"),
        ("roce:alpha=1,xoff=1MB", "policy roce: xoff and alpha are two ways"),
        ("lossy:headroom=1kB", "policy lossy: headroom means nothing with pfc=off"),
        ("lossy:kmax=4us", "policy lossy: kmax without kmin"),
        ("roce:classes=46", "policy roce: classes: '46' is not DSCP:CLASS"),
        ("roce:classes=46:9", "policy roce: classes: 46:9: 9 is not in 0..7"),
        ("roce:kmin=4us,ecn.kmin=5us", "policy roce: kmin is given twice"),
        ("roce:pfc.kmin=4us", "unknown parameter of policy roce 'pfc.kmin'"),
    ],
)
def test_mistakes_are_named(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        parse_composition(spec)


def test_kmax_below_kmin_is_refused_where_it_is_known() -> None:
    with pytest.raises(UserError, match="kmax is 12500 B and below kmin, 400000 B"):
        leaf_port("roce:kmax=1us")


def test_asking_for_a_fixed_threshold_takes_alpha_back_and_the_reverse() -> None:
    fixed = leaf_port("roce:xoff=150kB").lossless
    assert fixed is not None
    assert (fixed.alpha, fixed.xoff_bytes) == (Fraction(0), 150_000)
    policy = PortPolicy(pfc=True, alpha=Fraction(1, 4)).changed({"xoff": "1MB"}, where="x")
    assert (policy.alpha, policy.xoff is not None) == (None, True)


def test_without_pfc_a_preset_forgets_what_belongs_to_it() -> None:
    port = leaf_port("roce:pfc=off")
    assert port.lossless is None
    assert port.marking is not None


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_written_down_is_the_same_policy_again(preset: str) -> None:
    policy = PRESETS[preset].policy
    written = {key: value for key, value in policy.written().items() if value != "none" or key != "classes"}
    assert PortPolicy().changed(written, where="x") == policy


def test_every_key_has_a_help_text_and_a_group() -> None:
    for name, each in parameters().items():
        assert each.metadata["help"], name
        assert each.metadata["group"] in {"host", "ecn", "pfc", "buffer", "link"}


def test_unknown_names_are_a_kind_of_their_own() -> None:
    with pytest.raises(UnknownName):
        parse_composition("roce:kmim=4us")
