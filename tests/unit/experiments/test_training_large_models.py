"""Shapes of large models against what their papers publish."""

import pytest

from experiments.training.large_models import MODELS, model_named
from topologies.errors import UnknownName

PUBLISHED = {
    "gpt3_175b": 175.0e9,
    "megatron_1t": 1008.0e9,
    "llama3_8b": 8.03e9,
    "llama3_70b": 70.6e9,
    "llama3_405b": 405.0e9,
}
"""Tables of the papers; Llama's 8B and 70B as their model cards count them."""


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameters_are_the_published_ones_within_a_percent(name: str) -> None:
    assert MODELS[name].parameters == pytest.approx(PUBLISHED[name], rel=0.01)


def test_llama_is_counted_to_the_parameter() -> None:
    """As the released weights are: 8,030,261,248."""
    assert model_named("llama3_8b").parameters == 8_030_261_248


@pytest.mark.parametrize("name", ["gpt3_175b", "megatron_1t"])
def test_flop_are_those_of_megatrons_formula(name: str) -> None:
    """Forward and backward without recomputation: 72 B s l h^2 (1 + s/6h + V/12lh)."""
    model, sequences = MODELS[name], 3
    tokens = sequences * model.context
    forward = model.layers * (
        model.attention_flop(tokens=tokens, context=model.context) + model.feed_flop(tokens=tokens)
    ) + model.head_flop(tokens=tokens)
    bracket = 1 + model.context / (6 * model.width) + model.vocabulary / (12 * model.layers * model.width)
    assert 3 * forward == pytest.approx(72 * tokens * model.layers * model.width**2 * bracket, rel=1e-12)


def test_six_flop_per_parameter_and_token_where_sequences_are_short() -> None:
    """Kaplan et al. 2020."""
    model = model_named("llama3_405b")
    forward = model.layers * (model.attention_flop(tokens=1, context=1) + model.feed_flop(tokens=1)) + model.head_flop(
        tokens=1
    )
    assert 3 * forward == pytest.approx(6 * model.parameters, rel=0.01)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(UnknownName, match="llama3_9b"):
        model_named("llama3_9b")
