"""Which kernel the guest boots: the user's own, or the one that `./run setup` built for this checkout.

A built kernel is a folder `kernel-VERSION-KEY` of the cache with `linux`, its `config` and `manifest.json`.  The key is
of everything of ours that shapes it, so another config, edit or line of C is another kernel.  Standard library only.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from testbed.cache import cache_dir
from testbed.guest import kernel_additions, kernel_edits
from topologies.errors import MissingFeature, UserError

CONFIG = Path(__file__).with_name("kernel.config")
OVERRIDE = "FABRIC_TESTBED_KERNEL"
_RECIPE = 1
"""Counts the changes of the way it is built that the other parts of the key do not show."""


def config_options(text: str | None = None) -> dict[str, str]:
    """Every option that the guest kernel must have -> its value, those of our own code included."""
    lines = (CONFIG.read_text(encoding="utf-8") if text is None else text).splitlines()
    pairs = (line.partition("=") for line in lines if line.startswith("CONFIG_"))
    own = {f"CONFIG_{addition.option}": "y" for addition in kernel_additions.ADDITIONS}
    return {**{name: value for name, _, value in pairs}, **own}


def key() -> str:
    """Twelve hexadecimal digits that change with whatever of ours shapes the kernel (comments in the config do not)."""
    parts = (_RECIPE, sorted(config_options().items()), kernel_edits.digest(), kernel_additions.digest())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def built(cache: Path) -> Path | None:
    """The newest finished kernel of this checkout's key; None when there is none."""
    manifests = cache.glob(f"kernel-*-{key()}/manifest.json")
    return max((manifest.parent / "linux" for manifest in manifests), key=_release, default=None)


def _release(binary: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", binary.parent.name.removeprefix("kernel-"))[:3])


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """The guest kernel's binary: `$FABRIC_TESTBED_KERNEL` if set.  Raises MissingFeature when none is built."""
    if chosen := environment.get(OVERRIDE):
        if not (Path(chosen).is_file() and os.access(chosen, os.X_OK)):
            raise UserError(f"{OVERRIDE} names '{chosen}', which is not an executable file")
        return Path(chosen).absolute()
    binary = built(cache_dir(environment))
    if binary is None:
        raise MissingFeature("the guest kernel of this checkout is not built", "run `./run setup`")
    return binary


def description(binary: Path) -> dict[str, str]:
    """What a run's manifest says about its kernel: version, key, package; of the user's own only where it is."""
    manifest = binary.with_name("manifest.json")
    if not manifest.exists():
        return {"binary": str(binary)}
    found: dict[str, str] = json.loads(manifest.read_text(encoding="utf-8"))
    return found
