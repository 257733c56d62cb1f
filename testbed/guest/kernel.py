"""Which kernel the guest boots: the user's own, or the one that `./run setup` built."""

import os
from collections.abc import Mapping
from pathlib import Path

from topologies.errors import MissingFeature, UserError


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """The guest kernel's binary: `$FABRIC_TESTBED_KERNEL` if set.  Raises MissingFeature when none is built."""
    if chosen := environment.get("FABRIC_TESTBED_KERNEL"):
        if not os.access(chosen, os.X_OK):
            raise UserError(f"FABRIC_TESTBED_KERNEL names '{chosen}', which is not an executable file")
        return Path(chosen).absolute()
    raise MissingFeature("the guest kernel is not built", "run `./run setup`")
