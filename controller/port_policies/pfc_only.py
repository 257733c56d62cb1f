"""PFC and nothing else, as Meta runs its 400 Gb/s training fabrics: no ECN, no rate control in the network.

There the receivers' admission (NCCL's clear-to-send) keeps queues short; here TCP's windows grow until the socket
buffers or the receivers hold them, so pauses do the work: CUBIC sees no loss.  The watchdog limit is Meta's, 200 ms.

Source: Gangidi et al., RDMA over Ethernet for Distributed AI Training at Meta Scale, SIGCOMM 2024.
"""

from controller.port_policies.preset import Preset
from controller.port_policies.settings import PortPolicy, Watchdog

PRESET = Preset(
    name="pfc_only",
    summary="PFC, no ECN (Meta's setting at 400 Gb/s); CUBIC",
    policy=PortPolicy(pfc=True, watchdog=Watchdog(limit_ns=200 * 10**6)),
)
