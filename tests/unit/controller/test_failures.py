"""Detection of broken links: what is believed when, from ports and times."""

import pytest

from controller.failures import LinkStates
from topologies.registry import parse_topology

DELAY_NS = 1_000
FABRIC = parse_topology("leaf_spine:leaves=2,spines=2,hosts=1")
PORT, PEER = FABRIC.link_named["leaf1-spine2"].a.name, FABRIC.link_named["leaf1-spine2"].b.name


@pytest.fixture
def links() -> LinkStates:
    """All up."""
    return LinkStates(FABRIC, DELAY_NS)


def test_a_dead_port_is_believed_after_the_delay_and_not_before(links: LinkStates) -> None:
    links.port(PORT, live=False, now_ns=50)
    assert links.due_ns == 50 + DELAY_NS
    assert (links.settle(49 + DELAY_NS), links.down) == (False, frozenset())
    assert (links.settle(50 + DELAY_NS), links.down) == (True, frozenset({"leaf1-spine2"}))
    assert [(it.link, it.up, it.seen_ns, it.detected_ns) for it in links.detections] == [
        ("leaf1-spine2", False, 50, 50 + DELAY_NS)
    ]
    assert links.due_ns is None


def test_the_other_end_of_the_same_link_changes_nothing(links: LinkStates) -> None:
    links.port(PORT, live=False, now_ns=50)
    links.port(PEER, live=False, now_ns=60)
    assert links.settle(50 + DELAY_NS)
    links.port(PORT, live=True, now_ns=5_000)
    assert links.due_ns is None
    links.port(PEER, live=True, now_ns=6_000)
    assert (links.settle(6_000 + DELAY_NS), links.down) == (True, frozenset())


def test_a_flap_shorter_than_the_delay_goes_unnoticed(links: LinkStates) -> None:
    for flap_ns in range(0, 5 * DELAY_NS, DELAY_NS):
        links.port(PORT, live=False, now_ns=flap_ns)
        assert not links.settle(flap_ns + DELAY_NS // 2)
        links.port(PORT, live=True, now_ns=flap_ns + DELAY_NS // 2)
    assert not links.settle(10 * DELAY_NS)
    assert links.detections == []


def test_a_hosts_cable_is_noticed_but_changes_no_path(links: LinkStates) -> None:
    host = FABRIC.link_named["h1-leaf1"]
    links.port(host.b.name, live=False, now_ns=0)
    assert (links.settle(DELAY_NS), links.down) == (False, frozenset())
    assert [it.link for it in links.detections] == ["h1-leaf1"]


def test_links_that_fail_apart_are_believed_apart(links: LinkStates) -> None:
    links.port(PORT, live=False, now_ns=0)
    links.port(FABRIC.link_named["leaf2-spine2"].a.name, live=False, now_ns=10)
    assert links.due_ns == DELAY_NS
    assert links.settle(DELAY_NS)
    assert links.down == {"leaf1-spine2"}
    assert links.due_ns == DELAY_NS + 10
