"""Ranks with a real process group, on the loopback: P24's clean exits, environment, seeds, and a peer that is gone."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.workers.job import Job
from testbed.workers.rank import Rank
from testbed.workers.seat import Seat
from topologies.errors import RunFailed

SEATS = tuple(
    Seat(host=f"h{i + 1}", namespace_path=None, addresses=(f"127.0.0.{i + 1}",), interfaces=("lo",)) for i in range(3)
)


def run(program: Any, log_directory: Path, *arguments: Any, **options: Any) -> list[Any]:
    return Job(seats=SEATS, program=program, arguments=arguments, log_directory=log_directory, **options).run()


def test_fifty_jobs_end_well_fifty_times(tmp_path: Path) -> None:
    """Pitfall P24, test A: a rank that leaves while others still receive would fail one of them."""

    def program(rank: Rank) -> float:
        import torch
        import torch.distributed as dist

        values = torch.full((1000,), float(rank.rank))
        dist.all_reduce(values)
        return values.sum().item()

    for _ in range(50):
        assert run(program, tmp_path) == [3000.0] * 3


def test_ranks_find_the_environment_that_torchrun_would_give_them(tmp_path: Path) -> None:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "GLOO_SOCKET_IFNAME")

    def program(rank: Rank) -> tuple[str, ...]:
        return tuple(os.environ[name] for name in names)

    assert run(program, tmp_path, connections=2) == [(str(rank), "3", "127.0.0.1", "lo,lo") for rank in range(3)]


def test_every_rank_draws_the_same_numbers_from_the_jobs_seed(tmp_path: Path) -> None:
    def program(rank: Rank) -> float:
        import torch

        return torch.rand(1).item()

    first, again, other = (run(program, tmp_path, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert len(set(first)) == 1
    assert first != other


def test_a_killed_rank_is_named_although_its_peers_fail_too(tmp_path: Path) -> None:
    """Pitfall P24, test B."""

    def program(rank: Rank) -> None:
        import torch
        import torch.distributed as dist

        values = torch.ones(100_000)
        for number in range(100):
            with rank.operation("all_reduce", 400_000):
                if rank.rank == 1 and number == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.all_reduce(values)

    with pytest.raises(RunFailed, match="rank 1 on host h2, in all_reduce of 400000 bytes: killed by SIGKILL"):
        run(program, tmp_path)
