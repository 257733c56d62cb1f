"""What an edit of the kernel's source is, and how edits are applied.

Every edit must match its file exactly once: a kernel release that moved the code makes the build fail and names the
edit, rather than run with a clock that is quietly wrong.  Only the standard library: this runs before there is a venv.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class EditMismatchError(Exception):
    """An edit's pattern matched no place or several in this release's source."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One replacement in one file of the kernel's source tree; the README tells what each is worth."""

    name: str
    path: str
    why: str
    pattern: str
    """A regular expression in which `.` also matches a newline."""
    replacement: str
    """Literal text; backslashes and groups mean nothing in it."""


def apply_edits(tree: Path, edits: Sequence[Edit]) -> None:
    """Edit the unpacked kernel source in `tree`.  Raises EditMismatchError naming the file and the edit's purpose."""
    for edit in edits:
        file = tree / edit.path
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise EditMismatchError(f"{edit.path}: not in this release, for edit {edit.name} ({edit.why})") from None
        matches = list(re.finditer(edit.pattern, text, flags=re.DOTALL))
        if len(matches) != 1:
            raise EditMismatchError(f"{edit.path}: {len(matches)} matches, not one, of edit {edit.name} ({edit.why})")
        start, end = matches[0].span()
        file.write_text(text[:start] + edit.replacement + text[end:], encoding="utf-8")


def digest(edits: Sequence[Edit]) -> str:
    """The edits' contribution to the key of a kernel build: what they do, not why."""
    return hashlib.sha256(repr([(e.path, e.pattern, e.replacement) for e in edits]).encode()).hexdigest()
