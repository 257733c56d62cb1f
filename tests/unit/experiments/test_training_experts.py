"""Experts on three ranks over the loopback against one process that has them all; routing by hand."""

from math import exp
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from experiments.training.data_parallel import Plan
from experiments.training.device import Device
from experiments.training.experts import (
    ExpertsTrained,
    exchanged,
    experts_alone,
    noise,
    route,
    train_experts,
)
from experiments.training.routing import Gate
from experiments.training.shape import Shape
from testbed.workers.job import Job
from testbed.workers.seat import Seat

RANKS = 3
SEATS = tuple(
    Seat(host=f"h{i + 1}", namespace_path=None, addresses=(f"127.0.0.{i + 1}",), interfaces=("lo",))
    for i in range(RANKS)
)
PLAN = Plan(shape=Shape(layers=2, width=16, heads=2, context=12), sequences=3, steps=3, warmup=1, seed=5)
FASTEST = [Device(flop_per_s=float("inf"))] * RANKS


def trained(gate: Gate, log_directory: Path) -> list[ExpertsTrained]:
    job = Job(seats=SEATS, program=train_experts, arguments=(PLAN, gate, FASTEST), log_directory=log_directory)
    return cast("list[ExpertsTrained]", job.run())


def numbers(raw: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.float32)


@pytest.mark.parametrize(
    ("top_k", "capacity_factor", "skew"), [(1, None, 0.0), (2, None, 1.5), (2, 1.0, 1.5), (1, 0.5, 8.0)]
)
def test_ranks_learn_what_one_process_learns(
    top_k: int, capacity_factor: float | None, skew: float, tmp_path: Path
) -> None:
    """Also with experts that get nothing: at an exponent of 8 nearly all tokens choose one of six."""
    gate = Gate(experts=6, top_k=top_k, capacity_factor=capacity_factor, skew=skew, seed=7)
    found = trained(gate, tmp_path)
    losses, shared, own = experts_alone(PLAN, gate, RANKS)
    assert len({each.shared for each in found}) == 1
    mean = [sum(each.losses[step] for each in found) / RANKS for step in range(len(losses))]
    assert mean == pytest.approx(losses, abs=1e-5)
    assert torch.allclose(numbers(found[0].shared), numbers(shared), atol=1e-5)
    layers = [torch.split(part, numbers(own).numel() // 12) for part in numbers(own).chunk(2)]
    for rank, each in enumerate(found):
        mine = torch.cat([torch.cat(layer[2 * rank : 2 * rank + 2]) for layer in layers])
        assert torch.allclose(numbers(each.own), mine, atol=1e-5)
    if capacity_factor is None:
        assert all(each.dropped == (0,) * 4 for each in found)
    else:
        assert sum(sum(each.dropped) for each in found) > 0


def test_experts_learn_from_all_ranks_tokens(tmp_path: Path) -> None:
    """Own parameters move, and differently with another rank's text: gradients do come back."""
    gate = Gate(experts=3, top_k=2, capacity_factor=None, skew=0.0, seed=7)
    found = trained(gate, tmp_path)
    assert all(sum(counts) == 2 * PLAN.tokens for each in found for step in each.counts for counts in step)
    assert len({each.own for each in found}) == RANKS


def test_first_choices_come_before_second_ones_and_early_tokens_before_late_ones() -> None:
    scores = torch.tensor([[3.0, 2.0, 0.0], [2.0, 3.0, 0.0], [3.0, 0.0, 2.0]])
    found = route(scores, scores, top_k=2, capacity=1)
    # first choices: 0 -> expert 0, 1 -> expert 1, 2 -> expert 0 (full); second: 0 -> 1 (full), 1 -> 0 (full), 2 -> 2
    assert found.counts.tolist() == [1, 1, 1]
    assert found.tokens.tolist() == [0, 1, 2]
    assert found.dropped == 3
    share = 1 / (1 + exp(-1.0))
    assert found.gates.tolist() == pytest.approx([share, share, 1 - share])


def test_one_choice_is_weighted_by_its_probability() -> None:
    scores = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    found = route(scores, scores, top_k=1, capacity=None)
    assert found.counts.tolist() == [1, 1]
    assert found.gates.tolist() == pytest.approx(scores.softmax(dim=1).max(dim=1).values.tolist())


def test_noise_makes_the_choice_a_draw_by_zipf() -> None:
    gate = Gate(experts=4, top_k=1, capacity_factor=None, skew=1.0, seed=11)
    draw = torch.tensor(gate.biases()) + noise(gate, step=0, rank=0, layer=0, tokens=40_000)
    share = torch.bincount(draw.argmax(dim=1), minlength=4) / 40_000
    total = sum(1 / place for place in range(1, 5))
    wanted = [1 / place / total for place in range(1, 5)]
    assert [share[expert].item() for expert in gate.popularity()] == pytest.approx(wanted, abs=0.01)


def test_gradients_go_back_the_way_the_rows_came() -> None:
    """Rows swapped between two halves and doubled: the gradient of each row is that of where it went, doubled."""
    calls: list[tuple[list[int], list[int], str]] = []

    def exchange(rows: torch.Tensor, sent: Any, received: Any, name: str) -> torch.Tensor:
        calls.append((list(sent), list(received), name))
        return torch.cat([rows[sent[0] :], rows[: sent[0]]])

    rows = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda it: exchanged(it, [2, 3], [3, 2], exchange, "x"), (rows,))
    assert calls[0] == ([2, 3], [3, 2], "x")
    assert ([3, 2], [2, 3], "x.backward") in calls
