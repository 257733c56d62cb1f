"""Traffic patterns from a few lines of text: how much longer do flows take here than on an idle fabric?

    permutation   h1 -> h3   h2 -> h1   h3 -> h2         each sends to one, one sends to each
    all_to_all    everybody -> everybody                 P (P - 1) flows
    incast        h2, h3, ... ==> h1                     one link for all
    shuffle       h1, h2 ==> h3, h4                      mappers to reducers
    h1 -> h2      one flow

Every flow is a TCP connection of its own, opened before, that begins at its instant with the initial window.  The
language is told in experiments/workloads/patterns.py; lines are separated by `;` on the command line:

    ./run experiments/schedule.py --topology star:hosts=8
    ./run experiments/schedule.py --set schedule='repeat 4 every 2ms; at 0 incast 6 -> h1 9kB; end; at 1ms h2 -> h3 9MB'
    ./run experiments/schedule.py --set schedule=traffic.txt

FCT runs from the flow's first byte at the sender to its last at the receiver; slowdown is FCT / ideal: one-way delay
and all bytes at the path's slowest link (experiments/workloads/completion.py).

Expected: every byte arrives and no flow beats the arithmetic; a flow that shares no link with another's data is slower
only by its slow start, the same time whatever its size.  In a permutation that is more than for one flow alone:
acknowledgements wait behind data in the NIC, and CUBIC's HyStart leaves slow start at 22 packets (measured).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import Field, field_validator

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.workloads.completion import by_class, ideal_ns
from experiments.workloads.flows import Arrived, Report, Sent, program
from experiments.workloads.patterns import Flow, parse
from topologies.errors import UserError

CHECKOUT = Path(__file__).resolve().parents[1]
SHOWN = 16
"""Flows that are listed, the slowest first; results.json has all."""
ROUNDING_NS = 8
"""Ports put frames on the wire at whole nanoseconds: less than one for each link of a path."""
START_NS = 250_000
"""What slow start costs at most, measured: 35 us of a flow alone, 187 us of one in a permutation of 10 or 40 MB, at
100 Gb/s with the NICs' interrupt moderation; 14 us without it, 51 us under Reno, which has no HyStart."""


class Settings(BaseSettings):
    """What flows when."""

    schedule: str = Field(
        default="at 0 permutation 10MB",
        description="lines separated by `;`, or a file with them (a relative path counts from the checkout)",
    )

    @field_validator("schedule")
    @classmethod
    def _readable(cls, schedule: str) -> str:
        try:
            lines(schedule)
        except UserError as error:
            raise ValueError(str(error)) from error
        return schedule


def lines(schedule: str) -> str:
    """What has a blank in it is the lines themselves and no file's name.  Raises UserError."""
    if len(schedule.split()) > 1:
        return schedule
    try:
        return (CHECKOUT / schedule).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{error}; write lines such as `at 0 permutation 10MB`, or a file with them") from None


@dataclass(frozen=True, kw_only=True)
class Done:
    """A flow that has ended."""

    flow: Flow
    sent: Sent
    arrived: Arrived
    ideal_ns: float

    @property
    def fct_ns(self) -> int:
        """From the first byte to the last."""
        return self.arrived.end_ns - self.sent.start_ns

    @property
    def slowdown(self) -> float:
        """How many times the ideal."""
        return self.fct_ns / self.ideal_ns


def run(lab: Lab, settings: Settings) -> None:
    """One job for the whole schedule, on the hosts that it names."""
    every_host = [host.name for host in lab.topology.hosts]
    flows = parse(lines(settings.schedule), every_host, lab.seed)
    named = {end for flow in flows for end in (flow.source, flow.destination)}
    hosts = [host for host in every_host if host in named]
    before = lab.sample()
    reports = cast("list[Report]", lab.job(program, flows, hosts, hosts=hosts, process_group=False))
    after = lab.sample()
    dropped = sum(after[name].port.dropped_packets - before[name].port.dropped_packets for name in after)
    done = _done(lab, flows, reports)
    lab.add_busy_ns(max(each.arrived.end_ns for each in done) - min(each.sent.start_ns for each in done))
    lab.add("patterns", [_pattern(name, members) for name, members in _by_line(done).items()])
    lab.add("fct", by_class((each.flow.size_bytes, each.fct_ns / 1e3, each.slowdown) for each in done))
    lab.add("slowest_flows", [_row(each) for each in sorted(done, key=lambda each: -each.slowdown)[:SHOWN]])
    rows = [_row(each) for each in done]
    lab.add("flows", {name: [row[name] for row in rows] for name in rows[0]})
    lab.add("loss", [{"dropped_packets": dropped, **_losses(reports)}])
    _claim(lab, done, reports)


def _done(lab: Lab, flows: Sequence[Flow], reports: Sequence[Report]) -> list[Done]:
    sent = {each.number: each for report in reports for each in report.sent}
    arrived = {each.number: each for report in reports for each in report.arrived}
    header_bytes = reports[0].header_bytes
    return [
        Done(
            flow=flow,
            sent=sent[number],
            arrived=arrived[number],
            ideal_ns=ideal_ns(lab.topology, flow.source, flow.destination, flow.size_bytes, header_bytes=header_bytes),
        )
        for number, flow in enumerate(flows)
    ]


def _by_line(done: Sequence[Done]) -> dict[tuple[int, str], list[Done]]:
    found: dict[tuple[int, str], list[Done]] = {}
    for each in sorted(done, key=lambda each: each.flow.line):
        found.setdefault((each.flow.line, each.flow.pattern), []).append(each)
    return found


def _pattern(name: tuple[int, str], members: Sequence[Done]) -> dict[str, Any]:
    slowdowns = sorted(each.slowdown for each in members)
    return {
        "line": name[0],
        "pattern": name[1],
        "flows": len(members),
        "bytes": sum(each.flow.size_bytes for each in members),
        "mean_fct_us": round(sum(each.fct_ns for each in members) / len(members) / 1e3, 3),
        "best_slowdown": round(slowdowns[0], 3),
        "median_slowdown": round(slowdowns[len(slowdowns) // 2], 3),
        "worst_slowdown": round(slowdowns[-1], 3),
        "retransmissions": sum(each.sent.retransmissions for each in members),
    }


def _row(each: Done) -> dict[str, Any]:
    return {
        "line": each.flow.line,
        "pattern": each.flow.pattern,
        "source": each.flow.source,
        "destination": each.flow.destination,
        "size_bytes": each.flow.size_bytes,
        "start_us": each.flow.start_ns / 1e3,
        "fct_us": each.fct_ns / 1e3,
        "ideal_us": round(each.ideal_ns / 1e3, 3),
        "slowdown": round(each.slowdown, 4),
        "retransmissions": each.sent.retransmissions,
    }


def _losses(reports: Sequence[Report]) -> Mapping[str, int]:
    return {
        "retransmitted_segments": sum(each.counters.retransmitted_segments for each in reports),
        "timeouts": sum(each.counters.timeouts for each in reports),
        "loss_probes": sum(each.counters.loss_probes for each in reports),
    }


def _claim(lab: Lab, done: Sequence[Done], reports: Sequence[Report]) -> None:
    asked = sum(each.flow.size_bytes for each in done)
    wrong = sum(each.arrived.wrong for each in done)
    lab.add_claim(
        "every byte arrives, once and in order",
        expected=f"{asked} B in {len(done)} flows, none wrong",
        measured=f"{sum(each.arrived.size_bytes for each in done)} B, {wrong} pieces wrong",
        holds=all(each.arrived.size_bytes == each.flow.size_bytes for each in done) and not wrong,
    )
    sent = sum(each.counters.tx_payload_bytes(each.header_bytes) for each in reports)
    again = sum(each.counters.retransmitted_segments for each in reports)
    lab.add_claim(
        "hosts put no more on the wire than the flows and what was sent again",
        expected=f"{asked} B and at most {again} segments",
        measured=f"{sent - asked} B more",
        holds=asked <= sent <= asked + again * lab.topology.mtu + _sack_bytes(reports, again),
    )
    fastest = min(done, key=lambda each: each.fct_ns - each.ideal_ns)
    lab.add_claim(
        "no flow is faster than its path allows",
        expected=f"at least its ideal less {ROUNDING_NS} ns",
        measured=f"{fastest.fct_ns} ns for {fastest.ideal_ns:.2f} ns, {fastest.flow.size_bytes} B",
        holds=fastest.fct_ns >= fastest.ideal_ns - ROUNDING_NS,
    )
    if lonely := alone(lab, done):
        worst = max(lonely, key=lambda each: each.fct_ns - each.ideal_ns)
        lab.add_claim(
            "flows that share no link with other flows' data take no more than the arithmetic and their slow start",
            expected=f"at most {START_NS / 1e3:g} us more, whatever their size",
            measured=f"{(worst.fct_ns - worst.ideal_ns) / 1e3:.1f} us, slowdown {worst.slowdown:.3f}",
            holds=worst.fct_ns - worst.ideal_ns <= START_NS,
        )


def _sack_bytes(reports: Sequence[Report], again: int) -> int:
    """Acknowledgements carry up to 28 B of SACK blocks while something is missing: they look like payload here."""
    return 28 * sum(each.counters.tx_packets for each in reports) if again else 0


def alone(lab: Lab, done: Sequence[Done]) -> list[Done]:
    """On a fabric of one switch: flows whose source sends nothing else and whose destination receives nothing else."""
    if len(lab.topology.switches) > 1:
        return []
    sources, destinations = ([getattr(each.flow, end) for each in done] for end in ("source", "destination"))
    return [
        each for each in done if sources.count(each.flow.source) == 1 and destinations.count(each.flow.destination) == 1
    ]


EXPERIMENT = Experiment(
    name="schedule",
    question="How much longer do the flows of a traffic pattern take than on an idle fabric?",
    settings=Settings,
    run=run,
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
