"""A rank that fails in the middle of a gloo job fails the run at once, by name, and nothing is published."""

import pytest

from experiments.run_folder import read_json
from tests.guest.conftest import RunExperiment
from tests.guest.runs import SCRIPTS, Run

FAULTS = {
    "raise": "ValueError: the gradient is not a number",
    "exit": "exited with code 7",
    "hang": "is stuck",
    "stop": "is stopped",
    "kill": "killed by SIGKILL",
}
VICTIM = "rank 2 on host h3"


@pytest.fixture(scope="module")
def failed(run_experiment: RunExperiment) -> Run:
    """One boot for all faults: a job each, on the same fabric; the last one's failure is the run's."""
    return run_experiment(SCRIPTS / "faulty_ranks.py", "--set", f"faults={','.join(FAULTS)}")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed_in_time_and_by_name(fault: str, failed: Run) -> None:
    """Within 5 s of virtual time, with rank, host, operation and error; no process of the job is left."""
    found = next(each for each in read_json(failed.folder.path / "faults.json")["faults"] if each["fault"] == fault)
    assert VICTIM in found["message"].splitlines()[1 if fault in ("hang", "stop") else 0]
    assert FAULTS[fault] in found["message"]
    assert "all_reduce of 1000000 bytes" in found["message"]
    assert 0 <= found["noticed_s"] < 5
    assert found["left"] == 0


def test_the_fabric_serves_the_next_job(failed: Run) -> None:
    """A failed job leaves nothing on the fabric that the next one would stumble over."""
    assert read_json(failed.folder.path / "faults.json")["healthy"] == [6, 6, 6, 6]


def test_the_run_failed_and_publishes_nothing(failed: Run) -> None:
    assert failed.exit_code == 1
    assert f"error: {VICTIM}" in failed.said
    assert not failed.folder.results.exists()
    assert not failed.folder.report.exists()
    error = read_json(failed.folder.error)
    assert (error["exit_code"], error["kind"]) == (1, "RunFailed")
    assert VICTIM in error["message"]
