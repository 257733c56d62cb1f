"""A GPU by its speed: how long a layer's forward and backward pass keep it busy.

forward = 2 x parameters x tokens FLOP / rate, backward = twice that (Kaplan et al. 2020, section 2.1: 6 N per token).
Or a profile: a file that says per layer how long both take, as measured on a real device.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from topologies.errors import UserError
from topologies.units import parse_delay

FORWARD_FLOP, BACKWARD_FLOP = 2, 4
"""Per parameter and token."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One layer, one micro-batch."""

    forward_ns: int
    backward_ns: int


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a rank computes on."""

    flop_per_s: float
    profile: Mapping[str, Cost] = field(default_factory=dict)
    """Layer -> cost; a layer that is not named goes by its parameters."""
    slowdown: float = 1.0
    """A straggler's factor: 2 takes twice as long."""
    jitter: float = 0.0
    """Standard deviation of every duration, as a share of it."""
    seed: int = 0

    def cost(self, layer: str, *, parameters: int, tokens: int) -> Cost:
        """Of one micro-batch, before slowdown and jitter."""
        if layer in self.profile:
            return self.profile[layer]
        unit_ns = parameters * tokens * 1e9 / self.flop_per_s
        return Cost(forward_ns=round(FORWARD_FLOP * unit_ns), backward_ns=round(BACKWARD_FLOP * unit_ns))

    def lots(self) -> "Lots":
        """This rank's draw of durations."""
        return Lots(device=self, source=random.Random(self.seed))


@dataclass(frozen=True, kw_only=True)
class Lots:
    """Turns a cost into the duration of one occurrence."""

    device: Device
    source: random.Random

    def duration_ns(self, cost_ns: int) -> int:
        """With slowdown and jitter; never below a tenth of the cost."""
        if not self.device.jitter:
            return round(cost_ns * self.device.slowdown)
        factor = max(0.1, self.source.gauss(1.0, self.device.jitter))
        return round(cost_ns * self.device.slowdown * factor)


def read_profile(path: Path) -> dict[str, Cost]:
    """YAML or JSON: `layer: {forward: 120us, backward: 240us}`.  Raises UserError naming file and layer."""
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"profile {path}: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"profile {path}: write lines like `layer: {{forward: 120us, backward: 240us}}`")
    return {str(layer): _cost(path, layer, value) for layer, value in found.items()}


def _cost(path: Path, layer: object, value: Any) -> Cost:
    if not isinstance(value, dict) or set(value) != {"forward", "backward"}:
        raise UserError(f"profile {path}: {layer}: needs exactly forward and backward, for instance 120us")
    try:
        return Cost(forward_ns=parse_delay(str(value["forward"])), backward_ns=parse_delay(str(value["backward"])))
    except UserError as error:
        raise UserError(f"profile {path}: {layer}: {error}") from None
