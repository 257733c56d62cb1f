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
static unsigned long long rng_state, rng_seed;

static int __init rng_seed_setup(char *line, int *add)
{
	rng_seeded = 1;
	rng_state = rng_seed = strtoull(line, NULL, 0);
	*add = 0;
	return 0;
}

__uml_setup("rng-seed=", rng_seed_setup,
"rng-seed=<number>\\n"
"    Derive all of the kernel's entropy from this number.\\n\\n");

static unsigned long long rng_mixed(unsigned long long z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* splitmix64 (Steele, Lea, Flood 2014): the kernel hashes what it gives */
static unsigned long long rng_next(void)
{
	return rng_mixed(rng_state += 0x9e3779b97f4a7c15ULL);
}

/* The draw-th number of a stream of its own; 0 without a seed, and then the number is left alone */
int rng_draw(unsigned long long stream, unsigned int draw, unsigned int *number)
{
	if (rng_seeded)
		*number = rng_mixed(rng_mixed(rng_seed + stream * 0x9e3779b97f4a7c15ULL) + draw * 0x9e3779b97f4a7c15ULL);
	return rng_seeded;
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
        name="ports-counted",
        path="include/net/netns/ipv4.h",
        why="a host's ports are a stream of their own: another process, or a call of one, anywhere, moved all flows",
        pattern=r"struct netns_ipv4 \{\n",
        replacement="struct netns_ipv4 {\n\tu32 port_draws;\n",
    ),
    Edit(
        name="ports-drawn",
        path="include/net/inet_hashtables.h",
        why="as above",
        pattern=r"int __inet_hash_connect\(",
        replacement="""int rng_draw(unsigned long long stream, unsigned int draw, unsigned int *number);

/* Depends on the seed, which network namespace of the guest this is, and how many ports it drew before. */
static inline u32 inet_port_draw(struct net *net, u32 otherwise)
{
	u32 number = otherwise;

	rng_draw(net->net_cookie, net->ipv4.port_draws++, &number);
	return number;
}

int __inet_hash_connect(""",
    ),
    Edit(
        name="ports-of-callers",
        path="net/ipv4/inet_hashtables.c",
        why="as above",
        pattern=r"\toffset = READ_ONCE\(table_perturb\[index\]\) \+ \(port_offset >> 32\);\n",
        replacement="""	offset = inet_port_draw(sock_net(sk), READ_ONCE(table_perturb[index]) + (port_offset >> 32));
""",
    ),
    Edit(
        name="ports-of-listeners",
        path="net/ipv4/inet_connection_sock.c",
        why="as above",
        pattern=r"\toffset = (?:get_random_u32_below|prandom_u32_max)\(remaining\);\n",
        replacement="	offset = inet_port_draw(sock_net(sk), get_random_u32()) % remaining;\n",
    ),
    Edit(
        name="no-entropy-from-interrupts",
        path="kernel/irq/handle.c",
        why="a signal of the machine (a process's end, the console) is the guest's interrupt: no seed foresees it",
        pattern=r"\tadd_interrupt_randomness\(desc->irq_data\.irq\);\n",
        replacement="",
    ),
)
