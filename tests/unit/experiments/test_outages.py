"""Which failure a detection belongs to, and what it cost."""

from typing import Any

from experiments.failure_schedule import parse_failures
from experiments.outages import outages, unrepaired
from experiments.timeline import Struck
from testbed.link_faults import Losses
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,spines=2,hosts=1")
START_NS = 1_000


def struck(text: str, *dead_port: int) -> list[Struck]:
    failures = parse_failures(text, FABRIC)
    return [
        Struck(failure=failure, at_ns=START_NS + failure.at_ns, losses=Losses(dead_port=lost))
        for failure, lost in zip(failures, dead_port, strict=True)
    ]


def detection(link: str, *, up: bool, seen_us: int, repaired: bool = True) -> dict[str, Any]:
    seen_ns = START_NS + seen_us * 1_000
    repaired_ns = seen_ns + 2_000 if repaired else None
    return {"link": link, "up": up, "seen_ns": seen_ns, "detected_ns": seen_ns + 1_000, "repaired_ns": repaired_ns}


def test_each_failure_has_its_own_detection_and_its_own_losses() -> None:
    found = outages(
        struck("at 1us link leaf1-spine1 down\nat 5us link leaf1-spine1 up", 3, 10),
        [detection("leaf1-spine1", up=False, seen_us=1), detection("leaf1-spine1", up=True, seen_us=5)],
        start_ns=START_NS,
        end=Losses(dead_port=10, link=2),
    )
    assert [
        (it["at_us"], it["detected_us"], it["repaired_us"], it["lost_dead_port"], it["lost_link"]) for it in found
    ] == [
        (1, 2, 3, 7, 0),
        (5, 6, 7, 0, 2),
    ]


def test_a_flap_that_nobody_noticed_has_no_times() -> None:
    found = outages(
        struck("at 1us link leaf1-spine1 flap 2x every 2us", 0, 0, 0, 0),
        [detection("leaf1-spine1", up=False, seen_us=3)],
        start_ns=START_NS,
        end=Losses(),
    )
    assert [it["detected_us"] for it in found] == [None, None, 4, None]


def test_a_switch_is_repaired_when_its_last_link_is() -> None:
    seen = [detection("leaf1-spine1", up=False, seen_us=1), detection("leaf2-spine1", up=False, seen_us=3)]
    (found,) = outages(struck("at 1us switch spine1 down", 0), seen, start_ns=START_NS, end=Losses())
    assert (found["detected_us"], found["repaired_us"]) == (4, 5)


def test_what_was_never_repaired_is_said_except_of_hosts_links() -> None:
    seen = [detection(link, up=False, seen_us=1, repaired=False) for link in ("leaf1-spine1", "h1-leaf1")]
    (words,) = unrepaired(seen, frozenset({"h1-leaf1"}))
    assert words.startswith("link leaf1-spine1 was noticed to be down")
