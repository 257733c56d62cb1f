"""All edits that the guest kernel is built with: they make User-Mode Linux exact, repeatable and fast."""

from collections.abc import Sequence
from pathlib import Path

from testbed.guest.edits import clock, edit, entropy, lifetime, speed
from testbed.guest.edits.edit import Edit, EditMismatchError

__all__ = ["EDITS", "Edit", "EditMismatchError", "apply_edits", "digest"]

EDITS: tuple[Edit, ...] = (*clock.EDITS, *entropy.EDITS, *lifetime.EDITS, *speed.EDITS)


def apply_edits(tree: Path, edits: Sequence[Edit] = EDITS) -> None:
    """Edit the unpacked kernel source in `tree`.  Raises EditMismatchError naming the file and the edit's purpose."""
    edit.apply_edits(tree, edits)


def digest(edits: Sequence[Edit] = EDITS) -> str:
    """The edits' contribution to the key of a kernel build: what they do, not why."""
    return edit.digest(edits)
