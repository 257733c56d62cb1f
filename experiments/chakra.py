"""A Chakra execution trace on the fabric: what does a job's graph of compute and communication take here, and why?

    DIR/x.0.et  [forward]->[backward]->[all_reduce]--.        one file per rank, nodes with dependencies
    DIR/x.1.et  [forward]->[backward]->[all_reduce]--+->[optimizer]
                    |           |            `- real gloo collectives, sends and receives, as soon as parents have ended
                    `-----------`- the device is busy for duration_micros (or num_ops at its rate): slept

The trace is checked whole before anything runs: missing nodes, collectives without partners, circles.  Then it is
played; the run is written as a trace (`trace/` in the run's folder: what was measured in place of what was planned),
read back and played again.

    ./run experiments/chakra.py --set example=pipeline --topology star:hosts=4
    ./run experiments/chakra.py --set trace=/tmp/llama          a folder with NAME.0.et, NAME.1.et, ...

Expected: no node starts before its parents have ended; device time is the trace's; the wire carries what its
collectives need; and without losses, what was written down from the run takes the same time again, along the same
critical path.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import Field, field_validator

from experiments.bounds import SACK_BYTES, WIRE_TOLERANCE, moved
from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Delay, Flops, Rate, Size, written
from experiments.settings import Settings as BaseSettings
from experiments.traces import file
from experiments.traces.examples import EXAMPLES, example
from experiments.traces.examples import Size as ExampleSize
from experiments.traces.node import Trace
from experiments.traces.plan import Plan, Rates, plan_of
from experiments.traces.recording import replayed
from experiments.traces.timing import Hop, Played, Timing
from experiments.traces.traffic import needs
from experiments.training.accounting import account
from topologies.errors import UserError

CHECKOUT = Path(__file__).resolve().parents[1]
BAND = 0.05
"""Of the time of a trace that is played again: gloo's connections are new ones, and collectives that are under way at
once share the links a little differently (1.8% was the most seen)."""
SLEEP_NS = 10
"""By which a node's sleep may exceed its duration: a double of seconds holds nanoseconds no better."""
SHOWN = 30
"""Hops of the critical path that are listed."""


class Settings(BaseSettings):
    """Which trace; the rest describes examples and the device of nodes without a duration."""

    trace: str = Field(default="", description="folder with a trace; a relative path counts from the checkout")
    example: str = Field(default="ddp", description=f"what to play without a trace: {', '.join(EXAMPLES)}")
    size: Size = Field(default=written("1MB"), ge=4, description="example: bytes per collective or message")
    layers: int = Field(default=4, ge=1, description="example: layers, or the pipeline's micro-batches")
    compute: Delay = Field(
        default=written("100us"), description="example: forward time per layer; backward is twice it"
    )
    device: Flops = Field(default=written("100T"), gt=0, description="FLOP/s, for nodes with num_ops and no duration")
    memory: Rate = Field(default=written("16T"), gt=0, description="bit/s, for nodes with tensor_size and no duration")

    @field_validator("trace")
    @classmethod
    def _playable(cls, trace: str) -> str:
        """A trace is read and checked before anything is made, at whatever rates; the guest reads it again."""
        if trace:
            _as_value_error(lambda: plan_of(_read(trace), Rates(flop_per_s=1, memory_bps=1)))
        return trace

    @field_validator("example")
    @classmethod
    def _known(cls, name: str) -> str:
        _as_value_error(lambda: example(name, ExampleSize(ranks=1, layers=1, size_bytes=4, compute_ns=0)))
        return name

    @property
    def rates(self) -> Rates:
        """Of the device."""
        return Rates(flop_per_s=self.device, memory_bps=self.memory)

    def traces(self, ranks: int) -> Sequence[Trace]:
        """Of the folder, or the example for so many ranks.  Raises UserError."""
        if self.trace:
            return _read(self.trace)
        size = ExampleSize(ranks=ranks, layers=self.layers, size_bytes=self.size, compute_ns=self.compute)
        return example(self.example, size)


def _read(trace: str) -> Sequence[Trace]:
    return file.read_folder(CHECKOUT / trace)


def _as_value_error(check: Callable[[], object]) -> None:
    """What pydantic collects with the field's name."""
    try:
        check()
    except UserError as error:
        raise ValueError(str(error)) from error


def run(lab: Lab, settings: Settings) -> None:
    """Plays the trace, writes what happened, reads that back, plays it again."""
    hosts = [host.name for host in lab.topology.hosts]
    traces = settings.traces(len(hosts))
    if len(traces) > len(hosts):
        raise UserError(f"the trace has {len(traces)} ranks and the topology {len(hosts)} hosts; take a larger one")
    hosts = hosts[: len(traces)]
    plan = plan_of(traces, settings.rates)
    played = _play(lab, plan, hosts)
    timing = Timing(plan, played)
    folder = lab.folder.path / "trace"
    file.write_folder(folder, [replayed(trace, each.events) for trace, each in zip(traces, played, strict=True)])
    again_plan = plan_of(file.read_folder(folder), settings.rates)
    played_again = _play(lab, again_plan, hosts)
    again = Timing(again_plan, played_again)
    lost, lost_again = (sum(each.retransmissions for each in them) for them in (played, played_again))
    lab.add(
        "trace",
        [
            {**_summary("as planned", plan, timing), "retransmissions": lost},
            {**_summary("again, as recorded", again_plan, again), "retransmissions": lost_again},
        ],
    )
    lab.add("ranks_of_trace", list(_ranks(hosts, plan, timing, played)))
    path = timing.critical_path()
    lab.add("critical_path", [_line(hosts, hop) for hop in path[-SHOWN:]])
    _claim_dependencies(lab, plan, timing)
    _claim_account(lab, plan, timing, played)
    if not lost and not lost_again:  # when a segment is lost, and so what its timeout holds up, is chance
        _claim_again(lab, timing, again)


def _play(lab: Lab, plan: Plan, hosts: Sequence[str]) -> list[Played]:
    from experiments.traces.executor import play  # imports torch, which only ranks need

    found = cast("list[Played]", lab.job(play, plan, hosts=hosts))
    lab.add_busy_ns(Timing(plan, found).total_ns)
    return found


def _summary(name: str, plan: Plan, timing: Timing) -> dict[str, Any]:
    path = timing.critical_path()
    waits = {hop.kind: 0 for hop in path}
    for hop in path:
        waits[hop.kind] += hop.own_ns
    compute_ns = waits.pop("compute", 0)
    return {
        "run": name,
        "ranks": len(plan.actions),
        "nodes": sum(map(len, plan.actions)),
        "communications": len(plan.meetings),
        "time_us": timing.total_ns / 1e3,
        "critical_hops": len(path),
        "critical_compute_us": compute_ns / 1e3,
        "critical_communication_us": sum(waits.values()) / 1e3,
    }


def _ranks(hosts: Sequence[str], plan: Plan, timing: Timing, played: Sequence[Played]) -> Any:
    accounts = account([[timing.record(rank)] for rank in range(len(hosts))])
    for host, each, need, seen in zip(hosts, accounts, needs(plan), played, strict=True):
        row = each.as_dict()
        yield {
            "host": host,
            **{name: row[name] for name in ("compute_us", "overlapped_us", "waiting_us", "network_us", "idle_us")},
            "halting": row["halting"],
            "sent_bytes": seen.tx_bytes,
            "needed_bytes": need.tx,
            "retransmissions": seen.retransmissions,
        }


def _line(hosts: Sequence[str], hop: Hop) -> dict[str, Any]:
    return {
        "host": hosts[hop.rank],
        "node": hop.node,
        "name": hop.name,
        "kind": hop.kind,
        "start_us": hop.start_ns / 1e3,
        "own_us": hop.own_ns / 1e3,
    }


def _claim_dependencies(lab: Lab, plan: Plan, timing: Timing) -> None:
    early = list(timing.early())
    dependencies = sum(len(action.parents) for actions in plan.actions for action in actions)
    lab.add_claim(
        "no node starts before its parents have ended",
        expected=f"0 of {dependencies} dependencies broken",
        measured=str(len(early)),
        holds=not early,
    )


def _claim_account(lab: Lab, plan: Plan, timing: Timing, played: Sequence[Played]) -> None:
    times = [timing.compute_ns(rank) for rank in range(len(plan.actions))]
    nodes = max(len(actions) for actions in plan.actions)
    apart_ns = max(abs(seen - planned) for planned, seen in times)
    lab.add_claim(
        "every rank computes for as long as its trace says",
        expected=f"{max(planned for planned, _ in times) / 1e3:g} us at most, within {SLEEP_NS} ns per node",
        measured=f"{apart_ns} ns apart",
        holds=apart_ns <= SLEEP_NS * nodes,
    )
    broken = [fault for way in ("tx", "rx") for fault in _moved(way, plan, played, mtu=lab.topology.mtu)]
    lab.add_claim(
        "the wire carries what the trace's collectives and messages need, as gloo runs them",
        expected=f"payload per rank and direction within {WIRE_TOLERANCE:.0%}, and what was sent again",
        measured="; ".join(broken) or f"{sum(each.tx_bytes for each in played)} B as they must be",
        holds=not broken,
    )


def _moved(way: str, plan: Plan, played: Sequence[Played], *, mtu: int) -> list[str]:
    """Per rank; retransmissions explain a segment each, and SACK blocks what they add to packets."""
    again = [each.retransmissions for each in played]
    segments = again if way == "tx" else [sum(again)] * len(again)
    return moved(
        f"the trace, {way}",
        expected=[getattr(need, way) for need in needs(plan)],
        seen=[getattr(each, f"{way}_bytes") for each in played],
        extra=[
            count * mtu + (SACK_BYTES * getattr(each, f"{way}_packets") if any(again) else 0)
            for count, each in zip(segments, played, strict=True)
        ],
    )


def _claim_again(lab: Lab, first: Timing, again: Timing) -> None:
    ratio = again.total_ns / first.total_ns if first.total_ns else 1.0
    lab.add_claim(
        "the run, written as a trace and read back, takes the same time again",
        expected=f"{first.total_ns / 1e3:.3f} us +- {BAND:.0%}",
        measured=f"{again.total_ns / 1e3:.3f} us",
        holds=abs(ratio - 1) <= BAND,
    )
    names = [[hop.name for hop in each.critical_path()] for each in (first, again)]
    lab.add_claim(
        "along the same critical path",
        expected=f"{len(names[0])} nodes of the same names in the same order",
        measured=f"{sum(one == other for one, other in zip(*names, strict=False))} of {len(names[1])} equal",
        holds=names[0] == names[1],
    )


EXPERIMENT = Experiment(
    name="chakra",
    question="What does a Chakra execution trace take on this fabric, and along which nodes?",
    settings=Settings,
    run=run,
)

if __name__ == "__main__":
    main(EXPERIMENT)
