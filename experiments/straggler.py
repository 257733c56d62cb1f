"""Stragglers: one slow member of a ring.  Who waits, for how long, and does the report name the right one?

    rank 0  [ forward, backward ][ ring all-reduce ]        healthy     all compute and send alike
    rank 1  [ forward, backward ][ ring all-reduce ]        device      one computes `slowdown` times as long
    rank 2  [ forward, backward              ][ ... ]       jitter      one takes now longer, now shorter
    rank 3  [ forward, backward ][ ring all-reduce ]        nic         the link of one host has `share` of its rate
    rank 4  [ forward, backward ][ ring all-reduce ]        nic_jitter  it goes back and forth, down to `dip` of it

Real: DDP's training step on gloo, without overlap, so that waiting shows.  Modelled: the GPU's time, slept; a slow NIC
is the port of the host and the switch's port towards it, told another rate while the fabric stands, or, where it
jitters, while traffic runs (experiments/training/unsteady_link.py).

    ./run experiments/straggler.py
    ./run experiments/straggler.py --topology star:hosts=16 --set cases=healthy,nic --set share=0.25

Expected: a slow device costs every step its extra time; half the rate makes the ring take twice as long for every rank.
A slow or jittery device is named by its late arrivals, a slow or jittery NIC by the time its port spends sending
(counters): a ring ends for everybody at about the same time, and its host is the last at the next collective by some
microseconds only, if at all (`most_often_last`).  What tells the two NICs apart is the port's speed from sample to
sample.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, cast

from pydantic import Field

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Delay, Flops, Words, written
from experiments.settings import Settings as BaseSettings
from experiments.training import pipeline
from experiments.training.accounting import StepAccount, account, stragglers, summary, union
from experiments.training.device import Device
from experiments.training.diagnosis import (
    LATE,
    PortUse,
    held_up_ns,
    late_ranks,
    longer_compute_ns,
    slow_links,
    speeds_gbps,
)
from experiments.training.shape import Shape
from experiments.training.timeline import Kind
from experiments.training.unsteady_link import Dips, unsteady_link
from testbed.port.fabric_port import FabricPort
from testbed.sampler import Sampler, Series
from topologies.errors import UnknownName, UserError
from topologies.model import Interface

if TYPE_CHECKING:
    from experiments.training.data_parallel import Plan, Trained

CASES = ("healthy", "device", "jitter", "nic", "nic_jitter")
BAND = 0.10
"""Of a step against what its parts say, as in ddp.py."""
RING_BAND = 0.15
"""Of the ring's slow-down against 1 / share: latency does not grow with a lower rate, queues do."""
PERIOD_NS = 100_000
"""Between two samples of the ports' counters."""
SHOWN = 4
"""Ports per case in the report: those that were sending longest."""


class Settings(BaseSettings):
    """The model, the straggler and what is tried."""

    cases: Words = Field(default=written(",".join(CASES)), description=f"of {', '.join(CASES)}")
    host: str = Field(default="", description="the straggler; empty is the host in the middle")
    slowdown: float = Field(default=2.0, gt=1, description="of the device in case device")
    jitter: float = Field(default=0.5, gt=0, description="standard deviation of each of its durations in case jitter")
    share: float = Field(default=0.5, gt=0, lt=1, description="of the rate of its link in case nic")
    dip: float = Field(default=0.25, gt=0, lt=1, description="of the rate of its link at its slow times, nic_jitter")
    flicker: Delay = Field(
        default=written("1ms"), gt=0, description="how long it stays fast or slow (mean), nic_jitter"
    )
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
    full_rate_ns: float
    """Per step: what the victim's communication would have taken had its NIC kept its rate."""
    last: Sequence[str]
    """Hosts by how often they were the last at a collective, by their own doing or not."""
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
    ends = [(host, end.name) for host in hosts for end in _ends(lab, host)]
    sampler = Sampler(lab.fabric, interfaces=[name for _, name in ends], period_ns=PERIOD_NS)
    with _nic(lab, settings, case, victim) as dips, sampler:
        trained = cast("list[Trained]", lab.job(train, plan, devices))
    series = sampler.series()
    ports = [_use(series[name], host, lab.topology.link_of[name].name) for host, name in ends]
    found = _found(hosts, trained, ports, dips, hosts.index(victim))
    _note(lab, case, hosts, found)
    return found


def _nic(lab: Lab, settings: Settings, case: str, victim: str) -> AbstractContextManager[Dips]:
    """The victim's cable as the case wants it."""
    if case == "nic_jitter":
        links = [lab.topology.link_of[nic.name].name for nic in lab.topology.interfaces_of[victim]]
        return unsteady_link(lab.fabric, links, share=settings.dip, mean_ns=settings.flicker, seed=lab.seed)
    return link_at(lab, victim, settings.share if case == "nic" else 1.0)


def _use(series: Series, host: str, link: str) -> PortUse:
    now, busy, sent = (series[name].tolist() for name in ("now_ns", "busy_ns", "delivered_bytes"))
    return PortUse(
        interface=series.interface,
        link=link,
        host=host,
        busy_ns=busy[-1] - busy[0],
        sent_bytes=sent[-1] - sent[0],
        speeds_gbps=speeds_gbps(now, busy, sent),
    )


def _found(
    hosts: Sequence[str], trained: "Sequence[Trained]", ports: Sequence[PortUse], dips: Dips, victim: int
) -> Found:
    records = [each.steps for each in trained]
    spoken = union(
        (each.start_ns, each.end_ns)
        for record in records[victim]
        for each in record.intervals
        if record.number >= 0 and each.kind is Kind.COMMUNICATION
    )
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
        full_rate_ns=dips.at_full_rate_ns(spoken) / measured,
        last=[f"{hosts[rank]} {count} times" for rank, count in stragglers(records).items()],
        late=[hosts[rank] for rank in late_ranks(held_up, total_ns=round(step_ns * measured))],
        slow=slow_links(ports),
    )


def _ends(lab: Lab, host: str) -> list[Interface]:
    """Both ends of each of its links."""
    nics = lab.topology.interfaces_of[host]
    return [end for nic in nics for end in (nic, lab.topology.peer_of[nic.name])]


@contextmanager
def link_at(lab: Lab, host: str, share: float) -> Iterator[Dips]:
    """The links of a host at this share of their rate, both ways; put back afterwards.

    Raises UserError for ports that cannot be changed while they run.
    """
    port = lab.fabric.port
    if share == 1.0:
        yield Dips(share=1.0)
        return
    if not isinstance(port, FabricPort):
        raise UserError(f"ports of kind {port.name} cannot be changed while they run; leave port.kind out")
    names = [end.name for end in _ends(lab, host)]
    before = {name: port.config(lab.fabric.plan.egresses[name]) for name in names}
    slower = {name: replace(config, rate_bps=round(config.rate_bps * share)) for name, config in before.items()}
    with lab.fabric.port_sockets(names) as routes:
        lab.fabric.change_ports(slower, routes)
        lab.fabric.verify()
        yield Dips(share=1.0)
        lab.fabric.change_ports(before, routes)
        lab.fabric.verify()


def _note(lab: Lab, case: str, hosts: Sequence[str], found: Found) -> None:
    lab.add_busy_ns(sum(each.step_ns for each in found.accounts if each.rank == 0))
    lab.sections.setdefault("cases", []).append(
        {
            "case": case,
            "step_us": round(found.step_ns / 1e3, 3),
            "most_often_last": found.last[0] if found.last else "nobody",
            "late_hosts": ", ".join(found.late) or "none",
            "slow_links": ", ".join(
                f"{port.link} of {port.host}{', unsteady' if port.is_unsteady else ''}" for port in found.slow
            )
            or "none",
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
            "lowest_gbps": round(port.speeds_gbps[0], 3),
            "highest_gbps": round(port.speeds_gbps[1], 3),
        }
        for port in sorted(found.ports, key=lambda each: (-each.busy_ns, each.interface))[:SHOWN]
    )


def _claim_named(lab: Lab, case: str, found: Found, victim: str) -> None:
    late, links = list(found.late), [port.link for port in found.slow]
    named = f"late {late or 'none'}, slow links {links or 'none'}"
    own = [lab.topology.link_of[nic.name].name for nic in lab.topology.interfaces_of[victim]]
    if case == "healthy":
        lab.add_claim("healthy: nobody is named", expected="none", measured=named, holds=not late and not links)
    elif case in ("nic", "nic_jitter"):
        fastest = max(port.speed_gbps for port in found.ports)
        evidence = "; ".join(
            f"{port.host}'s {port.link} sent for {port.busy_ns / 1e3:.0f} us at {port.speeds_gbps[0]:.1f} to "
            f"{port.speeds_gbps[1]:.1f} Gb/s"
            for port in found.slow
        )
        lab.add_claim(
            f"{case}: the slow link and its host are named, from the ports' counters",
            expected=f"{victim}, link {', '.join(own)}, and nobody else; {'un' if case != 'nic' else ''}steady",
            measured=f"{evidence or 'none'}; others at up to {fastest:.1f} Gb/s; late {late or 'none'}",
            holds=links == own
            and {port.host for port in found.slow} == {victim}
            and all(port.is_unsteady == (case != "nic") for port in found.slow)
            and not late,
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
    if "nic_jitter" in found:
        wanted_ns, measured_ns = healthy.communication_ns(victim), found["nic_jitter"].full_rate_ns
        longer = found["nic_jitter"].communication_ns(victim) / wanted_ns
        lab.add_claim(
            "nic_jitter: the ring goes at the NIC's rate of each instant, so its time scaled by that is a sound NIC's",
            expected=f"{wanted_ns / 1e3:.1f} us +- {RING_BAND:.0%}",
            measured=f"{measured_ns / 1e3:.1f} us; it took {longer:.2f} times as long",
            holds=abs(measured_ns / wanted_ns - 1) <= RING_BAND,
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
