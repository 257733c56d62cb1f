"""The guest's entropy comes from one number on its command line, and from nothing else."""

from testbed.guest.edits.edit import Edit

# C code keeps the kernel's own indentation.
EDITS: tuple[Edit, ...] = (
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
