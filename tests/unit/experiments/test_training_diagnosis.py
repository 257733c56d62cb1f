"""Who is to blame: arrivals at collectives and times of sending, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest

from experiments.training.diagnosis import (
    PortUse,
    held_up_ns,
    late_ranks,
    longer_compute_ns,
    slow_links,
    speeds_gbps,
)
from experiments.training.timeline import Interval, Kind, StepRecord
from experiments.training.unsteady_link import Dips, durations_ns


def step(number: int, *arrivals_ns: Sequence[int]) -> list[StepRecord]:
    """One step: arrivals_ns[rank] are the instants at which it begins collectives 0, 1, ..."""
    return [
        StepRecord(
            number=number,
            start_ns=0,
            end_ns=1000,
            intervals=tuple(
                Interval(kind=Kind.COMMUNICATION, name=f"bucket{place}", start_ns=at, end_ns=at + 100)
                for place, at in enumerate(of_rank)
            ),
        )
        for of_rank in arrivals_ns
    ]


def records(*steps: list[StepRecord]) -> list[list[StepRecord]]:
    """records[rank][step]."""
    return [list(of_rank) for of_rank in zip(*steps, strict=True)]


def test_the_last_is_to_blame_for_the_time_since_the_one_before_it() -> None:
    assert held_up_ns(records(step(0, [100], [110], [400]))) == {0: 0, 1: 0, 2: 290}


def test_every_collective_of_every_step_counts_and_warm_up_does_not() -> None:
    found = held_up_ns(records(step(-1, [0], [900]), step(0, [0, 50], [10, 20]), step(1, [5], [0])))
    assert found == {0: 30 + 5, 1: 10}


def test_who_comes_early_and_the_many_after_it_are_not_to_blame() -> None:
    """A jittery rank that was fast this time: the others come together, nobody has kept anybody waiting."""
    assert held_up_ns(records(step(0, [50], [100], [100], [100]))) == {0: 0, 1: 0, 2: 0, 3: 0}


def test_who_began_late_because_the_ring_left_it_last_is_not_to_blame() -> None:
    """Found with a slow NIC behind two switches: the rank that receives from it ends last, and so begins last."""
    early, late = (
        StepRecord(
            number=0,
            start_ns=start,
            end_ns=1000,
            intervals=(Interval(kind=Kind.COMMUNICATION, name="bucket0", start_ns=start + own, end_ns=900),),
        )
        for start, own in ((0, 100), (300, 110))
    )
    assert held_up_ns([[early], [late]]) == {0: 0, 1: 10}


def test_one_rank_alone_waits_for_nobody() -> None:
    assert held_up_ns(records(step(0, [50]))) == {0: 0}


def test_what_a_rank_computes_longer_than_all_others() -> None:
    def computing(*spent_ns: int) -> list[StepRecord]:
        return [
            StepRecord(
                number=0,
                start_ns=0,
                end_ns=1000,
                intervals=(Interval(kind=Kind.COMPUTE, name="step", start_ns=0, end_ns=each),),
            )
            for each in spent_ns
        ]

    steps = records(computing(100, 100, 150), computing(100, 100, 20), computing(100, 100, 110))
    assert [longer_compute_ns(steps, rank) for rank in (0, 1, 2)] == [0, 0, 60]


def test_named_is_who_costs_more_than_a_fiftieth() -> None:
    assert late_ranks({0: 10, 1: 201, 2: 200, 3: 900}, total_ns=10_000) == [3, 1]
    assert late_ranks({0: 0, 1: 0}, total_ns=0) == []


def port(interface: str, link: str, busy_ns: int, sent_bytes: int = 1000) -> PortUse:
    return PortUse(interface=interface, link=link, host=link.split("-")[0], busy_ns=busy_ns, sent_bytes=sent_bytes)


def test_a_link_is_named_once_by_its_longest_direction() -> None:
    ports = [
        *(port(f"h{number}-eth0", f"h{number}-s1", 100) for number in range(1, 6)),
        port("h9-eth0", "h9-s1", 200),
        port("s1-eth9", "h9-s1", 210),
    ]
    assert [each.interface for each in slow_links(ports)] == ["s1-eth9"]


def test_equal_ports_are_not_named_and_idle_ones_have_no_speed() -> None:
    assert slow_links([port(f"h{number}-eth0", f"h{number}-s1", 100 + number) for number in range(8)]) == []
    assert port("h1-eth0", "h1-s1", 0, 0).speed_gbps == 0.0
    assert port("h1-eth0", "h1-s1", 80, 1000).speed_gbps == 100.0


def test_a_speed_is_told_where_a_port_sent_for_half_of_the_time_between_samples() -> None:
    """100 Gb/s, then 25 Gb/s, then one packet of which half was counted before: no speed."""
    busy, sent = [0, 1000, 1600, 1601], [0, 12_500, 14_375, 20_000]
    assert speeds_gbps([0, 1000, 2000, 3000], busy, sent) == (25.0, 100.0)
    assert speeds_gbps([0, 1000], [0, 10], [0, 125]) == (0.0, 0.0)


def test_a_nic_is_unsteady_when_its_speed_is() -> None:
    steady = replace(port("h1-eth0", "h1-s1", 100), speeds_gbps=(49.0, 51.0))
    assert not steady.is_unsteady
    assert replace(steady, speeds_gbps=(25.0, 51.0)).is_unsteady


def test_dips_scale_the_time_in_which_they_were() -> None:
    """Of 100 ns busy, 40 at a quarter of the rate: 60 + 10."""
    dips = Dips(share=0.25, spans=[(50, 90), (150, 200)])
    assert dips.at_full_rate_ns([(0, 100)]) == pytest.approx(70)
    assert Dips(share=1.0).at_full_rate_ns([(0, 100)]) == 100


def test_a_link_stays_as_it_is_for_half_to_one_and_a_half_times_the_mean_by_the_seeds_lots() -> None:
    one, again, other = (list(islice(durations_ns(seed, mean_ns=1000), 200)) for seed in (1, 1, 2))
    assert one == again != other
    assert 500 <= min(one) < 550
    assert 1450 < max(one) <= 1500
