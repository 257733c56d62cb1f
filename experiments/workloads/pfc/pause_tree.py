"""From pause frames to a tree: which port paused which, when first, for how long, and how far from the cause.  Pure.

    leaf2-eth8 (congested)                          level
    `- leaf2-eth9 paused spine1-eth3                1
       `- spine1-eth1 paused leaf1-eth9             2
          `- leaf1-eth1 paused h1-eth0              3

A switch pauses through a port because what came in there waits: at the congested switch for the congested port, at
another for a port that is paused itself.  So a pause belongs below a pause of one of its switch's ports that began
before it, and the first of these is its parent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.pause_tap import Pause
from testbed.port.pfc_frame import duration_ns
from topologies.model import Topology


@dataclass(frozen=True, kw_only=True)
class Branch:
    """All pauses that one port sent in one class."""

    port: str
    """The ingress that was full."""
    paused: str
    """The port at the far end of its cable."""
    first_ns: int
    """When the first pause acted; same clock as the frames."""
    paused_ns: int
    """For how long the far end was told to stop."""
    pauses: int
    """Frames, refreshes included."""
    level: int
    """Hops from the congested port; 0 is a pause that nothing explains."""
    cause: str
    """The congested port, or the port of this switch that was paused before; empty where there is none."""


def pause_tree(topology: Topology, congested: str, pauses: Sequence[Pause], *, end_ns: int) -> list[Branch]:
    """Every port that sent pauses, by level, then by time; `pauses` are of one class and in order of time.

    A pause that has not ended at `end_ns` is counted up to then.
    """
    by_port: dict[str, list[Pause]] = {}
    for pause in pauses:
        by_port.setdefault(pause.port, []).append(pause)
    first = {port: frames[0].at_ns for port, frames in by_port.items() if frames[0].quanta}
    place = _places(topology, congested, first)
    found = [
        Branch(
            port=port,
            paused=topology.peer_of[port].name,
            first_ns=first[port],
            paused_ns=paused_ns(frames, rate_bps=topology.link_of[port].rate_bps, end_ns=end_ns),
            pauses=sum(frame.quanta > 0 for frame in frames),
            level=place.get(port, (0, ""))[0],
            cause=place.get(port, (0, ""))[1],
        )
        for port, frames in by_port.items()
        if port in first
    ]
    return sorted(found, key=lambda branch: (branch.level, branch.first_ns, branch.port))


def paused_ns(frames: Sequence[Pause], *, rate_bps: int, end_ns: int) -> int:
    """How long the receiver of these frames was told to stop, each pause until the next frame or its own end."""
    total, since, until = 0, 0, 0
    for frame in frames:
        total += max(0, min(frame.at_ns, until) - since)
        since, until = frame.at_ns, frame.at_ns + duration_ns(frame.quanta, rate_bps)
    return total + max(0, min(end_ns, until) - since)


def _places(topology: Topology, congested: str, first: Mapping[str, int]) -> Mapping[str, tuple[int, str]]:
    """Port that sent a pause -> (level, cause), breadth first from the congested port."""
    node = {end.name: end.node for end in topology.interfaces()}
    found: dict[str, tuple[int, str]] = {}
    causes, level = [(0, congested)], 0
    while causes:
        level += 1
        paused = []
        for since_ns, cause in sorted(causes):
            for own in topology.interfaces_of[node[cause]]:
                if own.name in first and own.name not in found and since_ns <= first[own.name] and own.name != cause:
                    found[own.name] = (level, cause)
                    paused.append((first[own.name], topology.peer_of[own.name].name))
        causes = paused
    return found
