"""Every collective on real ranks over the loopback: right values pass, and every kind of wrong value is counted."""

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.workloads import exchanges
from experiments.workloads.exchanges import BLOCK, EXCHANGES, PERIOD, count_wrong, fill, mark
from experiments.workloads.operations import OPERATIONS
from testbed.workers.job import Job
from testbed.workers.rank import Rank
from testbed.workers.seat import Seat

RANKS = 3


def run(program: Any, log_directory: Path, *arguments: Any) -> list[Any]:
    seats = tuple(
        Seat(host=f"h{i}", namespace_path=None, addresses=("127.0.0.1",), interfaces=("lo",)) for i in range(RANKS)
    )
    return Job(seats=seats, program=program, arguments=arguments, log_directory=log_directory).run()


def test_there_is_an_exchange_for_every_operation() -> None:
    assert list(EXCHANGES) == list(OPERATIONS)


@pytest.mark.parametrize("start", [0, 1, PERIOD - 1, 10 * PERIOD + 5])
@pytest.mark.parametrize("elements", [1, PERIOD, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_what_was_filled_is_right_wherever_it_begins(start: int, elements: int) -> None:
    array = exchanges.empty(elements)
    fill(array, start=start, shift=mark(5, 3))
    assert count_wrong(array, start=start, shift=mark(5, 3)) == 0
    assert array[-1].item() == (start + elements - 1) % PERIOD + mark(5, 3)


def test_every_wrong_element_is_counted_and_not_a_number_is_wrong() -> None:
    array = exchanges.empty(2 * BLOCK)
    fill(array, start=0, shift=1)
    array[7] += 1
    array[BLOCK + 3] = float("nan")
    assert count_wrong(array, start=0, shift=1) == 2


def test_misplaced_and_stale_arrays_differ_everywhere() -> None:
    array = exchanges.empty(BLOCK)
    fill(array, start=0, shift=mark(0, 4))
    assert count_wrong(array, start=1, shift=mark(0, 4)) == BLOCK
    assert count_wrong(array, start=0, shift=mark(0, 5)) == BLOCK
    assert count_wrong(array, start=0, shift=mark(1, 4)) == BLOCK


def test_sums_over_a_thousand_ranks_are_exact_in_float32() -> None:
    ranks, iteration = 1024, 100
    array = torch.zeros(PERIOD)
    one = exchanges.empty(PERIOD)
    for rank in range(ranks):
        fill(one, start=0, shift=mark(rank, iteration))
        array += one
    assert array.max().item() < 2**24
    assert count_wrong(array, start=0, scale=ranks, shift=sum(mark(rank, iteration) for rank in range(ranks))) == 0


def test_right_values_pass_on_every_rank_for_every_operation(tmp_path: Path) -> None:
    def program(rank: Rank) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for op, make in EXCHANGES.items():
            exchange = make(OPERATIONS[op].size_bytes(1_000_003, rank.size))
            found[op] = []
            for iteration in range(3):
                exchange.fill(iteration)
                exchange.run()
                found[op].append(exchange.wrong(iteration))
        return found

    assert run(program, tmp_path) == [{op: [0, 0, 0] for op in OPERATIONS}] * RANKS


def test_an_operation_that_did_not_run_is_wrong_for_every_operation(tmp_path: Path) -> None:
    """A buffer left over from the iteration before must never pass for this one's."""

    def program(rank: Rank) -> dict[str, int]:
        found = {}
        for op, make in EXCHANGES.items():
            exchange = make(OPERATIONS[op].size_bytes(60_000, rank.size))
            for iteration in range(2):
                exchange.fill(iteration)
                if iteration == 0:
                    exchange.run()
            found[op] = exchange.wrong(1)
        return found

    by_rank = run(program, tmp_path)
    for op in set(OPERATIONS) - {"barrier"}:
        assert sum(found[op] for found in by_rank) > 0, op
