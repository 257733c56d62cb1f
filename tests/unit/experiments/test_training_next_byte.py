"""The small language model: partitions of a real text, and replicas that stay replicas."""

import pytest
import torch

from experiments.training.next_byte import (
    CONTEXT,
    Judge,
    Learner,
    NextByte,
    held_out,
    learning_places,
    parameters,
    partition,
)
from topologies.errors import UnknownName

WORKERS = 8


@pytest.mark.parametrize("name", ["iid", "shards"])
def test_a_partition_gives_everybody_as_much_and_nothing_twice(name: str) -> None:
    labels = learning_places().labels
    parts = partition(name, labels, workers=WORKERS, seed=1)
    assert len({part.numel() for part in parts}) == 1
    together = torch.cat(parts)
    assert len(set(together.tolist())) == together.numel()
    assert together.numel() > 0.99 * labels.numel()


def test_shards_know_a_few_bytes_and_iid_parts_know_most() -> None:
    labels = learning_places().labels
    known = {
        name: max(len(set(labels[part].tolist())) for part in partition(name, labels, workers=WORKERS, seed=1))
        for name in ("iid", "shards")
    }
    assert known["iid"] > 70
    usual = sorted(len(set(labels[part].tolist())) for part in partition("shards", labels, workers=WORKERS, seed=1))[
        WORKERS // 2
    ]
    assert usual <= 6


def test_another_seed_deals_otherwise_and_the_same_seed_alike() -> None:
    labels = learning_places().labels
    one, same, other = (partition("shards", labels, workers=WORKERS, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_an_unknown_partition_is_named() -> None:
    with pytest.raises(UnknownName, match="partition"):
        partition("by_mood", torch.zeros(8), workers=2, seed=1)


def test_an_example_is_a_byte_and_those_before_it() -> None:
    places = learning_places()
    contexts, wanted = places.examples(torch.tensor([0, 5]))
    at = int(places.places[5])
    assert contexts[1].tolist() == places.text[at - CONTEXT : at].tolist()
    assert int(wanted[1]) == int(places.text[at])


def test_nobody_learns_from_what_models_are_judged_by() -> None:
    assert not set(learning_places().places.tolist()) & set(held_out().places.tolist())


def test_the_number_of_parameters_is_known_without_a_model() -> None:
    assert sum(each.numel() for each in NextByte(width=24, seed=1).parameters()) == parameters(24)


def test_a_learner_learns_and_the_judge_sees_it() -> None:
    learner = Learner(width=32, seed=3, worker=0, workers=1, partition_name="iid", batch=32)
    judge = Judge(width=32)
    before = judge.judge(learner.weights)
    for _ in range(60):
        learner.step(0.5)
    after = judge.judge(learner.weights)
    assert after.loss < before.loss - 1
    assert after.accuracy > 0.15


def test_a_step_is_the_gradient_times_the_rate() -> None:
    one, other = (Learner(width=8, seed=3, worker=1, workers=2, partition_name="shards", batch=4) for _ in range(2))
    start = one.weights
    gradient, _ = one.gradient()
    other.step(0.25)
    assert torch.equal(other.weights, start - 0.25 * gradient)
