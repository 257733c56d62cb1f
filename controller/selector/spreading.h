/* SPDX-License-Identifier: MIT
 * Paths for flowlets: a flow chooses again when it paused for `gap_ns`, with a gap of 0 at every packet.
 *
 *   flow --hash--> slot {flow, last seen, path} --paused?--> new path by `choice` among the routes of its pair of leaves
 *
 * The table of slots is as a switch has it: of fixed size, direct mapped, no chains.  A slot that was idle for AGE_NS is
 * free; taking a younger one from another flow is an eviction, which both pay with a new choice of path.  Every draw is
 * a hash of the flow and of how often it drew (`number`), so runs repeat exactly; draw 0 is ECMP's.
 *
 * A link's load is CONGA's discounting rate estimator (SIGCOMM 2014, section 3.2) in picoseconds of its wire time: every
 * packet that is sent towards it adds its own, and what is there halves every HALF_LIFE_NS.  All selectors of a fabric
 * share one table, so what CONGA's leaves tell each other a round trip late is known here at once.  LOCAL and CONGESTION
 * compare what a link will have to do: its load and FLOWLET_BYTES more.  Without these an idle slow link is the best of
 * all as soon as every fast one did anything, and whoever is sent there stays for a whole flowlet.
 */
#ifndef SPREADING_H
#define SPREADING_H

#define LINKS 4 /* between leaf and leaf; 0 ends the list */
#define MOST_ROUTES 16 /* a verifier without type information of functions unrolls the loop, and gives up at 64 */
#define AGE_NS 10000000ULL /* CONGA's flowlet table: 10 ms (facts.md 2) */
#define FLOWLET_BYTES 400000ULL /* a quarter of HALF_LIFE_NS at 100 Gb/s */
#define HALF_LIFE_BITS 17
#define HALF_LIFE_NS (1ULL << HALF_LIFE_BITS) /* 131 us; as a decay by e: 189 us, CONGA: 160 us */

enum choice { HASH, WEIGHTED, ROUND_ROBIN, LOCAL, CONGESTION, DRILL };

struct route_key {
	__u32 pair;
	__u32 number;
};

struct route {
	__u32 mark;
	__u32 links[LINKS];
};

struct routes_of {
	__u32 count;
	__u32 remembered; /* DRILL's memory: the least loaded when last looked at */
};

struct link {
	__u64 load_ps;
	__u64 at_ns;
	__u64 cost_ps; /* wire time of a byte */
};

struct slot {
	struct flow_key flow;
	__u64 last_ns;
	__u32 generation;
	__u32 number;
	__u32 mark;
	__u32 pair;
	__u32 route;
	__u32 known; /* whether pair and route say where it goes */
};

struct { /* as `widths` */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct routes_of);
} routes_of SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__type(key, struct route_key);
	__type(value, struct route);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 13);
	__type(key, __u32);
	__type(value, struct link);
} links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

static __always_inline __u64 load_now(const struct link *link, __u64 now_ns)
{
	__u64 idle_ns = now_ns - link->at_ns, halvings = idle_ns >> HALF_LIFE_BITS, load = link->load_ps;

	if (halvings > 40)
		return 0;
	load >>= halvings;
	return load - ((load >> 1) * (idle_ns & (HALF_LIFE_NS - 1)) >> HALF_LIFE_BITS); /* a straight line between */
}

/* Load, with `more` bytes, of the busiest of a route's first `depth` links.  Not static: most verifiers then look at it once only. */
__noinline __u64 route_load(__u32 pair, __u32 number, __u32 depth, __u64 more)
{
	struct route_key key = { .pair = pair, .number = number };
	struct route *route = bpf_map_lookup_elem(&routes, &key);
	__u64 now_ns = bpf_ktime_get_ns(), most = 0;

	if (!route)
		return ~0ULL;
	for (__u32 i = 0; i < LINKS; i++) {
		__u32 at = route->links[i];
		struct link *link = bpf_map_lookup_elem(&links, &at);
		__u64 load;

		if (i >= depth || !at || !link)
			break;
		load = load_now(link, now_ns) + more * link->cost_ps;
		if (load > most)
			most = load;
	}
	return most;
}

static __always_inline void add_load(__u32 pair, __u32 number, __u64 bytes, __u64 now_ns)
{
	struct route_key key = { .pair = pair, .number = number };
	struct route *route = bpf_map_lookup_elem(&routes, &key);

	if (!route)
		return;
	for (int i = 0; i < LINKS; i++) {
		__u32 at = route->links[i];
		struct link *link = bpf_map_lookup_elem(&links, &at);

		if (!at || !link)
			return;
		link->load_ps = load_now(link, now_ns) + bytes * link->cost_ps;
		link->at_ns = now_ns;
	}
}

static __always_inline __u32 draw(const struct flow_key *flow, __u32 level, __u32 number, __u32 count)
{
	const __u32 scrambled[HASHED_WORDS] = {
		scramble(flow->src), scramble(flow->dst), scramble(flow->ports), scramble(flow->proto)
	};

	return choose(hash_scrambled(scrambled, settings.seeds[level] ^ scramble(number)), count);
}

static __noinline __u32 least_loaded(__u32 pair, __u32 first, __u32 count, __u32 depth)
{
	__u32 best = first;
	__u64 least = route_load(pair, first, depth, FLOWLET_BYTES);

	for (__u32 i = 1; i < MOST_ROUTES; i++) {
		__u32 at = first + i < count ? first + i : first + i - count;
		__u64 load;

		if (i >= count)
			break;
		load = route_load(pair, at, depth, FLOWLET_BYTES);
		if (load < least) {
			least = load;
			best = at;
		}
	}
	return best;
}

/* Two at random and the one remembered, by the load of this leaf's uplink. */
static __noinline __u32 drill(struct routes_of *of, __u32 pair, __u32 one, __u32 other)
{
	__u32 best = of->remembered < of->count ? of->remembered : one;
	__u64 least = route_load(pair, best, 1, 0), load = route_load(pair, one, 1, 0);

	if (load < least) {
		least = load;
		best = one;
	}
	if (route_load(pair, other, 1, 0) < least)
		best = other;
	of->remembered = best;
	return best;
}

static __noinline __u32 choose_route(const struct flow_key *flow, __u32 pair, __u32 number)
{
	struct routes_of *of = bpf_map_lookup_elem(&routes_of, &pair);
	__u32 drawn;

	if (!of || !of->count || !flow)
		return 0;
	drawn = draw(flow, 0, number, of->count);
	switch (settings.choice) {
	case ROUND_ROBIN:
		return (draw(flow, 0, 0, of->count) + number) % of->count;
	case LOCAL:
		return least_loaded(pair, drawn, of->count, 1);
	case CONGESTION:
		return least_loaded(pair, drawn, of->count, LINKS);
	case DRILL:
		return drill(of, pair, drawn, draw(flow, 1, number, of->count));
	default:
		return drawn;
	}
}

#endif
