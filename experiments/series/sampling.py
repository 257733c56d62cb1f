"""How often a run is looked at: what `--sample` means."""

from dataclasses import dataclass

from testbed.port.fabric_port import FabricPort
from testbed.sampler import LEAST_PERIOD_NS
from topologies.errors import UserError
from topologies.parameters import naming
from topologies.units import parse_delay

AUTO = "auto"
FIRST_PERIOD_NS = 100_000
"""Of `adaptive`, before it has doubled."""
READINGS_KEPT = 6_000
"""Of `adaptive`: samples times ports, which bounds what a run costs: 0.14 ms of wall time for the reading of a port."""
FEWEST_SAMPLES, MOST_SAMPLES = 101, 401
SOCKETS_EVERY = 10
"""Samples of ports per reading of all sockets, which takes several times as long."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What to do; `period_ns` of None is nothing."""

    period_ns: int | None = None
    adaptive: bool = False
    """The period is the first; it doubles whenever there are `most_samples`."""
    idle: bool = False
    """Nothing is sampled, but the sampler's process and sockets are made as if it were: each draws from the guest's
    seeded random numbers, which TCP's sequence numbers come from as well.
    """

    def most_samples(self, ports: int) -> int | None:
        """Of a fabric with so many ports: an odd number, or None for no bound."""
        if not self.adaptive:
            return None
        return min(MOST_SAMPLES, max(FEWEST_SAMPLES, READINGS_KEPT // ports | 1))


def parse_sampling(text: str, *, port_kind: str, clock: str) -> Sampling:
    """`off`, `adaptive`, a period, or `auto`: adaptive wherever it costs nothing of the run's own time.

    Raises UserError for another word, or for ports that keep no statistics.
    """
    if text == "off":
        return Sampling(idle=port_kind == FabricPort.name and clock == "virtual")
    if text == AUTO:
        text = "adaptive" if port_kind == FabricPort.name and clock == "virtual" else "off"
        return parse_sampling(text, port_kind=port_kind, clock=clock)
    if port_kind != FabricPort.name:
        raise UserError(
            f"--sample {text}: ports of kind {port_kind} cannot be sampled; leave port.kind or --sample out"
        )
    if text == "adaptive":
        return Sampling(period_ns=FIRST_PERIOD_NS, adaptive=True)
    with naming(f"--sample {text} (a period, adaptive, auto or off)"):
        period_ns = parse_delay(text)
    if period_ns < LEAST_PERIOD_NS:
        raise UserError(f"--sample {text}: {LEAST_PERIOD_NS} ns is the shortest period; off samples nothing")
    return Sampling(period_ns=period_ns)
