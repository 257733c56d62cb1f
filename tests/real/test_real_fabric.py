"""The fabric on this machine's own kernel, as root, where the kernel has what it takes."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import clean
from testbed.capture import Capture
from testbed.doctor import missing_for
from testbed.fabric import Fabric
from testbed.host_settings import HostSettings
from testbed.port.registry import port_named
from topologies.errors import MissingFeature
from topologies.registry import parse_topology

pytestmark = pytest.mark.real
SPEC = "star:hosts=2,rate=100M,delay=1ms,buffer=100000,mtu=1500"


def _machine() -> dict[str, object]:
    """What a run might change of this machine."""
    keys = ("kernel/pty/max", "net/core/rmem_max", "net/ipv4/tcp_rmem", "net/ipv4/tcp_congestion_control")
    found: dict[str, object] = {
        key: Path("/proc/sys", key).read_text() for key in keys if Path("/proc/sys", key).exists()
    }
    found["interfaces"] = sorted(path.name for path in Path("/sys/class/net").iterdir())
    found["namespace"] = str(Path("/proc/self/ns/net").readlink())
    found["state"] = sorted(clean.STATE.iterdir()) if clean.STATE.exists() else []
    return found


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Fails the test that leaves anything behind on this machine."""
    before = _machine()
    yield
    assert _machine() == before


@pytest.fixture
def able(unchanged: None) -> None:
    """Skips where the kernel lacks a feature, naming it."""
    if missing := missing_for("real"):
        pytest.skip("this machine lacks " + ", ".join(check.name for check in missing))


def test_hosts_reach_each_other_and_books_balance(able: None, tmp_path: Path) -> None:
    fabric = Fabric(topology=parse_topology(SPEC), port=port_named("stock"), fail_mode="standalone")
    with fabric:
        with Capture(interfaces=fabric.taps(["h1-eth0"]), directory=tmp_path) as capture:
            said = fabric.net.get("h1").cmd("ping -c 5 -i 0.2 10.0.1.2")
            time.sleep(0.2)
        fabric.verify()
        assert " 0% packet loss" in said
        assert float(said.split("min/avg/max/mdev = ")[1].split("/")[0]) >= 4  # four links of 1 ms
        assert fabric.imbalances() == []
        assert capture.captured["h1-eth0"].packets >= 10
        assert capture.faults() == []


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_what_the_kernel_lacks_is_named_and_nothing_is_left(unchanged: None) -> None:
    """On a machine that lacks something, which is what most development machines do."""
    missing = missing_for("real")
    if not missing:
        pytest.skip("this machine lacks nothing")
    with pytest.raises(MissingFeature) as refused, Fabric(topology=parse_topology(SPEC), hosts=HostSettings()):
        pytest.fail("a fabric was built without what it needs")
    assert [check.name for check in missing if check.name not in str(refused.value)] == []
