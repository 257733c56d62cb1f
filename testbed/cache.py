"""Where what is made once per machine lives: the guest kernel, the virtual environment, compiled BPF, logs.

Only the standard library: `run` uses it before there is a virtual environment.
"""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """`$FABRIC_TESTBED_CACHE`, else `$XDG_CACHE_HOME/fabric-testbed`, else `~/.cache/fabric-testbed` (as in `run`)."""
    if chosen := environment.get("FABRIC_TESTBED_CACHE"):
        return Path(chosen).absolute()
    home = environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    base = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return Path(base).absolute() / "fabric-testbed"
