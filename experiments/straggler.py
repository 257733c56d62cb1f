"""Stragglers: one slow member of a ring.  Who waits, for how long, and does the report name the right one?

    rank 0  [ forward, backward ][ ring all-reduce ]        healthy     all compute and send alike
    rank 1  [ forward, backward ][ ring all-reduce ]        device      one computes `slowdown` times as long
    rank 2  [ forward, backward              ][ ... ]       jitter      one takes now longer, now shorter
    rank 3  [ forward, backward ][ ring all-reduce ]        nic         the link of one host has `share` of its rate

Real: DDP's training step on gloo, without overlap, so that waiting shows.  Modelled: the GPU's time, slept; a slow NIC
is the port of the host and the switch's port towards it, told another rate while the fabric stands.

    ./run experiments/straggler.py
    ./run experiments/straggler.py --topology star:hosts=16 --set cases=healthy,nic --set share=0.25

Expected: a slow device costs every step its extra time; half the rate makes the ring take twice as long for every rank.
A slow or jittery device is named by its late arrivals, a slow NIC by the time its port spends sending (counters).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Flops, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training import pipeline
from experiments.training.accounting import StepAccount, account, summary
from experiments.training.device import Device
from experiments.training.diagnosis import LATE, PortUse, held_up_ns, late_ranks, longer_compute_ns, slow_links
from experiments.training.shape import Shape
from testbed.port.fabric_port import FabricPort
from testbed.sampler import Sampler
from topologies.errors import UnknownName, UserError
from topologies.model import Interface

if TYPE_CHECKING:
    from experiments.training.data_parallel import Plan, Trained

CASES = ("healthy", "device", "jitter", "nic")
BAND = 0.10
"""Of a step against what its parts say, as in ddp.py."""
RING_BAND = 0.15
"""Of the ring's slow-down against 1 / share: latency does not grow with a lower rate, queues do."""
PERIOD_NS = 1_000_000
"""Between two samples of the ports' counters; the first and the last are used."""
SHOWN = 4
"""Ports per case in the report: those that were sending longest."""


class Settings(BaseSettings):
    """The model, the straggler and what is tried."""

    cases: Words = Field(default=written(",".join(CASES)), description=f"of {', '.join(CASES)}")
    host: str = Field(default="", description="the straggler; empty is the host in the middle")
    slowdown: float = Field(default=2.0, gt=1, description="of the device in case device")
    jitter: float = Field(default=0.5, gt=0, description="standard deviation of each of its durations in case jitter")
    share: float = Field(default=0.5, gt=0, lt=1, description="of the rate of its link in case nic")
    layers: int = Field(default=3, ge=1, description="blocks of the transformer")
    width: int = Field(default=192, ge=8, description="of its vectors; 3 layers of 192 are 6 MB of gradient")
    heads: int = Field(default=4, ge=1, description="of its attention; divides the width")
    steps: int = Field(default=4, ge=1, description="measured training steps")
    warmup: int = Field(default=1, ge=1, description="training steps before them")
    device: Flops = Field(default=written("1T"), gt=0, description="FLOP/s of the modelled GPU")


@dataclass(frozen=True, kw_only=True)
class Found:
    """One case."""

    step_ns: float
    compute_ns: float
    longer_ns: Sequence[int]
    """Rank -> by how much it computed longer than any other, over all steps."""
    steps: int
    accounts: Sequence[StepAccount]
    held_up_ns: Mapping[int, int]
    ports: Sequence[PortUse]
    late: Sequence[str]
    """Hosts named for coming last, the worst first."""
    slow: Sequence[PortUse]
    """Ports named for sending longest."""

    def communication_ns(self, rank: int) -> float:
        """Per step: waiting for others, and the bytes under way."""
        return mean(each.exposed_ns for each in self.accounts if each.rank == rank and each.step >= 0)


def run(lab: Lab, settings: Settings) -> None:
    """One job per case."""
    from experiments.training.data_parallel import Plan

    for case in settings.cases:
        if case not in CASES:
            raise UnknownName("case", case, dict.fromkeys(CASES))
    hosts = [host.name for host in lab.topology.hosts]
    victim = settings.host or hosts[len(hosts) // 2]
    if victim not in hosts:
        raise UnknownName("host", victim, lab.topology.host_named)
    plan = Plan(
        shape=Shape(layers=settings.layers, width=settings.width, heads=settings.heads, context=32),
        sequences=4,
        steps=settings.steps,
        warmup=settings.warmup,
        overlap=False,
        seed=lab.seed,
    )
    found = {case: _measure(lab, plan, settings, case, victim) for case in settings.cases}
    for case, it in found.items():
        _claim_named(lab, case, it, victim)
    if "healthy" in found:
        _claim_times(lab, settings, found, hosts.index(victim))


def _measure(lab: Lab, plan: "Plan", settings: Settings, case: str, victim: str) -> Found:
    from experiments.training.data_parallel import train

    hosts = [host.name for host in lab.topology.hosts]
    device = Device(flop_per_s=settings.device, seed=lab.seed)
    odd = {"device": replace(device, slowdown=settings.slowdown), "jitter": replace(device, jitter=settings.jitter)}
    devices = [odd.get(case, device) if host == victim else device for host in hosts]
    with link_at(lab, victim, settings.share if case == "nic" else 1.0):
        ends = [end.name for host in hosts for end in _ends(lab, host)]
        with Sampler(lab.fabric, interfaces=ends, period_ns=PERIOD_NS) as sampler:
            trained = cast("list[Trained]", lab.job(train, plan, devices))
    series = sampler.series()
    ports = [
        PortUse(
            interface=end.name,
            link=lab.topology.link_of[end.name].name,
            host=host,
            busy_ns=int(series[end.name]["busy_ns"][-1] - series[end.name]["busy_ns"][0]),
            sent_bytes=int(series[end.name]["delivered_bytes"][-1] - series[end.name]["delivered_bytes"][0]),
        )
        for host in hosts
        for end in _ends(lab, host)
    ]
    found = _found(hosts, trained, ports)
    _note(lab, case, hosts, found)
    return found


def _found(hosts: Sequence[str], trained: "Sequence[Trained]", ports: Sequence[PortUse]) -> Found:
    records = [each.steps for each in trained]
    held_up, step_ns = held_up_ns(records), pipeline.step_ns(records)
    measured = sum(record.number >= 0 for record in records[0])
    return Found(
        step_ns=step_ns,
        compute_ns=pipeline.compute_ns(records),
        longer_ns=[longer_compute_ns(records, rank) for rank in range(len(records))],
        steps=measured,
        accounts=account(records),
        held_up_ns=held_up,
        ports=ports,
        late=[hosts[rank] for rank in late_ranks(held_up, total_ns=round(step_ns * measured))],
        slow=slow_links(ports),
    )


def _ends(lab: Lab, host: str) -> list[Interface]:
    """Both ends of each of its links."""
    nics = lab.topology.interfaces_of[host]
    return [end for nic in nics for end in (nic, lab.topology.peer_of[nic.name])]


@contextmanager
def link_at(lab: Lab, host: str, share: float) -> Iterator[None]:
    """The links of a host at this share of their rate, both ways; put back afterwards.

    Raises UserError for ports that cannot be changed while they run.
    """
    port = lab.fabric.port
    if share == 1.0:
        yield
        return
    if not isinstance(port, FabricPort):
        raise UserError(f"ports of kind {port.name} cannot be changed while they run; leave port.kind out")
    names = [end.name for end in _ends(lab, host)]
    before = {name: port.config(lab.fabric.plan.egresses[name]) for name in names}
    slower = {name: replace(config, rate_bps=round(config.rate_bps * share)) for name, config in before.items()}
    with lab.fabric.port_sockets(names) as routes:
        lab.fabric.change_ports(slower, routes)
        lab.fabric.verify()
        yield
        lab.fabric.change_ports(before, routes)
        lab.fabric.verify()


def _note(lab: Lab, case: str, hosts: Sequence[str], found: Found) -> None:
    lab.add_busy_ns(sum(each.step_ns for each in found.accounts if each.rank == 0))
    lab.sections.setdefault("cases", []).append(
        {
            "case": case,
            "step_us": round(found.step_ns / 1e3, 3),
            "late_hosts": ", ".join(found.late) or "none",
            "slow_links": ", ".join(f"{port.link} of {port.host}" for port in found.slow) or "none",
        }
    )
    lab.sections.setdefault("members", []).extend(
        {
            "case": case,
            "host": hosts[row["rank"]],
            **row,
            "held_up_us": round(found.held_up_ns[row["rank"]] / found.steps / 1e3, 3),
        }
        for row in summary(found.accounts)
    )
    lab.sections.setdefault("busiest_ports", []).extend(
        {
            "case": case,
            "host": port.host,
            "interface": port.interface,
            "link": port.link,
            "sending_us": round(port.busy_ns / 1e3, 3),
            "sent_bytes": port.sent_bytes,
            "while_sending_gbps": round(port.speed_gbps, 3),
        }
        for port in sorted(found.ports, key=lambda each: (-each.busy_ns, each.interface))[:SHOWN]
    )


def _claim_named(lab: Lab, case: str, found: Found, victim: str) -> None:
    late, links = list(found.late), [port.link for port in found.slow]
    named = f"late {late or 'none'}, slow links {links or 'none'}"
    own = [lab.topology.link_of[nic.name].name for nic in lab.topology.interfaces_of[victim]]
    if case == "healthy":
        lab.add_claim("healthy: nobody is named", expected="none", measured=named, holds=not late and not links)
    elif case == "nic":
        fastest = max(port.speed_gbps for port in found.ports)
        evidence = "; ".join(
            f"{port.host}'s {port.link} sent for {port.busy_ns / 1e3:.0f} us at {port.speed_gbps:.1f} Gb/s"
            for port in found.slow
        )
        lab.add_claim(
            "nic: the slow link and its host are named, from the ports' counters",
            expected=f"{victim}, link {', '.join(own)}, and nobody else",
            measured=f"{evidence or 'none'}; others at up to {fastest:.1f} Gb/s; late {late or 'none'}",
            holds=links == own and {port.host for port in found.slow} == {victim} and not late,
        )
    else:
        rank = [host.name for host in lab.topology.hosts].index(victim)
        share = found.longer_ns[rank] / (found.step_ns * found.steps)
        sure = share > 2 * LATE  # a jittery device may have been lucky
        lab.add_claim(
            f"{case}: the slow device is named, from when ranks arrive at collectives",
            expected=f"{victim} and nobody else{'' if sure else ', or nobody'}: it computed longer than all others for "
            f"{share:.1%} of the time",
            measured=named,
            holds=(late == [victim] or (not late and not sure)) and not links,
        )


def _claim_times(lab: Lab, settings: Settings, found: Mapping[str, Found], victim: int) -> None:
    healthy = found["healthy"]
    if "device" in found:
        extra_ns = (settings.slowdown - 1) * healthy.compute_ns
        _claim_step(lab, "device: every step takes the slow device's extra time", found["device"], healthy, extra_ns)
    if "jitter" in found:
        extra_ns = found["jitter"].longer_ns[victim] / found["jitter"].steps
        claim = "jitter: every step takes what the straggler needs longer than the others; what it saves, nobody has"
        _claim_step(lab, claim, found["jitter"], healthy, extra_ns)
    if "nic" in found:
        ranks = sorted({each.rank for each in healthy.accounts})
        ratios = [found["nic"].communication_ns(rank) / healthy.communication_ns(rank) for rank in ranks]
        wanted = 1 / settings.share
        lab.add_claim(
            "nic: the ring takes as much longer as the link is slower, for every rank",
            expected=f"{wanted:g} x +- {RING_BAND:.0%} at each of {len(ranks)} ranks",
            measured=f"{min(ratios):.3f} to {max(ratios):.3f} x",
            holds=all(abs(ratio / wanted - 1) <= RING_BAND for ratio in ratios),
        )


def _claim_step(lab: Lab, claim: str, found: Found, healthy: Found, extra_ns: float) -> None:
    wanted_ns = healthy.step_ns + extra_ns
    lab.add_claim(
        claim,
        expected=f"{healthy.step_ns / 1e3:.1f} + {extra_ns / 1e3:.1f} us +- {BAND:.0%}",
        measured=f"{found.step_ns / 1e3:.1f} us",
        holds=abs(found.step_ns / wanted_ns - 1) <= BAND,
    )


EXPERIMENT = Experiment(
    name="straggler",
    question="How long does everybody wait for one slow device or NIC, and is the right one named?",
    settings=Settings,
    run=run,
    topology="star",
)

if __name__ == "__main__":
    main(EXPERIMENT)
