"""ECMP's collisions are visible: two flows hashed to one uplink get half each, and the table of paths says so."""

from ipaddress import IPv4Address
from itertools import count

import pytest

from controller.policies import parse_policy
from controller.policies.base import Situation
from controller.selector.flow_hash import TCP, Flow
from experiments.results import FlowPath
from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Run
from topologies.graph import leaf_of
from topologies.registry import parse_topology

FABRIC = "leaf_spine:leaves=2,hosts=2,spines=2"
TOPOLOGY = parse_topology(FABRIC)
SPORT, DPORT = 40001, 5001
LINE_GBPS = 100
PAYLOAD_SHARE = 8948 / 9014
"""Of a full frame at MTU 9000 with TCP timestamps."""


def flows() -> list[Flow]:
    """h1 -> h3 and h2 -> h4, as two_flows.py opens them."""
    nics = [TOPOLOGY.interfaces_of[f"h{number}"][0] for number in (1, 2, 3, 4)]
    ips = [IPv4Address(str(nic.ip)) for nic in nics]
    return [
        Flow(src=ips[number], dst=ips[number + 2], proto=TCP, sport=SPORT + number, dport=DPORT) for number in (0, 1)
    ]


def uplinks(seed: int) -> list[int]:
    """Which uplink of leaf1 each flow takes under this seed, by the Python twin of the selector."""
    selection = parse_policy("ecmp").selection(Situation(topology=TOPOLOGY, seed=seed))
    leaves = {IPv4Address(str(nic.ip)): leaf_of(TOPOLOGY, nic.name).name for nic in TOPOLOGY.host_interfaces()}
    return [selection.mark(flow, leaves) >> 8 & 0xFF for flow in flows()]


def first_seed(*, shared: bool) -> int:
    """The lowest seed under which the two flows share an uplink, or do not."""
    return next(seed for seed in count(1) if (len(set(uplinks(seed))) == 1) == shared)


def data_paths(run: Run) -> list[FlowPath]:
    """Of the two flows, in the order of their senders."""
    found = {path.src: path for path in run.results.paths if path.dport == DPORT}
    return [found[str(flow.src)] for flow in flows()]


@pytest.fixture(scope="module")
def collided(run_experiment: RunExperiment) -> Run:
    """A run in which both flows hash to one uplink; DCTCP, because two of CUBIC take long to come to equal shares."""
    options = ("--topology", FABRIC, "--policy", "dctcp:lb=ecmp", "--seed", str(first_seed(shared=True)))
    return run_experiment(SCRIPTS / "two_flows.py", *options).succeeded()


@pytest.fixture(scope="module")
def apart(run_experiment: RunExperiment) -> Run:
    """A run in which each has its own."""
    seed = str(first_seed(shared=False))
    return run_experiment(SCRIPTS / "two_flows.py", "--topology", FABRIC, "--seed", seed).succeeded()


def test_two_flows_on_one_uplink_get_half_each(collided: Run) -> None:
    goodputs = collided.results.sections["goodput_gbps"]
    full = LINE_GBPS * PAYLOAD_SHARE
    assert sum(goodputs) == pytest.approx(full, rel=0.03)
    for goodput in goodputs:
        assert goodput == pytest.approx(full / 2, rel=0.05), goodputs


def test_two_flows_on_two_uplinks_get_all_each(apart: Run) -> None:
    for goodput in apart.results.sections["goodput_gbps"]:
        assert goodput >= 0.97 * LINE_GBPS * PAYLOAD_SHARE


def test_the_table_of_paths_says_which_link_they_share(collided: Run, apart: Run) -> None:
    one, other = data_paths(collided)
    assert one.path[1:3] == other.path[1:3] == (one.path[1], f"spine{uplinks(collided.results.seed)[0] + 1}-eth2")
    one, other = data_paths(apart)
    assert one.path[1] != other.path[1]
    assert {one.path[2], other.path[2]} == {"spine1-eth2", "spine2-eth2"}


@pytest.mark.parametrize("name", ["collided", "apart"])
def test_the_table_agrees_with_the_counters(name: str, request: pytest.FixtureRequest) -> None:
    """Each uplink carried the bytes of the flows that the table puts on it, the selector's count to the byte."""
    run: Run = request.getfixturevalue(name)
    sent = dict.fromkeys(("leaf1-eth3", "leaf1-eth4"), 0)
    for path in run.results.paths:
        for egress in set(path.path) & set(sent):
            sent[egress] += path.bytes
    carried = {link.name.partition(">")[0]: link.tx_bytes for link in run.results.links}
    drops = {link.name.partition(">")[0]: link.drops for link in run.results.links}
    for egress, path_bytes in sent.items():
        assert carried[egress] == pytest.approx(path_bytes - 9014 * drops[egress], rel=1e-4, abs=2000)


def test_each_flow_takes_the_path_that_the_hash_says(collided: Run, apart: Run) -> None:
    """The BPF program in the guest and its Python twin on this machine agree."""
    for run in (collided, apart):
        for path, digit in zip(data_paths(run), uplinks(run.results.seed), strict=True):
            assert path.mark >> 8 & 0xFF == digit
            assert path.path[1] == f"leaf1-eth{3 + digit}"
