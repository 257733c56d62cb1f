"""Ordinary Ethernet: full queues drop, nothing is marked, nothing is paused; the hosts run CUBIC.

What a fabric is without any tuning, and so what every other preset is compared with.
"""

from controller.port_policies.preset import Preset
from controller.port_policies.settings import PortPolicy

PRESET = Preset(name="lossy", summary="tail drop of a shared buffer, no ECN, no PFC; CUBIC", policy=PortPolicy())
