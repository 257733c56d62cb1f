"""DCTCP as HPCC's runs set it: everything is marked above K = 3 kB per Gb/s (300 kB at 100 Gb/s, 24 us of queue).

The paper's own rule is K > C x RTT / 7; K here is 1.8 BDP of a 13 us round trip, ample for jumbo frames.  The hosts
negotiate ECN and run Linux's dctcp (g = 1/16).

Source: alibaba-edu/High-Precision-Congestion-Control, simulation/run.py.
"""

from controller.port_policies.preset import Preset
from controller.port_policies.settings import PortPolicy
from controller.port_policies.threshold import per_gbps

PRESET = Preset(
    name="dctcp",
    summary="step ECN at 3 kB per Gb/s, tail drop beyond; DCTCP",
    policy=PortPolicy(cc="dctcp", kmin=per_gbps(3)),
)
