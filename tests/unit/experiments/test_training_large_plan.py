"""Sizes of a large model's exchanges against the papers' formulas, and a step of one over the loopback."""

from pathlib import Path
from typing import Any, cast

import pytest

from experiments.training.grid import DIMENSIONS, Grid
from experiments.training.large_models import model_named
from experiments.training.large_plan import LargePlan
from experiments.training.large_step import LargeTrained, train_large
from experiments.training.timeline import Kind
from testbed.workers.job import Job
from testbed.workers.seat import Seat
from topologies.errors import UserError


def plan(*, tp: int = 4, pp: int = 2, dp: int = 2, **changes: Any) -> LargePlan:
    defaults = {
        "model": model_named("llama3_8b"),
        "grid": Grid(sizes={"tp": tp, "pp": pp, "dp": dp}, order=("tp", "dp", "pp")),
        "layers": 8,
        "scale": 64,
        "microbatches": 4,
        "sequences": 1,
        "value_bytes": 2,
        "gradient_bytes": 2,
        "flop_per_s": 400e12,
        "schedule": "1f1b",
        "steps": 1,
        "warmup": 0,
    }
    return LargePlan(**{**defaults, **changes})


def test_an_activation_is_batch_x_sequence_x_hidden() -> None:
    assert plan(scale=1, sequences=3).activation_bytes == 3 * 8192 * 4096 * 2
    assert plan(scale=64, value_bytes=4).activation_bytes == 8192 * 4096 * 4 // 64


@pytest.mark.parametrize("model", ["llama3_8b", "gpt3_175b"])
@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("value_bytes", [2, 4])
def test_gloos_messages_carry_what_the_formulas_say(model: str, dimension: str, value_bytes: int) -> None:
    it = plan(model=model_named(model), value_bytes=value_bytes, gradient_bytes=value_bytes)
    carried = sum(message.size_bytes for message in it.messages(dimension))
    assert carried == pytest.approx(sum(it.formula_bytes(dimension, rank) for rank in range(16)), rel=1e-4)
    assert all(it.grid.dimension_of(message.src, message.dst) == dimension for message in it.messages(dimension))


def test_four_all_reduces_per_layer_and_one_at_each_end() -> None:
    assert [plan(pp=4, dp=1).reductions(stage) for stage in range(4)] == [4 * 9, 4 * 8, 4 * 8, 4 * 9]
    assert plan(pp=1).reductions(0) == 4 * (4 * 8 + 2)


def test_stages_share_out_all_parameters_of_a_whole_model() -> None:
    whole = plan(layers=32)
    assert sum(whole.stage_parameters(stage) for stage in range(2)) == whole.model.parameters


def test_computing_is_flop_over_rate_over_ranks_over_scale() -> None:
    it = plan(tp=2, pp=1, scale=8)
    model, tokens = it.model, it.tokens
    layer = model.attention_flop(tokens=tokens, context=8192) + model.feed_flop(tokens=tokens)
    flop = 3 * 4 * (8 * layer + model.head_flop(tokens=tokens))
    assert it.compute_ns(0) == pytest.approx(flop * 1e9 / 400e12 / 2 / 8, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"tp": 3}, "tp=3"), ({"tp": 16}, "tp=16"), ({"layers": 7}, "layers=7"), ({"value_bytes": 3}, "value_bytes=3")],
)
def test_plans_that_cannot_be_are_refused_with_the_setting(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        plan(**changes)


@pytest.mark.parametrize(("tp", "pp", "dp"), [(2, 2, 1), (2, 1, 2), (1, 2, 2), (1, 4, 1)])
def test_every_array_of_a_step_arrives_with_its_values(tp: int, pp: int, dp: int, tmp_path: Path) -> None:
    it = plan(tp=tp, pp=pp, dp=dp, layers=4, scale=1 << 20, microbatches=3, flop_per_s=float("inf"), steps=2)
    seats = [
        Seat(host=f"h{i + 1}", namespace_path=None, addresses=(f"127.0.0.{i + 1}",), interfaces=("lo",))
        for i in range(4)
    ]
    found = cast(
        "list[LargeTrained]", Job(seats=seats, program=train_large, arguments=(it,), log_directory=tmp_path).run()
    )
    for rank, each in enumerate(found):
        stage = it.grid.place(rank)["pp"]
        assert each.exchanges == 2 * it.exchanges(stage)
        named = [part.name for part in each.steps[1].intervals if part.kind is Kind.COMMUNICATION]
        assert sum(name.startswith("tp") for name in named) == (it.reductions(stage) if tp > 1 else 0)
        assert sum(name.startswith("dp") for name in named) == (1 if dp > 1 else 0)
