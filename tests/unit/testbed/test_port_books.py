"""Every sum that must hold at a port, broken once each."""

from dataclasses import replace
from typing import Any

import pytest

from testbed.port.books import broken
from testbed.port.config import ClassConfig, PortConfig
from testbed.port.model import Packet, SwitchModel
from testbed.port.stats import ClassStats, Drops, PortStats


def after_traffic() -> PortStats:
    """Ten frames through a small shared buffer, some of them dropped; at rest."""
    switch = SwitchModel(buffer_bytes=5000)
    config = PortConfig(rate_bps=10**9, delay_ns=500, buffer_id=1, buffer_bytes=5000, classes=(ClassConfig(),) * 8)
    one, other = switch.add_port(config), switch.add_port(config)
    for _ in range(10):
        one.arrive(Packet(size_bytes=1000), came_in=other, now=0)
    switch.advance(10**6)
    while one.wire:
        one.deliver()
    return one.stats(10**6)


def first_class(stats: PortStats, **changes: Any) -> PortStats:
    return replace(stats, classes=(replace(stats.classes[0], **changes), *stats.classes[1:]))


def test_a_port_at_rest_adds_up_with_drops() -> None:
    stats = after_traffic()
    assert stats.dropped_packets > 0
    assert broken("s1-eth1", stats, is_switch=True) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"enqueued_packets": 11}, "class 0: 11 packets came, 10 were sent, dropped or wait"),
        ({"dropped_bytes": Drops(shared=1)}, "class 0: 10000 bytes came"),
        ({"ingress_bytes": 5}, "class 0: 5 B of the buffer are charged to this ingress at rest"),
        ({"headroom_bytes": 7}, "class 0: 7 B of the buffer are charged to this ingress at rest"),
    ],
)
def test_a_class_that_does_not_add_up_is_named(changes: dict[str, Any], said: str) -> None:
    found = broken("s1-eth1", first_class(after_traffic(), **changes), is_switch=True)
    assert any(text.startswith(f"port s1-eth1, {said}") for text in found), found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shared_bytes": 9}, "9 B of the shared buffer are charged at rest"),
        ({"control_failed": 2}, "2 pause frames could not be made"),
        ({"queue_packets": 1}, "1 packets still wait"),
        ({"delivered_packets": 99}, "packets began to be sent"),
        ({"wire_flushed_bytes": 99}, "bytes began to be sent"),
    ],
)
def test_a_port_that_does_not_add_up_is_named(changes: dict[str, Any], said: str) -> None:
    found = broken("s1-eth1", replace(after_traffic(), **changes), is_switch=True)
    assert len(found) == 1
    assert said in found[0]


def test_a_hosts_nic_must_not_drop_unless_its_cable_was_pulled() -> None:
    stats = after_traffic()
    assert any("dropped" in text for text in broken("h1-eth0", stats, is_switch=False))
    lost = stats.dropped_packets
    pulled = ClassStats(enqueued_packets=lost, dropped_packets=Drops(flush=lost))
    alone = replace(stats, classes=(pulled,) + (ClassStats(),) * 7, delivered_packets=0, delivered_bytes=0)
    assert broken("h1-eth0", alone, is_switch=False) == []
