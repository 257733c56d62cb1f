"""What a host's software adds to its NIC, and where it cannot."""

import pytest

from testbed.host_settings import HostSettings
from testbed.plan import Plan
from testbed.port.config import ClassConfig, PortConfig
from testbed.port.fabric_port import FabricPort
from testbed.port.host_cost import HostCost
from testbed.port.registry import port_named
from topologies.errors import UserError
from topologies.registry import parse_topology

FABRIC = parse_topology("star:hosts=2,rate=100G,delay=1us")
CONFIG = PortConfig(rate_bps=100 * 10**9, delay_ns=1000)


def plan(**host: str) -> Plan:
    return Plan(topology=FABRIC, settings=HostSettings.model_validate(host), tag="test")


def test_nothing_is_added_unless_asked() -> None:
    assert HostSettings().cost.is_free
    assert HostCost().told(CONFIG) is CONFIG


def test_a_message_is_late_and_bytes_leave_at_the_slower_of_software_and_link() -> None:
    told = HostCost(message_ns=100_000, megabyte_ns=200_000).told(CONFIG)
    assert (told.delay_ns, told.rate_bps) == (101_000, 40 * 10**9)
    assert HostCost(megabyte_ns=10_000).told(CONFIG).rate_bps == CONFIG.rate_bps, "800 Gb/s of software"


def test_only_hosts_have_software() -> None:
    egresses = plan(message_cost="2us", byte_cost="80us").egresses
    assert egresses["h1-eth0"].cost == HostCost(message_ns=2000, megabyte_ns=80_000)
    assert egresses["s1-eth1"].cost.is_free


def test_the_kernel_is_told_and_held_to_it_while_the_decision_stays() -> None:
    """Also when the port changes: half the rate of a link is then still behind the same software."""
    egress, port = plan(message_cost="100us").egresses["h1-eth0"], FabricPort({"h1-eth0": CONFIG})
    port.check(egress)
    assert port.config(egress) == CONFIG
    assert port.wanted(egress)["delay_ns"] == 101_000
    port.change(egress, PortConfig(rate_bps=50 * 10**9, delay_ns=1000))
    assert port.wanted(egress)["rate_bps"] == 50 * 10**9
    assert port.wanted(egress)["delay_ns"] == 101_000


def test_pauses_and_a_late_message_do_not_go_together() -> None:
    lossless = PortConfig(rate_bps=100 * 10**9, delay_ns=1000, classes=(ClassConfig(pfc=True), *[ClassConfig()] * 7))
    port = FabricPort({"h1-eth0": lossless})
    port.check(plan(byte_cost="80us").egresses["h1-eth0"])
    with pytest.raises(UserError, match="message_cost with PFC"):
        port.check(plan(message_cost="2us").egresses["h1-eth0"])


def test_stock_ports_have_no_software() -> None:
    with pytest.raises(UserError, match="need ports of kind fabric"):
        port_named("stock").check(plan(byte_cost="80us").egresses["h1-eth0"])
