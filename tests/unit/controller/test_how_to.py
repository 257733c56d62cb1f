"""Follows the how-to of controller/README.md: the policy that it prints works as it says."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from controller.fake_switch import FakeFabric, Packet
from controller.forwarding import plan
from controller.policies import POLICIES
from controller.policies.base import Policy, Situation
from controller.selector.flow_hash import TCP, Flow
from topologies.graph import leaf_of
from topologies.registry import parse_topology

README = Path(__file__).parents[3] / "controller" / "README.md"


@pytest.fixture
def printed() -> Iterator[type[Policy]]:
    """The class in the README's one block of Python."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    module = ModuleType("by_destination")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(code, str(README), "exec"), module.__dict__)
    yield module.ByDestination
    del sys.modules[module.__name__]


def test_the_policy_is_as_short_as_the_how_to_says(printed: type[Policy]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    assert printed.name not in POLICIES


@pytest.mark.parametrize("shift", [0, 1])
def test_its_packets_take_the_paths_it_promises(printed: type[Policy], shift: int) -> None:
    topology = parse_topology("leaf_spine:leaves=2,spines=4,hosts=4")
    selection = printed.parse({"shift": str(shift)}).selection(Situation(topology=topology, seed=1))
    leaf = {end.ip: leaf_of(topology, end.name).name for end in topology.host_interfaces() if end.ip is not None}
    fabric, hosts = FakeFabric(topology, plan(topology)), list(topology.host_interfaces())
    for slot, destination in enumerate(hosts):
        for source in hosts:
            assert source.ip is not None
            assert destination.ip is not None
            flow = Flow(src=source.ip, dst=destination.ip, proto=TCP, sport=1, dport=2)
            taken = fabric.trace(source, Packet(ipv4_dst=destination.ip, mark=selection.mark(flow, leaf)))
            assert topology.peer_of[taken[-1]] == destination
            if leaf[source.ip] != leaf[destination.ip]:
                assert topology.peer_of[taken[1]].node == f"spine{(slot + shift) % 4 + 1}"
