"""Chakra traces on the fabric: dependencies kept, the account is the trace's, a training run can be played again."""

from pathlib import Path
from typing import Any

import pytest

from experiments.traces import file
from experiments.traces.builder import Builder
from experiments.traces.node import Attribute, CommType, Node, NodeType, Trace
from tests.guest.conftest import RunExperiment
from tests.guest.runs import Run

STAR = ("--topology", "star:hosts=3")


def trace_of(run: Run, which: str) -> Any:
    """A line of the section `trace`."""
    return next(line for line in run.results.sections["trace"] if line["run"] == which)


@pytest.fixture(scope="module")
def trained(run_experiment: RunExperiment) -> Run:
    """Two steps of a small transformer, written down as a trace."""
    small = {"layers": 2, "width": 64, "context": 16, "sequences": 1, "steps": 2, "warmup": 1, "device": "20G"}
    settings = [f"--set={name}={value}" for name, value in {**small, "bucket": "64KiB", "overlap": "on"}.items()]
    return run_experiment("ddp", *STAR, *settings, "--set", "chakra=yes").succeeded()


@pytest.fixture(scope="module")
def replayed(trained: Run, run_experiment: RunExperiment) -> Run:
    """The same steps from that trace."""
    folder = trained.folder.path / "trace-overlap-on"
    return run_experiment("chakra", *STAR, "--set", f"trace={folder}").succeeded()


def test_a_training_run_played_from_its_trace_takes_as_long_as_it_took(trained: Run, replayed: Run) -> None:
    traces = file.read_folder(trained.folder.path / "trace-overlap-on")
    first_us = max(node.start_us + node.duration_us for trace in traces for node in trace)
    assert trace_of(replayed, "as planned")["time_us"] == pytest.approx(first_us, rel=0.05)


def test_what_was_promised_of_it_holds(replayed: Run) -> None:
    assert len(replayed.results.claims) == 5
    assert all(each.holds for each in replayed.results.claims), replayed.results.claims


def mixed() -> list[Trace]:
    """All collectives at least once, in the world and in groups, messages across, FLOP, memory, and the host."""
    found = []
    for rank in range(3):
        builder = Builder()
        start = builder.compute("start", 1000 * (rank + 1))
        for kind in CommType:
            size_bytes = 0 if kind is CommType.BARRIER else 12_000
            builder.collective(kind.name.lower(), kind, size_bytes, after=[start])
        if rank < 2:
            pair = builder.collective("pair", CommType.ALL_REDUCE, 4_000_003, group="pair", after=[start])
            builder.compute("after the pair", 5_000, after=[pair])
        sent = builder.send("ring out", 100_001, to=(rank + 1) % 3, tag=9, after=[start])
        received = builder.receive("ring in", 100_001, source=(rank - 1) % 3, tag=9, after=[start])
        builder.compute("end", 2_500, after=[sent, received])
        found.append(builder.trace())
    number = len(found[0].nodes)
    costs = (("num_ops", 10**9), ("tensor_size", 10**6), ("is_cpu_op", 1))
    extra = Node(
        id=number,
        name="priced",
        type=NodeType.COMP_NODE,
        ctrl_deps=(0,),
        attributes=tuple(Attribute(name=name, field="int64_val", value=value) for name, value in costs),
    )
    found[0] = Trace(nodes=(*found[0].nodes, extra))
    return found


@pytest.fixture(scope="module")
def everything(run_experiment: RunExperiment, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A trace with every kind of node."""
    folder = tmp_path_factory.mktemp("mixed")
    file.write_folder(folder, mixed())
    return run_experiment("chakra", *STAR, "--set", f"trace={folder}", "--set", "device=10T").succeeded()


def test_every_kind_of_node_is_played_with_its_dependencies_and_bytes(everything: Run) -> None:
    for words in ("no node starts before", "computes for as long", "the wire carries"):
        (claim,) = [each for each in everything.results.claims if words in each.claim]
        assert claim.holds, claim


def test_the_written_trace_has_the_nodes_of_the_one_that_was_played(everything: Run) -> None:
    written = file.read_folder(everything.folder.path / "trace")
    for before, after in zip(mixed(), written, strict=True):
        assert [(node.id, node.name, node.type, node.parents) for node in before] == [
            (node.id, node.name, node.type, node.parents) for node in after
        ]
        ends_us = {node.id: node.start_us + node.duration_us for node in after}
        assert all(node.start_us + 1 >= ends_us[parent] for node in after for parent in node.parents)


def test_independent_collectives_are_under_way_at_once(everything: Run) -> None:
    """The pair's 4 MB, by two ranks alone, and the world's small ones start at one instant."""
    nodes = {node.name: node for node in file.read_folder(everything.folder.path / "trace")[1]}
    pair, first = nodes["pair"], nodes["all_reduce"]
    assert pair.start_us == first.start_us
    assert nodes["reduce"].start_us < pair.start_us + pair.duration_us


def test_a_trace_that_would_never_end_is_refused_before_anything_is_made(
    run_experiment: RunExperiment, tmp_path: Path
) -> None:
    def waits_for(peer: int) -> Trace:
        builder = Builder()
        builder.send("mine", 4, to=peer, after=[builder.receive("yours", 4, source=peer)])
        return builder.trace()

    file.write_folder(tmp_path / "t", [waits_for(1), waits_for(0)])
    run = run_experiment("chakra", *STAR, "--set", f"trace={tmp_path / 't'}")
    assert run.exit_code == 2
    assert "wait for each other for ever" in run.said
    assert run.wall_s < 10
