"""What a preset is: a name, one line that says where its numbers come from, and a PortPolicy to start from."""

from dataclasses import dataclass

from controller.port_policies.settings import PortPolicy


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named starting point of `--policy`."""

    name: str
    summary: str
    policy: PortPolicy
