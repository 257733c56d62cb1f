"""A NIC that cannot keep its rate: the cable of a host goes back and forth between its rate and a part of it.

    rate   ------+          +------+            +---        lasting between half and one and a half times `mean_ns`
                 |          |      |            |           each, by lots from the seed
    share        +----------+      +------------+

Modelled as a failing transceiver or a throttled host shows: both directions of the cable, from the next packet on.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from experiments.training.accounting import Span, length, without
from testbed.fabric import Fabric
from testbed.link_faults import LinkFaults
from testbed.workers.syscalls import set_timer_slack
from topologies.errors import TestbedError


@dataclass(kw_only=True)
class Dips:
    """When the cable was slow, on the monotonic clock."""

    share: float
    spans: list[Span] = field(default_factory=list)

    def at_full_rate_ns(self, busy: Sequence[Span]) -> float:
        """What a link of constant rate would have needed for the work of these spans, disjoint and in order."""
        fast_ns = length(without(busy, self.spans))
        return fast_ns + self.share * (length(busy) - fast_ns)


def durations_ns(seed: int, *, mean_ns: int) -> Iterator[int]:
    """Of one state after the other, for ever."""
    lots = random.Random(seed)
    while True:
        yield round(mean_ns * lots.uniform(0.5, 1.5))


@contextmanager
def unsteady_link(fabric: Fabric, links: Sequence[str], *, share: float, mean_ns: int, seed: int) -> Iterator[Dips]:
    """Back and forth inside, from full rate on; at full rate afterwards.

    Raises UserError for ports that cannot change while they run, and what the kernel said to a change it refused.
    """
    found, ended, errors = Dips(share=share), threading.Event(), list[TestbedError]()
    rates_bps = {link.name: link.rate_bps for link in fabric.topology.links if link.name in links}
    with LinkFaults(fabric, seed=seed) as faults:

        def tell(part: float) -> int:
            for link, rate_bps in rates_bps.items():
                faults.set_rate(link, round(rate_bps * part))
            return time.monotonic_ns()

        def alternate() -> None:
            set_timer_slack(1)
            began_ns: int | None = None
            try:
                for duration_ns in durations_ns(seed, mean_ns=mean_ns):
                    if ended.wait(duration_ns / 1e9):
                        break
                    if began_ns is None:
                        began_ns = tell(share)
                    else:
                        found.spans.append((began_ns, tell(1.0)))
                        began_ns = None
                if began_ns is not None:
                    found.spans.append((began_ns, tell(1.0)))
            except TestbedError as error:
                errors.append(error)

        thread = threading.Thread(target=alternate, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()
    if errors:
        raise errors[0]
    fabric.verify()
