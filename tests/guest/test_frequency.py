"""Equal bytes in more transfers take longer, by what sockets say: two link rates, two seeds, nothing fitted."""

from typing import Any

import pytest

from experiments.results import Results
from tests.guest.conftest import RunExperiment

FABRICS = ("rate=10G,delay=25us", "rate=25G,delay=10us")
KEYS = ("size=2M", "counts=4,40")


def measured(run_experiment: RunExperiment, fabric: str, *, hosts: int, seed: int, modes: str) -> Results:
    """A valid run; all its claims hold."""
    options = [word for key in (*KEYS, f"modes={modes}") for word in ("--set", key)]
    topology = f"star:hosts={hosts},{fabric},mtu=1500"
    done = run_experiment("frequency", "--topology", topology, "--seed", str(seed), *options).succeeded()
    assert done.results.valid, done.results.reasons
    assert [f"{it.claim}: {it.expected}, {it.measured}" for it in done.results.claims if not it.holds] == []
    return done.results


@pytest.mark.parametrize(("fabric", "seed"), list(zip(FABRICS, (1, 2), strict=True)))
def test_latency_bytes_and_slow_start_explain_transfers_over_sockets(
    run_experiment: RunExperiment, fabric: str, seed: int
) -> None:
    results = measured(run_experiment, fabric, hosts=2, seed=seed, modes="fresh,persistent,idle")
    assert sum("explain the time" in claim.claim for claim in results.claims) == 6
    rows: dict[tuple[str, int], Any] = {(row["mode"], row["transfers"]): row for row in results.sections["frequency"]}
    for mode in ("fresh", "idle"):
        lost_us = rows[mode, 40]["time_us"] - rows["persistent", 40]["time_us"]
        assert lost_us > 0.5 * rows[mode, 40]["slow_start_us"] > 0, "windows that start small cost what is said"
    assert rows["idle", 40]["idle_restarts"] == 39, "all but the first transfer"
    assert rows["persistent", 40]["idle_restarts"] == 0


def test_all_reduces_take_longer_in_ten_times_as_many_and_again_after_pauses(run_experiment: RunExperiment) -> None:
    results = measured(run_experiment, FABRICS[0], hosts=3, seed=1, modes="gloo,gloo_idle")
    rows = {(row["mode"], row["all_reduces"]): row for row in results.sections["collectives"]}
    assert rows["gloo_idle", 40]["idle_restarts"] == 3 * 40
    assert rows["gloo", 40]["latency_us"] == pytest.approx(10 * rows["gloo", 4]["latency_us"], rel=0.5)
    assert rows["gloo", 40]["bytes_us"] == pytest.approx(rows["gloo", 4]["bytes_us"])
