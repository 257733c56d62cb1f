"""What follows from the times of nodes: broken dependencies, device time, the critical path, a trace of the run."""

from experiments.traces.builder import Builder
from experiments.traces.node import CommType, NodeType
from experiments.traces.plan import Rates, plan_of
from experiments.traces.recording import recorded, replayed
from experiments.traces.timing import Event, Played, Timing
from experiments.training.timeline import Interval, Kind, StepRecord

RATES = Rates(flop_per_s=1e12, memory_bps=8e12)


def played(*times: tuple[int, int]) -> Played:
    events = tuple(Event(node=node, start_ns=start, end_ns=end) for node, (start, end) in enumerate(times))
    return Played(events=events, tx_bytes=0, rx_bytes=0)


def two_ranks() -> tuple[Builder, Builder]:
    """Compute (10 and 50 ns), an all-reduce, compute."""
    builders = Builder(), Builder()
    for builder, duration_ns in zip(builders, (10, 50), strict=True):
        first = builder.compute("first", duration_ns)
        meet = builder.collective("meet", CommType.ALL_REDUCE, 8, after=[first])
        builder.compute("last", 5, after=[meet])
    return builders


def test_the_critical_path_goes_over_the_rank_that_came_last() -> None:
    plan = plan_of([builder.trace() for builder in two_ranks()], RATES)
    timing = Timing(plan, [played((0, 10), (10, 70), (70, 75)), played((0, 50), (50, 69), (69, 74))])
    path = [(hop.rank, hop.name, hop.kind, hop.own_ns) for hop in timing.critical_path()]
    assert path == [(1, "first", "compute", 50), (1, "meet", "all_reduce", 20), (0, "last", "compute", 5)]
    assert sum(hop.own_ns for hop in timing.critical_path()) == timing.total_ns == 75


def test_compute_that_waits_for_the_device_is_behind_what_held_it() -> None:
    builder = Builder()
    builder.compute("one", 10)
    builder.compute("two", 10)
    timing = Timing(plan_of([builder.trace()], RATES), [played((0, 10), (10, 20))])
    assert [hop.name for hop in timing.critical_path()] == ["one", "two"]


def test_a_node_that_starts_before_its_parent_ended_is_found() -> None:
    plan = plan_of([builder.trace() for builder in two_ranks()], RATES)
    timing = Timing(plan, [played((0, 10), (9, 70), (70, 75)), played((0, 50), (50, 69), (69, 74))])
    assert [(rank, action.name, parent) for rank, action, parent in timing.early()] == [(0, "meet", 0)]


def test_device_time_is_compared_with_the_plan() -> None:
    plan = plan_of([builder.trace() for builder in two_ranks()], RATES)
    timing = Timing(plan, [played((0, 11), (11, 70), (70, 75)), played((0, 50), (50, 69), (69, 74))])
    assert [timing.compute_ns(rank) for rank in (0, 1)] == [(15, 16), (55, 55)]


def test_a_trace_of_the_run_has_the_fabrics_times_and_the_plans_compute() -> None:
    trace = two_ranks()[0].trace()
    run = played((0, 1003), (1003, 71_234), (71_234, 75_000))
    after = replayed(trace, run.events)
    assert [(node.start_us, node.duration_us) for node in after] == [(0, 0), (1, 70), (71, 0)]
    assert [node.integer("duration_ns", 0) for node in after] == [10, 70_231, 5]
    assert [node.parents for node in after] == [node.parents for node in trace]


def compute(name: str, start_ns: int, end_ns: int) -> Interval:
    return Interval(kind=Kind.COMPUTE, name=name, start_ns=start_ns, end_ns=end_ns)


def send(name: str, start_ns: int, end_ns: int) -> Interval:
    return Interval(kind=Kind.COMMUNICATION, name=name, start_ns=start_ns, end_ns=end_ns, size_bytes=400)


def step(number: int, start_ns: int, *intervals: Interval) -> StepRecord:
    ordered = tuple(sorted(intervals, key=lambda each: (each.start_ns, each.end_ns, each.name)))
    return StepRecord(number=number, start_ns=start_ns, end_ns=max(it.end_ns for it in intervals), intervals=ordered)


def names_of_parents(steps: list[StepRecord]) -> dict[str, set[str]]:
    (trace,) = recorded([steps])
    names = {node.id: node.name for node in trace}
    return {node.name: {names[parent] for parent in node.parents} for node in trace}


def test_dependencies_of_a_run_are_read_off_its_gaps() -> None:
    """The drawing of recording.py."""
    found = names_of_parents(
        [
            step(
                0,
                0,
                compute("a", 0, 10),
                compute("b", 10, 20),
                send("x", 10, 22),
                send("y", 22, 30),
                compute("d", 30, 35),
            )
        ]
    )
    assert found == {
        "step 0 a": set(),
        "step 0 b": {"step 0 a"},
        "step 0 x": {"step 0 a"},
        "step 0 y": {"step 0 b", "step 0 x"},
        "step 0 d": {"step 0 b", "step 0 x", "step 0 y"},
    }


def test_a_step_waits_for_all_of_the_step_before_and_warm_up_is_left_out() -> None:
    found = names_of_parents(
        [
            step(-1, 0, compute("w", 0, 5)),
            step(0, 5, compute("a", 5, 10), send("x", 10, 18), send("z", 10, 20)),
            step(1, 20, compute("a", 20, 25)),
        ]
    )
    assert found["step 0 a"] == set()
    assert found["step 1 a"] == {"step 0 x", "step 0 z"}


def test_a_rank_that_began_later_begins_later_again() -> None:
    early, late = recorded([[step(0, 100, compute("a", 100, 200))], [step(0, 140, compute("a", 140, 240))]])
    assert [node.name for node in early] == ["step 0 a"]
    held, first = late.nodes
    assert (held.integer("duration_ns"), held.integer("is_cpu_op"), first.parents) == (40, 1, (held.id,))


def test_a_recorded_run_can_be_planned_with_its_collectives() -> None:
    steps = [step(0, 100, compute("a", 100, 1101), send("bucket0", 1101, 2000))]
    traces = recorded([steps, steps])
    assert [node.type for node in traces[0]] == [NodeType.COMP_NODE, NodeType.COMM_COLL_NODE]
    plan = plan_of(traces, RATES)
    assert list(plan.meetings) == ["world #0"]
    assert [getattr(action.work, "duration_ns", None) for action in plan.actions[0]] == [1001, None]
