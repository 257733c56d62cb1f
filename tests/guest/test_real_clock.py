"""The real clock's verdict, in a guest whose clock is the machine's: too fast a fabric is invalid, a slower one not."""

import sys
from pathlib import Path

import pytest

from experiments.results import Results, read_results
from testbed.guest.machine import Boot, boot

RING_BYTES = 400_000


def measured(rate: str, folder: Path) -> tuple[int, Results, str]:
    """Four ranks' all-reduce on links of this rate: exit code, results, and what was said."""
    folder.mkdir()
    said: list[str] = []
    options = ("--topology", f"star:hosts=4,rate={rate},mtu=1500", "--set", f"sizes={RING_BYTES}")
    few = ("--set", "iterations=2", "--out", "/out/run")
    command = (sys.executable, "experiments/all_reduce.py", "--clock", "real", *options, *few)
    code = boot(Boot(command=command, run_dir=folder, time_travel=False), said.append)
    return code, read_results(folder / "run" / "results.json"), "\n".join(said)


@pytest.mark.timeout(300)
def test_an_overloaded_processor_makes_a_run_invalid_and_a_tenth_of_the_rate_does_not(
    guest_kernel: Path, tmp_path: Path
) -> None:
    """The same bytes ten times as slowly leave it idle for most of the time."""
    code, overloaded, said = measured("40M", tmp_path / "fast")
    assert (code, overloaded.valid) == (1, False)
    assert "10% is the least" in said
    assert "on this machine links of" in said
    code, rested, said = measured("4M", tmp_path / "slow")
    assert rested.valid, rested.reasons
    assert code == 0, said
    assert rested.clock == "real"
    calibrated = rested.sections["calibration"]
    assert len(calibrated) == 8
    assert all(each["measured_bps"] == pytest.approx(4e6, rel=0.1) for each in calibrated)
