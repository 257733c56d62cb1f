"""The virtual clock in the guest: exact to the nanosecond, free to read, and never stopped for good by a busy loop."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.guest.machine import Boot, boot

CHARGE_NS = 1000
"""What a loop that does nothing but poll is charged each time its patience ends (testbed/guest/edits/clock.py)."""


@pytest.fixture(scope="module")
def facts(guest_kernel: object, tmp_path_factory: pytest.TempPathFactory) -> Any:
    lines: list[str] = []
    program = Path(__file__).with_name("clock_facts.py")
    request = Boot(command=(sys.executable, str(program)), run_dir=tmp_path_factory.mktemp("clock"))
    assert boot(request, lines.append) == 0, lines
    return json.loads(lines[-1])


def test_the_clock_counts_nanoseconds(facts: Any) -> None:
    assert facts["resolution_ns"] == 1


def test_a_sleep_ends_when_it_should(facts: Any) -> None:
    """Within the timer slack of 1 ns that the program asked for, and never early."""
    late = {int(wanted): slept - int(wanted) for wanted, slept in facts["sleeps"].items()}
    assert all(0 <= by <= 1 for by in late.values()), late


@pytest.mark.parametrize("what", ["clock", "time of day", "system call", "refused read", "computing"])
def test_what_a_network_program_does_all_the_time_is_free(facts: Any, what: str) -> None:
    assert facts["cost"][what] == 0


def test_a_loop_that_reads_the_clock_gets_there(facts: Any) -> None:
    assert 100_000 <= facts["loops"]["clock"] <= 100_000 + CHARGE_NS


@pytest.mark.parametrize(("what", "timer_ns"), [("sched_yield", 20_000), ("refused read", 5_000), ("poll", 2_000)])
def test_a_loop_that_polls_without_the_clock_does_not_stop_time(facts: Any, what: str, timer_ns: int) -> None:
    """setitimer rounds to microseconds; the loop notices at the end of its next charge."""
    assert timer_ns <= facts["loops"][what] <= timer_ns + 2 * CHARGE_NS


def test_processes_share_one_clock(facts: Any) -> None:
    assert facts["child"] is True


@pytest.mark.parametrize("when", ["differences", "differences after the clock was set"])
@pytest.mark.parametrize("clock", ["monotonic", "realtime", "others"])
def test_the_vdso_says_what_the_kernel_says(facts: Any, when: str, clock: str) -> None:
    assert facts[when][clock] == 0


def test_the_time_of_day_can_be_set(facts: Any) -> None:
    assert 0 <= facts["set to"] - 2_000_000_000 * 10**9 < CHARGE_NS
