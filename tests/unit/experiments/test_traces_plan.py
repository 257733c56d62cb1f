"""What can be played and what cannot: matching across ranks, circles, sizes, durations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import chakra
from experiments.settings import parse_settings
from experiments.traces import file
from experiments.traces.builder import Builder
from experiments.traces.examples import EXAMPLES, Size, example
from experiments.traces.node import Attribute, CommType, Node, NodeType, Trace
from experiments.traces.plan import Collective, Compute, Rates, plan_of
from experiments.traces.traffic import needs
from experiments.workloads.messages import PREAMBLE_BYTES
from topologies.errors import UserError

RATES = Rates(flop_per_s=1e12, memory_bps=8e12)
REDUCE, ALL_TO_ALL = CommType.ALL_REDUCE, CommType.ALL_TO_ALL


def of(build: Callable[[Builder], object]) -> Trace:
    builder = Builder()
    build(builder)
    return builder.trace()


def changed(trace: Trace, number: int, **fields: object) -> Trace:
    nodes = list(trace.nodes)
    nodes[number] = replace(nodes[number], **fields)  # type: ignore[arg-type]
    return replace(trace, nodes=tuple(nodes))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_example_can_be_played_by_any_number_of_ranks(name: str, ranks: int) -> None:
    traces = example(name, Size(ranks=ranks, layers=3, size_bytes=1000, compute_ns=1500))
    plan = plan_of(traces, RATES)
    assert len(plan.actions) == ranks
    assert all(len(members) > 1 or ranks == 1 for members in plan.meetings.values())


def test_the_nth_collective_of_a_group_is_the_same_on_all_its_ranks() -> None:
    def world(builder: Builder) -> None:
        builder.collective("a", REDUCE, 8)
        builder.collective("b", REDUCE, 16)

    def half(builder: Builder) -> None:
        world(builder)
        builder.collective("c", ALL_TO_ALL, 8, group="half")

    plan = plan_of([of(half), of(world), of(half)], RATES)
    assert plan.groups == {"": (0, 1, 2), "half": (0, 2)}
    assert {meeting: [rank for rank, _ in members] for meeting, members in plan.meetings.items()} == {
        "world #0": [0, 1, 2],
        "world #1": [0, 1, 2],
        "group half #0": [0, 2],
    }


def test_sends_go_to_receives_of_the_same_ends_and_tag_in_order() -> None:
    def sender(builder: Builder) -> None:
        for tag in (7, 8, 7):
            builder.send("s", 4, to=1, tag=tag)

    def receiver(builder: Builder) -> None:
        for tag in (7, 7, 8):
            builder.receive("r", 4, source=0, tag=tag)

    plan = plan_of([of(sender), of(receiver)], RATES)
    assert {meeting: [action.id for _, action in members] for meeting, members in plan.meetings.items()} == {
        "0>1 tag 7 #0": [0, 0],
        "0>1 tag 7 #1": [2, 1],
        "0>1 tag 8 #0": [1, 2],
    }


REDUCES = of(lambda builder: builder.collective("grad", REDUCE, 8))
COMPUTES = of(lambda builder: builder.compute("layer", 10))


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ([changed(COMPUTES, 0, data_deps=(5,))], "rank 0: node 0 'layer': depends on node 5"),
        ([replace(COMPUTES, nodes=COMPUTES.nodes * 2)], "rank 0: node 0 'layer': another node has this id"),
        ([REDUCES, COMPUTES], "rank 0: node 0 'grad' is world #0 there, and rank 1 has no such collective"),
        ([REDUCES, of(lambda it: it.collective("g", REDUCE, 12))], "must agree: ALL_REDUCE of 8 B with root 0 is not"),
        ([REDUCES, of(lambda it: it.collective("g", CommType.REDUCE, 8))], "is not REDUCE of 8 B"),
        ([of(lambda it: it.send("s", 4, to=1)), COMPUTES], "node 0 's' is 0>1 tag 0 #0, and no node of the other rank"),
        ([of(lambda it: it.send("s", 4, to=3)), COMPUTES], "rank 0: node 0 's': its peer 3 is not another of the 2"),
        ([of(lambda it: it.send("s", 4, to=0)), COMPUTES], "its peer 0 is not another"),
        ([of(lambda it: it.collective("a", ALL_TO_ALL, 5))] * 2, "comm_size 5 does not divide among the group's 2"),
        ([of(lambda it: it.collective("a", REDUCE, 0))] * 2, "comm_size 0: write at least 1"),
        ([changed(REDUCES, 0, attributes=())], "node 0 'grad': a COMM_COLL_NODE needs the attribute comm_type"),
        ([changed(COMPUTES, 0, type=NodeType.INVALID_NODE)], "node 0 'layer': has the type INVALID_NODE"),
    ],
)
def test_what_cannot_be_played_is_refused_naming_rank_and_node(traces: list[Trace], words: str) -> None:
    with pytest.raises(UserError) as caught:
        plan_of(traces, RATES)
    assert words in str(caught.value)


def test_unknown_collectives_and_tori_are_refused() -> None:
    odd = (Attribute(name="comm_type", field="int64_val", value=77), Attribute(name="comm_size", field="", value=4))
    with pytest.raises(UserError, match="comm_type 77 is none"):
        plan_of([changed(REDUCES, 0, attributes=odd)], RATES)
    torus = Attribute(name="involved_dim", field="bool_list", value=(True, False))
    with pytest.raises(UserError, match="name the ranks by pg_name"):
        plan_of([changed(REDUCES, 0, attributes=(*REDUCES.nodes[0].attributes, torus))], RATES)


def test_a_circle_within_a_rank_is_named() -> None:
    def two(builder: Builder) -> None:
        builder.compute("b", 1, after=[builder.compute("a", 1)])

    with pytest.raises(UserError, match=r"wait for each other for ever: .*'a'.*'b'"):
        plan_of([changed(of(two), 0, ctrl_deps=(1,))], RATES)


def test_a_circle_across_ranks_is_named() -> None:
    """Each rank wants its peer's message before it sends its own."""

    def wants(peer: int) -> Trace:
        return of(lambda it: it.send("mine", 4, to=peer, after=[it.receive("yours", 4, source=peer)]))

    with pytest.raises(UserError, match=r"wait for each other for ever: .*0>1 tag 0 #0"):
        plan_of([wants(1), wants(0)], RATES)


def test_collectives_in_another_order_on_another_rank_are_a_circle() -> None:
    """The smallest deadlock of a communicator: b waits for a by its ids here, and by its dependency there."""
    forwards = of(lambda it: (it.collective("a", REDUCE, 8), it.collective("b", REDUCE, 8)))
    backwards = changed(forwards, 0, data_deps=(1,))
    with pytest.raises(UserError, match="wait for each other"):
        plan_of([forwards, backwards], RATES)


def test_compute_takes_its_duration_or_the_slower_of_flop_and_memory() -> None:
    def node(**numbers: int) -> Node:
        return Node(
            id=numbers.pop("id", 0),
            name="n",
            type=NodeType.COMP_NODE,
            duration_us=numbers.pop("duration_us", 0),
            attributes=tuple(Attribute(name=name, field="int64_val", value=value) for name, value in numbers.items()),
        )

    nodes = (
        node(id=0, duration_us=3, num_ops=10**9),
        node(id=1, num_ops=5 * 10**6, tensor_size=10),
        node(id=2, num_ops=5, tensor_size=10**6),
        node(id=3, duration_us=3, duration_ns=3141, is_cpu_op=1),
        node(id=4),
    )
    (actions,) = plan_of([Trace(nodes=nodes)], RATES).actions
    assert [(it.work.unit, it.work.duration_ns) for it in actions if isinstance(it.work, Compute)] == [
        ("device", 3000),
        ("device", 5000),
        ("device", 1000),
        ("host", 3141),
        ("device", 0),
    ]


def test_payload_is_counted_from_the_root_and_within_the_group() -> None:
    def scatter(builder: Builder) -> None:
        builder.collective("s", CommType.SCATTER, 80, group="pair")

    def rooted(trace: Trace) -> Trace:
        root = Attribute(name="root", field="int32_val", value=1)
        return changed(trace, 0, attributes=(*trace.nodes[0].attributes, root))

    plan = plan_of([rooted(of(scatter)), COMPUTES, rooted(of(scatter))], RATES)
    assert isinstance(plan.actions[0][0].work, Collective)
    wanted = needs(plan)
    assert [it.tx for it in wanted] == [PREAMBLE_BYTES, 0, 2 * PREAMBLE_BYTES + 40]
    assert [it.rx for it in wanted] == [2 * PREAMBLE_BYTES + 40, 0, PREAMBLE_BYTES]


def test_an_all_gather_leaves_ranks_times_comm_size() -> None:
    plan = plan_of([of(lambda it: it.collective("g", CommType.ALL_GATHER, 1000))] * 4, RATES)
    assert all(it.tx - 3 * 1000 < 100 * PREAMBLE_BYTES and it.tx > 3000 for it in needs(plan))


def test_the_experiment_refuses_what_it_cannot_play_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--set example=gan: unknown example 'gan'; known: ddp, moe, pipeline, ring"):
        parse_settings(chakra.Settings, {"example": "gan"})
    file.write_folder(tmp_path, [REDUCES, COMPUTES])
    with pytest.raises(UserError, match=r"--set trace=.*: rank 0: node 0 'grad' is world #0 there, and rank 1 has no"):
        parse_settings(chakra.Settings, {"trace": str(tmp_path)})
