"""Plain Mininet: what `mn --custom topologies/X.py --topo X,...` does, without creating a single interface."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from topologies.mn import mininet_topo
from topologies.registry import TOPOLOGIES, parse_topology

ROOT = Path(__file__).resolve().parents[3]
SYSTEM_PYTHON = "/usr/bin/python3"

LOAD_AS_MN_DOES = """
import json, sys
path, spec = sys.argv[1:]
from mininet.util import buildTopo
customs = {}
exec(compile(open(path).read(), path, "exec"), customs, customs)
topo = buildTopo(customs["topos"], spec)
heavy = sorted({"pydantic", "networkx", "yaml"} & set(sys.modules))
print(json.dumps({"hosts": topo.hosts(), "switches": topo.switches(), "links": topo.links(), "heavy": heavy,
                  "h1": topo.nodeInfo("h1"), "dpids": [topo.nodeInfo(s)["dpid"] for s in topo.switches()]}))
"""


def load(interpreter: str, name: str, spec: str) -> dict[str, Any]:
    """Runs the loader from the checkout's root, which is not on the interpreter's path, as with /usr/bin/mn."""
    command = [interpreter, "-P", "-c", LOAD_AS_MN_DOES, f"topologies/{name}.py", spec]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def has_mininet(interpreter: str) -> bool:
    command = [interpreter, "-c", "import mininet.topo"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("interpreter", [sys.executable, SYSTEM_PYTHON], ids=["ours", "debian"])
@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("star", "star,3"),
        ("dumbbell", "dumbbell,2,rate=25G"),
        ("leaf_spine", "leaf_spine,4,4,4"),
        ("fat_tree", "fat_tree,4"),
        ("rail", "rail,2,3,1"),
        ("ring", "ring,4,1"),
    ],
)
def test_custom_files_load_as_mn_loads_them(interpreter: str, name: str, spec: str) -> None:
    if not has_mininet(interpreter):
        pytest.skip(f"{interpreter} has no Mininet; install Debian's package mininet")
    values = [float(text) if "." in text else int(text) for text in spec.split(",")[1:] if "=" not in text]
    given = dict(text.split("=") for text in spec.split(",") if "=" in text)
    expected = TOPOLOGIES[name].build_positional(*values, **given)
    found = load(interpreter, name, spec)
    assert found["hosts"] == [host.name for host in expected.hosts]
    assert found["switches"] == [switch.name for switch in expected.switches]
    assert found["links"] == [[link.a.node, link.b.node] for link in expected.links]
    assert found["dpids"] == [f"{switch.dpid:016x}" for switch in expected.switches]
    assert found["h1"] == {"ip": f"{expected.interfaces_of['h1'][0].ip}/8", "mac": expected.interfaces_of["h1"][0].mac}
    assert found["heavy"] == []


def test_the_interpreters_of_this_test_are_not_both_without_mininet() -> None:
    assert has_mininet(sys.executable)


@pytest.mark.parametrize("spec", [*TOPOLOGIES, "leaf_spine:cables=3", "topologies/tapered_zones.yaml"])
def test_ports_and_addresses_are_those_of_the_topology(spec: str) -> None:
    topology = parse_topology(spec)
    topo = mininet_topo(topology)
    for link, (a, b, number, options) in zip(topology.links, topo.links(withKeys=True, withInfo=True), strict=True):
        assert (a, b, number) == (link.a.node, link.b.node, link.number)
        assert (options["port1"], options["port2"]) == (link.a.port, link.b.port)
        assert options.get("addr1") == link.a.mac
        assert options.get("addr2") == link.b.mac
        assert options.get("params1") == (None if link.a.ip is None else {"ip": f"{link.a.ip}/8"})


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_mn_copies_every_name_of_a_custom_file_into_its_own_so_none_may_hide_one(name: str) -> None:
    used_by_mn = {"os", "sys", "time", "partial", "OptionParser", "exit", "cleanup", "mininet", "lg", "LEVELS", "info"}
    used_by_mn |= {"debug", "warn", "error", "output", "Mininet", "MininetWithControlNet", "VERSION", "findController"}
    used_by_mn |= {"customClass", "buildTopo", "splitArgs", "CLI", "TOPOS", "SWITCHES", "HOSTS", "CONTROLLERS", "LINKS"}
    used_by_mn |= {"TESTS", "switches", "hosts", "controllers", "links", "tests", "validate", "runTests", "version"}
    defined: set[str] = set()
    for statement in ast.parse((ROOT / "topologies" / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.FunctionDef):
            defined.add(statement.name)
        elif isinstance(statement, ast.Assign):
            defined |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    assert {"topos", name} <= defined
    assert defined & used_by_mn <= {"sys"}  # the module itself, under its own name
