"""Incast under several policies on one fabric: what overflows, what marks, what pauses, and what timeouts cost."""

from typing import Any

import pytest

from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run


@pytest.fixture(scope="module")
def compared(run_experiment: RunExperiment) -> Run:
    """Four senders fit 2 MB and overflow 0.5 MB, unless pauses hold them back."""
    settings = ("policies=lossy,dctcp,roce", "buffers=0.5M,2M", "sizes=256k", "fan_in=2,4", "repetitions=1")
    options = [word for setting in settings for word in ("--set", setting)]
    return run_experiment("incast", "--topology", "star:hosts=5", *options).succeeded()


def line(run: Run, policy: str, buffer_bytes: int, senders: int) -> dict[str, Any]:
    """Of the table."""
    found = [
        each
        for each in run.results.sections["incast"]
        if (each["policy"], each["buffer_bytes"], each["senders"]) == (policy, buffer_bytes, senders)
    ]
    assert len(found) == 1
    return dict(found[0])


def test_every_claim_holds(compared: Run) -> None:
    assert len(compared.results.claims) == 3
    assert not [claim for claim in compared.results.claims if not claim.holds]


@pytest.mark.parametrize("policy", ["lossy", "dctcp"])
def test_a_small_buffer_drops_and_a_timeout_costs_its_time(compared: Run, policy: str) -> None:
    """Initial windows alone overflow it, so congestion control cannot help."""
    small, large = (line(compared, policy, size, 4) for size in (500_000, 2_000_000))
    assert small["dropped"] == small["dropped_egress"] == small["retransmissions"] > 0
    assert small["timeouts"] > 0
    assert 200_000 < small["worst_us"] < 220_000
    assert (large["dropped"], large["timeouts"]) == (0, 0)
    assert large["goodput_share"] > 0.85


def test_pauses_lose_nothing(compared: Run) -> None:
    """As fast in the small buffer as in the large one."""
    small, large = (line(compared, "roce", size, 4) for size in (500_000, 2_000_000))
    assert small["pauses"] > large["pauses"] == 0
    assert small["dropped"] == large["dropped"] == 0
    assert small["worst_us"] == pytest.approx(large["worst_us"], rel=0.05)


def test_only_dctcp_is_marked(compared: Run) -> None:
    assert line(compared, "dctcp", 2_000_000, 4)["marks"] > 0
    assert all(line(compared, "lossy", size, 4)["marks"] == 0 for size in (500_000, 2_000_000))


def test_the_shortest_timer_decides_where_senders_time_out(run_experiment: RunExperiment) -> None:
    """The same blocks, the same drops, another rto_min: only the wait differs, and the timer is in force as asked."""
    settings = ("policies=lossy", "buffers=0.5M", "sizes=256k", "fan_in=4", "repetitions=1", "rto_mins=200ms,5ms")
    options = [word for setting in settings for word in ("--set", setting)]
    run = run_experiment("incast", "--topology", "star:hosts=5", *options).succeeded()
    slow, fast = run.results.sections["incast"]
    assert (slow["rto_min_us"], fast["rto_min_us"]) == (200_000, 5_000)
    assert slow["dropped"] == fast["dropped"] > 0
    assert slow["timeouts"] == fast["timeouts"] > 0
    assert 5_000 < fast["worst_us"] < 15_000
    claims = {claim.claim: claim for claim in run.results.claims}
    assert claims["where senders time out, the least retransmission timeout decides"].holds
    assert all(claim.holds for claim in claims.values())
