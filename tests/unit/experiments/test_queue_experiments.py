"""The pure parts of what holds queues, marks them and lets them overflow."""

import numpy as np
import pytest

from controller.port_policies.composition import parse_composition
from controller.port_policies.decision import Marking, decide
from experiments.ecn_sweep import depths, law
from experiments.incast import policies, room_bytes, with_buffer
from experiments.workloads.held_queue import plateau
from testbed.sampler import Series
from topologies.errors import RunFailed
from topologies.registry import parse_topology

RAMP = Marking(kmin_bytes=100_000, kmax_bytes=200_000, pmax=0.5)


def test_depths_lie_below_along_and_above() -> None:
    assert list(depths(RAMP)) == [50_000, 90_000, 125_000, 150_000, 175_000, 220_000, 250_000]
    assert len(list(depths(Marking(kmin_bytes=10, kmax_bytes=10, pmax=1)))) == 4


@pytest.mark.parametrize(("queue", "share"), [(100_000, 0.0), (150_000, 0.25), (200_000, 0.5), (200_001, 1.0)])
def test_law(queue: int, share: float) -> None:
    assert law(RAMP, queue) == share


def series(queue: list[int]) -> Series:
    """Ten packets leave between samples, every other one is marked."""
    columns = {name: np.arange(len(queue)) * step for name, step in (("sent_packets", 10), ("marked", 5))}
    port = {"now_ns": np.arange(len(queue)), "queue_bytes": np.array(queue)}
    return Series(interface="s1-eth1", start_ns=0, port=port, classes={3: columns})


def test_a_plateau_is_counted_from_its_first_to_its_last_sample() -> None:
    held = plateau(series([0, 500, *[1000] * 12, 400, 0]), depth_bytes=1000, frame_bytes=100, dropped=0)
    assert (held.queue_bytes, held.sent, held.marked, held.share) == (1000, 110, 55, 0.5)


@pytest.mark.parametrize("queue", [[1000] * 9, [*[1000] * 9, 0, *[1000] * 9]])
def test_a_queue_that_does_not_stand_still_is_an_error(queue: list[int]) -> None:
    with pytest.raises(RunFailed, match="did not stand still"):
        plateau(series(queue), depth_bytes=1000, frame_bytes=100, dropped=0)


def test_policies_are_separated_by_commas_unless_they_have_keys() -> None:
    assert policies("lossy,dctcp") == ["lossy", "dctcp"]
    assert policies("lossy:limit=link,cc=reno;roce") == ["lossy:limit=link,cc=reno", "roce"]
    assert with_buffer("lossy", 5) == "lossy:buffer=5B"
    assert with_buffer("lossy:cc=reno", 5) == "lossy:cc=reno,buffer=5B"
    assert with_buffer("lossy", None) == "lossy"


@pytest.mark.parametrize(
    ("policy", "room"),
    [("lossy", 500_000), ("lossy:egress_alpha=none", 1_000_000), ("lossy:limit=90kB", 90_000)],
)
def test_a_lossy_queue_may_hold_its_share(policy: str, room: int) -> None:
    topology = parse_topology("star:hosts=2,buffer=500kB")
    assert room_bytes(decide(parse_composition(policy).ports, topology)["s1-eth1"]) == room
