"""Where a guest sees what belongs to the project: at the same paths on every machine and in every checkout.

A path's length shifts the memory of every process that holds it, and with it the order of events of the same instant.
So the checkout, the virtual environment and the cache are bound to fixed folders, and what a guest is told are those.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from testbed.cache import cache_dir

CHECKOUT = Path(__file__).resolve().parents[2]
ROOT = "/testbed"
"""The folder of the guest in which init.sh binds each place, by its name."""


def places() -> dict[str, Path]:
    """What is bound where: the name of a folder in ROOT -> the machine's folder."""
    found = {"checkout": CHECKOUT, "cache": cache_dir()}
    return found if sys.prefix == sys.base_prefix else {**found, "python": Path(sys.prefix)}


def in_guest(path: str) -> str:
    """The guest's name of one of the machine's paths; any other text comes back as it is."""
    for name, folder in _innermost_first():
        if path == str(folder) or path.startswith(f"{folder}/"):
            return f"{ROOT}/{name}{path.removeprefix(str(folder))}"
    return path


def _innermost_first() -> Iterator[tuple[str, Path]]:
    yield from sorted(places().items(), key=lambda place: len(str(place[1])), reverse=True)
