"""The edits that make User-Mode Linux's virtual clock exact, as data, and the one function that applies them.

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
    """One replacement in one file of the kernel's source tree."""

    path: str
    why: str
    pattern: str
    """A regular expression in which `.` also matches a newline."""
    replacement: str
    """Literal text; backslashes and groups mean nothing in it."""


# C code keeps the kernel's own indentation.
# ruff: noqa: E101
EDITS: tuple[Edit, ...] = (
    Edit(
        path="arch/um/Kconfig",
        why="TCP counts its delayed ACKs and retransmissions in ticks: 10 ms is far too coarse for a data centre",
        pattern=r"config HZ\n\tint\n\tdefault 100\n",
        replacement="config HZ\n\tint\n\tdefault 1000\n",
    ),
    Edit(
        path="arch/um/include/linux/time-internal.h",
        why="the clock's own resolution becomes 1 ns instead of 256 ns",
        pattern=r"#define TIMER_MULTIPLIER 256\n",
        replacement="#define TIMER_MULTIPLIER 1\n",
    ),
    Edit(
        path="arch/um/include/linux/time-internal.h",
        why="timers could not be nearer than 500 ns, which is 6 KB of line time at 100 Gb/s",
        pattern=r"#define TIMER_MIN_DELTA  500\n",
        replacement="#define TIMER_MIN_DELTA  1\n",
    ),
    Edit(
        path="arch/um/kernel/time.c",
        why="the system call path below has to see the clock",
        pattern=r"static unsigned long long time_travel_time;\n",
        replacement="unsigned long long time_travel_time;\n",
    ),
    Edit(
        path="arch/um/kernel/time.c",
        why="a clock read cost 256 ns of everybody's time; now it is free, and only a loop that reads it pays",
        pattern=r"!time_travel_ext_waiting\)\s*time_travel_update_time_rel\(TIMER_MULTIPLIER\);\n",
        replacement="""!time_travel_ext_waiting) {
		static unsigned long long last_read_at;
		static unsigned int reads;

		if (last_read_at != time_travel_time) {
			last_read_at = time_travel_time;
			reads = 0;
		}
		/* so many reads at one instant are a loop that waits for time to pass */
		if (++reads > 1024) {
			reads = 0;
			time_travel_update_time_rel(1000);
		}
	}
""",
    ),
    Edit(
        path="arch/um/kernel/skas/syscall.c",
        why="a failing system call cost 1 us, EAGAIN on a socket included; now only restarts and loops of failures pay",
        pattern=r"um_udelay\(1\);\n",
        replacement="""extern unsigned long long time_travel_time;
			static unsigned long long last_failure_at;
			static unsigned int failures;

			if (last_failure_at != time_travel_time) {
				last_failure_at = time_travel_time;
				failures = 0;
			}
			if (ret == -ERESTARTSYS || ret == -ERESTARTNOINTR ||
			    ret == -ERESTARTNOHAND || ret == -ERESTART_RESTARTBLOCK ||
			    ++failures > 4096) {
				failures = 0;
				um_udelay(1);
			}
""",
    ),
)


def apply_edits(tree: Path, edits: Sequence[Edit] = EDITS) -> None:
    """Edit the unpacked kernel source in `tree`.  Raises EditMismatchError naming the file and the edit's purpose."""
    for edit in edits:
        file = tree / edit.path
        text = file.read_text(encoding="utf-8")
        matches = list(re.finditer(edit.pattern, text, flags=re.DOTALL))
        if len(matches) != 1:
            raise EditMismatchError(f"{edit.path}: {len(matches)} matches, not one, for {edit.pattern!r} ({edit.why})")
        start, end = matches[0].span()
        file.write_text(text[:start] + edit.replacement + text[end:], encoding="utf-8")


def digest(edits: Sequence[Edit] = EDITS) -> str:
    """The edits' contribution to the key of a kernel build: what they do, not why."""
    return hashlib.sha256(repr([(e.path, e.pattern, e.replacement) for e in edits]).encode()).hexdigest()
