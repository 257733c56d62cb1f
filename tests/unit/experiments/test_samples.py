"""From what ranks bring back to rows and audit entries."""

from experiments.workloads.collectives import Measured, steps_of
from experiments.workloads.samples import Iteration, Sample, Step, iterations
from testbed.workers.counters import HostCounters


def sample(
    number: int, start_ns: int, end_ns: int, *, wrong: int = 0, tx_bytes: int = 0, tx_packets: int = 0
) -> Sample:
    return Sample(
        iteration=number,
        start_ns=start_ns,
        end_ns=end_ns,
        wrong=wrong,
        counters=HostCounters(
            tx_bytes=tx_bytes,
            tx_packets=tx_packets,
            rx_bytes=0,
            rx_packets=0,
            retransmitted_segments=1,
            timeouts=0,
            loss_probes=0,
        ),
        header_bytes=66,
    )


STEP = Step(op="send_recv", size_bytes=1000)


def test_an_iteration_lasts_from_the_first_start_to_the_last_end() -> None:
    one = Iteration(step=STEP, samples=(sample(0, 10, 50), sample(0, 12, 90), sample(0, 11, 60)))
    assert one.time_ns == 80


def test_samples_are_regrouped_by_step_and_iteration() -> None:
    steps = (STEP, Step(op="barrier", size_bytes=0))
    found = [[[sample(-1, r, 5), sample(0, r, 6)], [sample(-1, r, 7), sample(0, r, 8)]] for r in (0, 1)]
    grouped = list(iterations(steps, found))
    assert [(it.step.op, it.number, len(it.samples), it.samples[0].end_ns) for it in grouped] == [
        ("send_recv", -1, 2, 5),
        ("send_recv", 0, 2, 6),
        ("barrier", -1, 2, 7),
        ("barrier", 0, 2, 8),
    ]


def test_warm_up_counts_as_busy_but_gives_no_row() -> None:
    measured = Measured(
        iterations=(
            Iteration(step=STEP, samples=(sample(-1, 0, 10), sample(-1, 0, 30))),
            Iteration(step=STEP, samples=(sample(0, 100, 150, wrong=1), sample(0, 100, 200, wrong=2))),
        )
    )
    assert measured.busy_ns == 130
    (row,) = measured.rows
    assert (row.iteration, row.wrong, row.time_us, row.ranks) == (0, 3, 0.1, 2)
    assert row.algbw_GBps == row.busbw_GBps == 10


def test_an_audit_entry_holds_payload_against_formula() -> None:
    one = Iteration(step=STEP, samples=(sample(0, 0, 1, tx_bytes=1096 + 48 + 2 * 66, tx_packets=2), sample(0, 0, 1)))
    (entry,) = Measured(iterations=(one,)).audit
    assert entry["expected_tx_bytes"] == [1096 + 48] * 2
    assert entry["tx_payload_bytes"] == [1096 + 48, 0]
    assert entry["retransmitted_segments"] == [1, 1]


def test_a_sweep_measures_each_size_once_and_a_barrier_once() -> None:
    steps = steps_of(["gather", "barrier"], [1003, 1000, 2000], ranks=4)
    assert [(step.op, step.size_bytes) for step in steps] == [("gather", 992), ("gather", 2000), ("barrier", 0)]
