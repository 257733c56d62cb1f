"""What ports mark, and what CUBIC and DCTCP keep in them: the claims of two experiments, on small runs."""

import pytest

from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

OCCUPANCY = ("duration=20ms", "settle=10ms", "thresholds=0.02,0.3")
SWEEP = ("packets=3000", "points=100k/100k/1,50k/350k/0.4", "duration=4ms", "settle=2ms")


def options(*settings: str) -> tuple[str, ...]:
    """For the command line."""
    return tuple(word for setting in settings for word in ("--set", setting))


@pytest.fixture(scope="module")
def occupancy(run_experiment: RunExperiment) -> Run:
    """Two flows; CUBIC, DCTCP, and DCTCP at two thresholds."""
    return run_experiment("queue_occupancy", *options(*OCCUPANCY)).succeeded()


@pytest.fixture(scope="module")
def sweep(run_experiment: RunExperiment) -> Run:
    """A step and a ramp."""
    return run_experiment("ecn_sweep", *options(*SWEEP)).succeeded()


def test_every_claim_of_queue_occupancy_holds(occupancy: Run) -> None:
    claims = occupancy.results.claims
    assert len(claims) == 4
    assert not [claim for claim in claims if not claim.holds]


def test_cubic_is_never_marked_and_dctcp_never_dropped(occupancy: Run) -> None:
    """Each ran under its own ports: what a policy changes between two jobs is in force for the second alone."""
    cubic, dctcp = occupancy.results.sections["queue_occupancy"]
    assert (cubic["cc"], cubic["k_bytes"], cubic["marks"]) == ("cubic", None, 0)
    assert cubic["drops"] == cubic["retransmissions"]
    assert dctcp["cc"] == "dctcp"
    assert dctcp["drops"] == dctcp["timeouts"] == 0 < dctcp["marks"]


def test_dctcps_queue_stands_at_its_threshold(occupancy: Run) -> None:
    """The median not above K, and below it by less than DCTCP's swing, a third; where K is above the floor."""
    low, high = occupancy.results.sections["threshold"]
    assert 0.65 * high["k_bytes"] <= high["p50_queue_bytes"] <= high["k_bytes"] + 2 * 9014
    assert low["empty_percent"] > 50 > 1 > high["empty_percent"]


def test_the_distribution_is_one(occupancy: Run) -> None:
    """Of both: lengths rise with the share of time, up to the longest."""
    for curve, line in zip(
        occupancy.results.sections["queue_cdf"], occupancy.results.sections["queue_occupancy"], strict=True
    ):
        lengths, shares = zip(*curve["points"], strict=True)
        assert list(lengths) == sorted(lengths)
        assert (shares[0], shares[-1]) == (0, 1)
        assert lengths[50] == line["p50_queue_bytes"]
        assert lengths[-1] <= line["longest_queue_bytes"]


def test_sockets_ran_what_was_asked(occupancy: Run) -> None:
    assert set(occupancy.results.sections["sockets"]["cc"]) == {"cubic", "dctcp"}


def test_every_claim_of_ecn_sweep_holds(sweep: Run) -> None:
    claims = sweep.results.claims
    assert len(claims) == 3
    assert not [claim for claim in claims if not claim.holds]


def test_depths_are_where_they_were_asked_for(sweep: Run) -> None:
    """Below, along and above, in whole frames; all that left is counted, none was dropped."""
    curve = sweep.results.sections["marking_curve"]
    asked = [50_000, 90_000, 110_000, 125_000, 25_000, 45_000, 125_000, 200_000, 275_000, 385_000, 437_500]
    assert [line["queue_bytes"] for line in curve] == pytest.approx(asked, abs=1514 * 1.5)
    assert all(line["sent"] > 2800 for line in curve)
    assert not sum(link.drops for link in sweep.results.links)


def test_closed_loop_follows_the_thresholds(sweep: Run) -> None:
    """The step's queue stays about its K; the ramp keeps the line as full."""
    step, ramp = sweep.results.sections["ecn_sweep"]
    assert step["p50_queue_bytes"] == pytest.approx(100_000, rel=0.4)
    assert min(step["goodput_share"], ramp["goodput_share"]) > 0.95
    assert ramp["marks"] > 0
