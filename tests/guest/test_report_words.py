"""The words of a report are true of real runs: a hash collision and an incast; for stragglers see test_straggler.py."""

from collections import Counter
from pathlib import Path

import pytest

from tests.guest.runs import run

pytestmark = pytest.mark.guest

FLOWS = "; ".join(f"at 0 h{number} -> h{number + 4} 4MB" for number in range(1, 5))
SEEDS = range(1, 9)


def test_a_hash_collision_is_named_with_its_uplink_flows_and_share(tmp_path: Path) -> None:
    """Of four flows on two uplinks three or four share one with a chance of 5 in 8: the first seed that has it."""
    topology = "leaf_spine:leaves=2,hosts=4,spines=2"
    for seed in SEEDS:
        out = tmp_path / str(seed)
        options = ("--topology", topology, "--seed", str(seed), "--set", f"schedule={FLOWS}")
        done = run("schedule", *options, out=out)
        results = done.succeeded().results
        over = Counter(flow.path[1] for flow in results.paths if flow.bytes > 4_000_000)
        assert sum(over.values()) == 4
        (uplink, flows), *_ = over.most_common(1)
        if flows >= 3:
            break
        assert "collision" not in done.words
    else:
        pytest.fail("no seed made a collision")
    (link,) = [link for link in results.links if link.name.startswith(f"{uplink}>")]
    spine = link.name.split(">")[1].split("-")[0]
    said = done.words
    assert said["collision"] == [
        f"leaf1's uplink to {spine} carried {flows} of 4 flows and was {link.utilisation:.0%} busy; an even share is 2."
    ]
    assert link.utilisation > 0.95
    assert "incast" not in said
    assert said["collision"][0].replace("'", "&#39;") in done.folder.report.read_text()


def test_an_incast_is_named_with_its_port_and_fan_in(tmp_path: Path) -> None:
    keys = ("fan_in=4", "sizes=256k", "repetitions=1")
    options = [word for key in keys for word in ("--set", key)]
    done = run("incast", "--topology", "star:hosts=5", *options, out=tmp_path / "x").succeeded()
    (text,) = done.words["incast"]
    (link,) = [link for link in done.results.links if link.name == "s1-eth1>h1-eth0"]
    assert text.startswith("4 hosts sent to h1: s1's port to it ")
    assert f"held up to {link.queue_max_bytes / 1e3:.3g} kB" in text
    assert ("dropped" in text) == (link.drops > 0)
    assert link.queue_max_bytes == max(each.queue_max_bytes for each in done.results.links)
