"""Several jobs at once, over the loopback: their own results, one start, and one failure ends them all."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.jobs import CommonStart
from testbed.workers.job import Job
from testbed.workers.rank import Rank
from testbed.workers.seat import Seat
from testbed.workers.together import COMMON_START, run_together
from topologies.errors import RunFailed

RANKS = 2


def seats(job: int) -> tuple[Seat, ...]:
    return tuple(
        Seat(host=f"j{job}h{i}", namespace_path=None, addresses=("127.0.0.1",), interfaces=("lo",))
        for i in range(RANKS)
    )


def job(number: int, program: Callable[..., Any], log_directory: Path, start: CommonStart, *arguments: Any) -> Job:
    return Job(
        seats=seats(number),
        program=program,
        arguments=arguments,
        log_directory=log_directory / str(number),
        process_group=False,
        observe=start.wait,
    )


def when(rank: Rank, late_s: float) -> tuple[str, int]:
    """Where it runs, and when it went on from the common start."""
    time.sleep(late_s)
    rank.line_up(COMMON_START)
    return rank.host, time.monotonic_ns()


def fails(rank: Rank) -> None:
    if rank.rank == 1:
        raise ValueError("no luck")
    rank.line_up("never")


def waits(rank: Rank) -> None:
    rank.line_up(COMMON_START)


def test_jobs_have_their_own_results_and_one_start(tmp_path: Path) -> None:
    start = CommonStart(2)
    jobs = [job(number, when, tmp_path, start, number * 0.2) for number in range(2)]
    found: Any = run_together(jobs, on_failure=start.call_off)
    assert [[host for host, _ in results] for results in found] == [["j0h0", "j0h1"], ["j1h0", "j1h1"]]
    moments = [at_ns for results in found for _, at_ns in results]
    assert max(moments) - min(moments) < 100_000_000, "the early job did not wait for the late one"


def test_a_job_that_fails_takes_the_others_with_it(tmp_path: Path) -> None:
    start = CommonStart(2)
    began = time.monotonic()
    with pytest.raises(RunFailed, match=r"job 2 of 2: rank 1 on host j1h1.*no luck"):
        run_together([job(0, waits, tmp_path, start), job(1, fails, tmp_path, start)], on_failure=start.call_off)
    assert time.monotonic() - began < 4, "the waiting job was not called off"


def test_the_first_operation_of_every_rank_is_told(tmp_path: Path) -> None:
    told: list[int] = []
    done = Job(seats=seats(0), program=operates, log_directory=tmp_path, process_group=False, began=told.append).run()
    assert sorted(told) == sorted(done)  # type: ignore[type-var]
    assert os.getpid() not in done


def operates(rank: Rank) -> int:
    with rank.operation("first") as span:
        pass
    with rank.operation("second"):
        pass
    return span.start_ns
