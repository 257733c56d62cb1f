"""Where ranks sit, and why hosts cannot reach each other."""

import pytest

from experiments.jobs import Work, check_together, cut_off
from experiments.placement import PLACEMENTS, place
from topologies.errors import UserError
from topologies.registry import parse_topology

FABRIC = parse_topology("leaf_spine:leaves=2,spines=2,hosts=4")


@pytest.mark.parametrize(
    ("placement", "hosts"),
    [
        ("contiguous", "h1 h2 h3 h4 h5 h6 h7 h8"),
        ("interleaved", "h1 h5 h2 h6 h3 h7 h4 h8"),
        ("part_filled", "h1 h5 h3 h7"),
    ],
)
def test_the_order_of_ranks(placement: str, hosts: str) -> None:
    assert place(FABRIC, placement, seed=1) == hosts.split()
    assert place(FABRIC, placement, seed=1, ranks=3) == hosts.split()[:3]


def test_a_random_order_is_the_seeds_and_has_everybody_once() -> None:
    orders = {tuple(place(FABRIC, "random", seed=seed)) for seed in range(20)}
    assert len(orders) == 20
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(host.name for host in FABRIC.hosts))}
    assert place(FABRIC, "random", seed=3) == place(FABRIC, "random", seed=3)


def test_racks_of_different_sizes_are_interleaved_to_the_end() -> None:
    rail = parse_topology("star:hosts=3")
    assert place(rail, "interleaved", seed=1) == ["h1", "h2", "h3"]
    assert place(rail, "part_filled", seed=1) == ["h1", "h3"]


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(UserError, match="unknown placement 'best'; known: contiguous"):
        place(FABRIC, "best", seed=1)
    with pytest.raises(UserError, match="5 ranks: placement part_filled has room for 1 to 4"):
        place(FABRIC, "part_filled", seed=1, ranks=5)
    assert set(PLACEMENTS) == {"contiguous", "interleaved", "random", "part_filled"}


def test_a_cut_names_host_and_link() -> None:
    hosts = [host.name for host in FABRIC.hosts]
    assert cut_off(FABRIC, frozenset(), hosts) == []
    assert cut_off(FABRIC, frozenset({"leaf1-spine1"}), hosts) == []
    assert cut_off(FABRIC, frozenset({"h3-leaf1"}), hosts) == ["host h3 is cut off: its link h3-leaf1 is down"]
    found = cut_off(FABRIC, frozenset({"leaf1-spine1", "leaf1-spine2"}), ["h1", "h2", "h5"])
    assert found == ["host h5 is cut off from h1: no way is left with leaf1-spine1, leaf1-spine2 down"]


def test_jobs_on_one_host_must_want_the_same_of_it() -> None:
    one, other = Work(program=print, cc="dctcp"), Work(program=print)
    check_together([one, other], [["h1"], ["h2"]])
    with pytest.raises(UserError, match="jobs 1 and 2 want different congestion control on h1"):
        check_together([one, other], [["h1", "h2"], ["h1"]])
