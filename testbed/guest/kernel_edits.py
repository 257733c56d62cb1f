"""All edits that the guest kernel is built with: they make User-Mode Linux exact, repeatable and fast."""

from collections.abc import Sequence
from pathlib import Path

from testbed.guest.edits import clock, edit, entropy, lifetime, mappings, older, speed
from testbed.guest.edits.edit import Edit, EditMismatchError

__all__ = ["EDITS", "OLDER_EDITS", "SECCOMP_RELEASE", "Edit", "EditMismatchError", "apply_edits", "digest", "edits_for"]

EDITS: tuple[Edit, ...] = (*clock.EDITS, *entropy.EDITS, *lifetime.EDITS, *mappings.EDITS, *speed.EDITS)
OLDER_EDITS: tuple[Edit, ...] = (*older.EDITS, *entropy.EDITS, *speed.EDITS)
SECCOMP_RELEASE = (6, 16)
"""The first release whose User-Mode Linux can trap system calls by seccomp, twice as fast as by ptrace."""


def edits_for(release: tuple[int, ...]) -> tuple[Edit, ...]:
    """The edits that fit a release of Linux, given as (7, 3)."""
    return EDITS if release >= SECCOMP_RELEASE else OLDER_EDITS


def apply_edits(tree: Path, edits: Sequence[Edit] = EDITS) -> None:
    """Edit the unpacked kernel source in `tree`.  Raises EditMismatchError naming the file and the edit's purpose."""
    edit.apply_edits(tree, edits)


def digest(edits: Sequence[Edit] = (*EDITS, *OLDER_EDITS)) -> str:
    """The edits' contribution to the key of a kernel build: what they do, not why."""
    return edit.digest(edits)
