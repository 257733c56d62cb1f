"""The plan of federated averaging: who serves whom, how often, and what its sums must give."""

import pytest
import torch

from experiments.federated import people
from experiments.training.federated import Plan, alone
from experiments.training.transfers import average
from topologies.errors import UserError
from topologies.registry import parse_topology


def plan(way: str, **changes: object) -> Plan:
    values: dict[str, object] = {
        "way": way,
        "sites": (0, 0, 1, 1),
        "local_steps": 2,
        "edge_rounds": 3,
        "cloud_rounds": 2,
        "width": 8,
        "batch": 4,
        "rate": 0.5,
        "partition": "iid",
        "seed": 1,
    }
    return Plan(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["flat", "hierarchical", "local_sgd", "every_step"])
def test_every_way_takes_the_same_steps(way: str) -> None:
    assert plan(way).rounds * plan(way).steps_per_round == 2 * 3 * 2


def test_ranks_are_the_cloud_then_edges_then_workers() -> None:
    found = plan("hierarchical")
    assert (found.servers, found.edges, found.workers) == (3, 2, 4)
    assert [found.workers_of(edge) for edge in (1, 2)] == [[3, 4], [5, 6]]
    assert plan("flat").servers == 1
    assert plan("local_sgd").servers == 0


def test_one_edge_round_per_cloud_round_is_flat_averaging() -> None:
    """The mean of equal groups' means is the mean, up to the order of summing."""
    flat, hierarchical = (alone(plan(way, edge_rounds=1)) for way in ("flat", "hierarchical"))
    assert torch.allclose(flat, hierarchical, rtol=0, atol=1e-5)
    assert not torch.allclose(flat, alone(plan("hierarchical", edge_rounds=3, cloud_rounds=1)), rtol=0, atol=1e-5)


def test_one_worker_is_averaged_with_nobody() -> None:
    single = plan("flat", sites=(0,))
    learner = single.learner(0)
    for _ in range(12):
        learner.step(0.5)
    assert torch.equal(alone(single), learner.weights)


def test_an_average_adds_in_order() -> None:
    parts = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    assert average(parts).item() == 0.0, "in float32, 1e8 + 1 is 1e8"
    assert average([parts[0], parts[2], parts[1]]).item() == pytest.approx(1 / 3)
    assert parts[0].item() == 1e8, "what is averaged is left as it is"


def test_people_of_a_wan() -> None:
    workers, sites, edges = people(parse_topology("wan:sites=3,hosts=2"))
    assert workers == ["h1", "h2", "h3", "h4", "h5", "h6"]
    assert sites == (0, 0, 1, 1, 2, 2)
    assert edges == ["edge1", "edge2", "edge3"]


def test_a_fabric_without_a_cloud_is_refused() -> None:
    with pytest.raises(UserError, match="host `cloud`"):
        people(parse_topology("star"))
