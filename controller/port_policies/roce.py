"""A RoCEv2 fabric as HPCC's runs set it: PFC in the data class, ECN from 4 to 16 kB per Gb/s with Pmax 0.2.

At 100 Gb/s that is 400 kB and 1,600 kB.  The hosts here run TCP: DCQCN is a NIC's, and what comes nearest among the
kernel's congestion controls is DCTCP, which also answers to the share of marks.  The watchdog limit is Meta's and
Junos's, 200 ms.

Source: alibaba-edu/High-Precision-Congestion-Control, simulation/run.py (thresholds) and
src/point-to-point/model/switch-mmu.cc (alpha 1/8 at the NICs' rate, headroom 3 x rate x delay).
"""

from controller.port_policies.preset import Preset
from controller.port_policies.settings import PortPolicy, Watchdog
from controller.port_policies.threshold import per_gbps

PRESET = Preset(
    name="roce",
    summary="PFC, ECN from 4 to 16 kB per Gb/s with Pmax 0.2; DCTCP stands in for DCQCN",
    policy=PortPolicy(
        cc="dctcp", kmin=per_gbps(4), kmax=per_gbps(16), pmax=0.2, pfc=True, watchdog=Watchdog(limit_ns=200 * 10**6)
    ),
)
