"""The edits that make User-Mode Linux exact and repeatable, as data, and the one function that applies them.

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


# C code keeps the kernel's own indentation.
# ruff: noqa: E101
EDITS: tuple[Edit, ...] = (
    Edit(
        name="tick-1ms",
        path="arch/um/Kconfig",
        why="TCP counts its delayed ACKs and retransmissions in ticks: 10 ms is far too coarse for a data centre",
        pattern=r"config HZ\n\tint\n\tdefault 100\n",
        replacement="config HZ\n\tint\n\tdefault 1000\n",
    ),
    Edit(
        name="clock-resolution-1ns",
        path="arch/um/include/linux/time-internal.h",
        why="the clock's own resolution becomes 1 ns instead of 256 ns",
        pattern=r"#define TIMER_MULTIPLIER 256\n",
        replacement="#define TIMER_MULTIPLIER 1\n",
    ),
    Edit(
        name="timer-least-delay-1ns",
        path="arch/um/include/linux/time-internal.h",
        why="timers could not be nearer than 500 ns, which is 6 KB of line time at 100 Gb/s",
        pattern=r"#define TIMER_MIN_DELTA  500\n",
        replacement="#define TIMER_MIN_DELTA  1\n",
    ),
    Edit(
        name="clock-visible",
        path="arch/um/kernel/time.c",
        why="the system call path below has to see the clock",
        pattern=r"static unsigned long long time_travel_time;\n",
        replacement="unsigned long long time_travel_time;\n",
    ),
    Edit(
        name="clock-reads-free",
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
        name="failures-free",
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
    Edit(
        name="rng-seed",
        path="arch/um/os-Linux/util.c",
        why="`rng-seed=N` gives all of the kernel's entropy; without it the machine does, as before",
        pattern=r"ssize_t os_getrandom\(void \*buf, size_t len, unsigned int flags\)\n"
        r"\{\n\treturn getrandom\(buf, len, flags\);\n\}\n",
        replacement="""#include <init.h>

static int rng_seeded;
static unsigned long long rng_state;

static int __init rng_seed_setup(char *line, int *add)
{
	rng_seeded = 1;
	rng_state = strtoull(line, NULL, 0);
	*add = 0;
	return 0;
}

__uml_setup("rng-seed=", rng_seed_setup,
"rng-seed=<number>\\n"
"    Derive all of the kernel's entropy from this number.\\n\\n");

/* splitmix64 (Steele, Lea, Flood 2014): the kernel hashes what it gives */
static unsigned long long rng_next(void)
{
	unsigned long long z = (rng_state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

ssize_t os_getrandom(void *buf, size_t len, unsigned int flags)
{
	size_t done, n;

	if (!rng_seeded)
		return getrandom(buf, len, flags);
	for (done = 0; done < len; done += n) {
		unsigned long long z = rng_next();

		n = len - done < sizeof(z) ? len - done : sizeof(z);
		memcpy((char *)buf + done, &z, n);
	}
	return len;
}
""",
    ),
    Edit(
        name="no-entropy-from-the-build",
        path="drivers/char/random.c",
        why="the command line and the build's date went into the entropy: other paths, another build, other packets",
        pattern=r"\t_mix_pool_bytes\(init_utsname\(\), sizeof\(\*\(init_utsname\(\)\)\)\);\n"
        r"\t_mix_pool_bytes\(command_line, strlen\(command_line\)\);\n",
        replacement="",
    ),
    Edit(
        name="no-entropy-from-interrupts",
        path="kernel/irq/handle.c",
        why="a signal of the machine (a process's end, the console) is the guest's interrupt: no seed foresees it",
        pattern=r"\tadd_interrupt_randomness\(desc->irq_data\.irq\);\n",
        replacement="",
    ),
)


def apply_edits(tree: Path, edits: Sequence[Edit] = EDITS) -> None:
    """Edit the unpacked kernel source in `tree`.  Raises EditMismatchError naming the file and the edit's purpose."""
    for edit in edits:
        file = tree / edit.path
        text = file.read_text(encoding="utf-8")
        matches = list(re.finditer(edit.pattern, text, flags=re.DOTALL))
        if len(matches) != 1:
            raise EditMismatchError(f"{edit.path}: {len(matches)} matches, not one, of edit {edit.name} ({edit.why})")
        start, end = matches[0].span()
        file.write_text(text[:start] + edit.replacement + text[end:], encoding="utf-8")


def digest(edits: Sequence[Edit] = EDITS) -> str:
    """The edits' contribution to the key of a kernel build: what they do, not why."""
    return hashlib.sha256(repr([(e.path, e.pattern, e.replacement) for e in edits]).encode()).hexdigest()
