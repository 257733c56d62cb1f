"""What a bucket costs: a line where NICs hand arrivals over at once, a staircase where they moderate (facts.md 24)."""

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

MODERATION_US = 8
RANKS = 4
SMALL, LARGE = 16 << 10, 256 << 10
KEYS = ("gradient=1MiB", "buckets=16KiB,64KiB,256KiB,1MiB")


def sweep(run_experiment: RunExperiment, *keys: str) -> Results:
    """One MiB in pieces, on a star of four."""
    options = [word for key in (*KEYS, *keys) for word in ("--set", key)]
    results = run_experiment("buckets", "--topology", f"star:hosts={RANKS}", *options).succeeded().results
    assert results.valid, results.reasons
    assert [f"{claim.claim}: {claim.measured}" for claim in results.claims if not claim.holds] == []
    return results


@pytest.fixture(scope="module")
def at_once(run_experiment: RunExperiment) -> Results:
    """NICs that hand arrivals over at once, as the experiment wants them."""
    return sweep(run_experiment)


@pytest.fixture(scope="module")
def moderated(run_experiment: RunExperiment) -> Results:
    """NICs that wait for more arrivals."""
    return sweep(run_experiment, f"host.moderation={MODERATION_US}us")


def each_us(results: Results) -> dict[int, float]:
    """Size of a bucket -> its time."""
    return {row["bucket_bytes"]: row["time_us"] / row["buckets"] for row in results.sections["buckets"]}


def test_the_law_explains_the_sweep_and_every_point_of_it(at_once: Results) -> None:
    assert "R2 above 0.98" in at_once.claims[0].expected
    assert len(at_once.claims) == 5, "R2, three sizes below the whole, and 64 KiB being steep"


def test_the_cost_of_a_bucket_is_its_latency(at_once: Results) -> None:
    """The fitted slope is T0, and the fitted rest is what the bytes take: neither was told to the fit."""
    cost = at_once.sections["cost"]
    assert cost["fitted_us_per_bucket"] == pytest.approx(cost["smallest_us"], rel=0.1)
    wire_us = 2 * (RANKS - 1) / RANKS * (1 << 20) * 8 / 100e3
    assert cost["fitted_us_of_the_bytes"] == pytest.approx(wire_us, rel=0.1)


def test_moderation_makes_latency_whole_flushes_that_swallow_small_buckets(
    moderated: Results, at_once: Results
) -> None:
    times = each_us(moderated)
    flushes = times[SMALL] / MODERATION_US
    assert flushes == pytest.approx(round(flushes), abs=0.05)
    assert round(flushes) == 4 * (RANKS - 1), "two messages in each of 2 (P-1) steps, a flush for each"
    assert times[64 << 10] == pytest.approx(times[SMALL], rel=0.005), "four times the bytes for nothing"
    assert each_us(at_once)[64 << 10] > 1.15 * each_us(at_once)[SMALL]
    assert moderated.sections["cost"]["smallest_us"] > 3 * at_once.sections["cost"]["smallest_us"]


def test_a_moderating_fabric_is_held_to_bounds_and_not_to_the_line(moderated: Results) -> None:
    assert not [claim for claim in moderated.claims if "R2" in claim.expected]
    bounded = [claim for claim in moderated.claims if "NICs that moderate" in claim.claim]
    assert len(bounded) == 3
