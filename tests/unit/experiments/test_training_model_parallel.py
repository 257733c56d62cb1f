"""Tensor and pipeline parallelism on the loopback: the values of one process that holds the whole model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from experiments.training.data_parallel import Plan, alone
from experiments.training.device import Device
from experiments.training.pipeline_parallel import partition, stage_weights, train_pipeline
from experiments.training.shape import Shape
from experiments.training.tensor_parallel import (
    BlockPart,
    PartTrained,
    Reducer,
    slices,
    train_tensor_parallel,
)
from experiments.training.timeline import Recorder
from experiments.training.transformer import Block, Transformer
from testbed.workers.job import Job
from testbed.workers.rank import Rank
from testbed.workers.seat import Seat
from topologies.errors import UserError

RANKS = 2
SEATS = tuple(
    Seat(host=f"h{i + 1}", namespace_path=None, addresses=(f"127.0.0.{i + 1}",), interfaces=("lo",))
    for i in range(RANKS)
)
SHAPE = Shape(layers=4, width=16, heads=4, context=12)
PLAN = Plan(shape=SHAPE, sequences=3, steps=3, warmup=1, accumulate=3, seed=5)
FASTEST = [Device(flop_per_s=float("inf"))] * RANKS


def trained(program: Any, log_directory: Path, *more: object) -> list[PartTrained]:
    job = Job(seats=SEATS, program=program, arguments=(PLAN, FASTEST, *more), log_directory=log_directory)
    return cast("list[PartTrained]", job.run())


def same(held: Sequence[bytes], wanted: Sequence[torch.Tensor]) -> None:
    assert len(held) == len(wanted)
    for raw, values in zip(held, wanted, strict=True):
        assert torch.allclose(torch.frombuffer(bytearray(raw), dtype=torch.float32), values.flatten(), atol=2e-5)


def test_tensor_parallel_ranks_hold_the_slices_of_what_one_process_learns(tmp_path: Path) -> None:
    found = trained(train_tensor_parallel, tmp_path)
    losses, weights = alone(PLAN, 1)
    for rank, each in enumerate(found):
        assert each.losses == pytest.approx(losses, abs=1e-5)
        same(each.weights, slices(SHAPE, weights, rank=rank, ranks=RANKS))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_pipeline_stages_hold_the_layers_of_what_one_process_learns(schedule: str, tmp_path: Path) -> None:
    found = trained(train_pipeline, tmp_path, schedule)
    losses, weights = alone(PLAN, 1)
    assert found[0].losses == ()
    assert found[1].losses == pytest.approx(losses, abs=1e-5)
    for stage, each in enumerate(found):
        same(each.weights, stage_weights(SHAPE, weights, stage=stage, stages=RANKS))
    assert [each.most_held for each in found] == {"gpipe": [3, 3], "1f1b": [2, 1]}[schedule]


def test_a_block_in_parts_equals_the_whole_block_forward_and_backward(tmp_path: Path) -> None:
    torch.manual_seed(1)
    block = Block(SHAPE)
    values = torch.randn(2, 5, SHAPE.width, requires_grad=True)
    whole = block(values)
    torch.autograd.backward(whole.square().sum())
    assert values.grad is not None

    def program(rank: Rank) -> tuple[bytes, bytes, int]:
        recorder = Recorder()
        part = BlockPart(block, rank=rank.rank, ranks=rank.size)
        mine = values.detach().requires_grad_(True)
        found = part(mine, Reducer(recorder=recorder, label="tensor"), "block")
        torch.autograd.backward(found.square().sum())
        assert mine.grad is not None
        return found.detach().numpy().tobytes(), mine.grad.numpy().tobytes(), len(recorder._open)

    for made, gradient, exchanges in cast(
        "list[tuple[bytes, bytes, int]]", Job(seats=SEATS, program=program, log_directory=tmp_path).run()
    ):
        same([made, gradient], [whole.detach(), values.grad])
        assert exchanges == 4


def test_heads_and_layers_that_cannot_be_dealt_out_are_refused_with_the_setting() -> None:
    with pytest.raises(UserError, match="heads=4"):
        BlockPart(Block(SHAPE), rank=0, ranks=3)
    with pytest.raises(UserError, match="layers=4"):
        partition(Transformer(SHAPE, seed=1), 3)
