"""Several jobs at once on one fabric, each with its own ranks, rendezvous and supervisor.

All ranks are forked first, from the main thread; then every job but a single one is watched in a thread of its own,
because each supervisor sleeps for its own ranks.  The first job that fails takes the others with it.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from testbed.workers.job import Job
from testbed.workers.supervisor import Supervisor
from topologies.errors import RunFailed

COMMON_START = "common start"
"""The line-up at which all jobs of a run wait for each other: `rank.line_up(COMMON_START)`."""


def run_together(jobs: Sequence[Job], *, on_failure: Callable[[], None] = lambda: None) -> list[list[object]]:
    """Results of each job in rank order; no rank outlives the call.

    `on_failure` is called once a job has failed, so that whatever the others wait for can be called off.
    Raises RunFailed for the job that failed first, naming it where there are several.
    """
    with ExitStack() as stack:
        supervisors = [stack.enter_context(job.started()) for job in jobs]
        if len(supervisors) == 1:
            return [supervisors[0].watch()]
        return _watch_all(supervisors, on_failure)


def _watch_all(supervisors: Sequence[Supervisor], on_failure: Callable[[], None]) -> list[list[object]]:
    results: list[list[object]] = [[] for _ in supervisors]
    failures: list[tuple[int, BaseException]] = []

    def watch(number: int) -> None:
        try:
            results[number] = supervisors[number].watch()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            failures.append((number, error))
            for other in supervisors:
                other.give_up()
            on_failure()

    threads = [threading.Thread(target=watch, args=(number,), daemon=True) for number in range(len(supervisors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        number, error = failures[0]
        if isinstance(error, RunFailed):
            raise RunFailed(f"job {number + 1} of {len(supervisors)}: {error}") from error
        raise error
    return results
