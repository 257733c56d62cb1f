// SPDX-License-Identifier: GPL-2.0
/* The path selector: a tc program on clsact ingress of a switch's host-facing ports.
 *
 *   packet -> 5-tuple -> table `flows`: known -> its mark
 *                                       new   -> `exact` (its own) or `assigned` (its pair's), by the controller,
 *                                                else one hash per level
 *          -> skb->mark = path (controller/path_marks.py), packets and bytes counted
 *
 * Where flowlets are asked for (spreading.h), a flow chooses again after every pause instead.
 *
 * A known flow costs one look-up.  Whatever is no IPv4 keeps mark 0.  `generation` tells flows of before the last change
 * of the tables from those of after: an old one chooses again.  `down` is the number of a set of links that are down: the
 * same mark means another path when it changes.  The verdict is always "unspecified": other filters on the same port have
 * their say.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow_hash.h"

#define ETH_BYTES 14
#define IP_BYTES 20
#define PORT_BYTES 4
#define ETH_IPV4 bpf_htons(0x0800)
#define FRAGMENT bpf_htons(0x3fff) /* more-fragments bit and offset */
#define HAS_PORTS ((1ULL << 6) | (1ULL << 17) | (1ULL << 33)) /* TCP, UDP, DCCP; SCTP (132) is tested apart */
#define LEVELS 4

/* The tables of the controller (controller/selector/maps.py has the same layouts). */

struct flow_key {
	__u32 src;
	__u32 dst;
	__u32 ports; /* source, destination, as on the wire */
	__u32 proto;
};

struct flow_entry {
	__u32 mark;
	__u32 generation;
	__u32 down;
	__u32 unused;
	__u64 packets;
	__u64 bytes; /* of frames, without FCS */
};

struct pair {
	__u32 src;
	__u32 dst;
};

struct settings {
	__u32 seeds[LEVELS];
	__u32 generation;
	__u32 leaves;
	__u32 choice; /* spreading.h */
	__u32 slots; /* of the flowlet table that are in use; 0: a flow keeps its path */
	__u32 down;
	__u32 unused;
	__u64 gap_ns;
};

struct counters {
	__u64 unrecorded; /* packets of flows that found the table full */
	__u64 flowlets;
	__u64 evictions; /* slots taken from flows that may still be under way */
};

struct taken_key {
	struct flow_key flow;
	__u32 mark;
	__u32 down;
};

struct taken_entry {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__type(key, struct flow_key);
	__type(value, struct flow_entry);
} flows SEC(".maps");

struct { /* address of a host -> number of its leaf */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} hosts SEC(".maps");

struct { /* leaf of the source x leaves + leaf of the destination -> widths of the four levels, a byte each */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} widths SEC(".maps");

struct { /* (source, destination) -> mark */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct pair);
	__type(value, __u32);
} assigned SEC(".maps");

struct { /* flow -> mark, before its pair's */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, __u32);
} exact SEC(".maps");

/* What flows sent on paths that they have left; `flows` counts on the present one.  All tables have their memory from the
 * start: the guest's kernel refills its stock for later only when a timer ticks, and time stands still meanwhile. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__type(key, struct taken_key);
	__type(value, struct taken_entry);
} taken SEC(".maps");

struct settings settings SEC(".data.settings") = {};
struct counters counters SEC(".bss.counters") = {};

#include "spreading.h"

static __always_inline __u32 hashed_mark(const struct flow_key *flow, __u32 width4, __u32 number)
{
	const __u32 scrambled[HASHED_WORDS] = {
		scramble(flow->src), scramble(flow->dst), scramble(flow->ports), scramble(flow->proto)
	};
	__u32 mark = 0;

	for (int level = 0; level < LEVELS; level++) {
		__u32 width = width4 >> (8 * level) & 0xff;

		if (width > 1)
			mark |= choose(hash_scrambled(scrambled, settings.seeds[level] ^ scramble(number)), width) << (8 * level);
	}
	return mark;
}

/* Number of (leaf of the source, leaf of the destination); 0 where an end is none of our hosts. */
static __always_inline int find_pair(const struct flow_key *flow, __u32 *pair)
{
	__u32 *from = bpf_map_lookup_elem(&hosts, &flow->src), *to = bpf_map_lookup_elem(&hosts, &flow->dst);

	if (!from || !to)
		return 0;
	*pair = *from * settings.leaves + *to;
	return 1;
}

/* The path by hash or by weight: the flow's draw of this number. */
static __noinline __u32 drawn_path(const struct flow_key *flow, __u32 pair, __u32 number)
{
	__u32 *width4;
	struct route_key key = { .pair = pair };
	struct route *route;

	if (!flow)
		return 0;
	if (settings.choice == HASH) {
		width4 = bpf_map_lookup_elem(&widths, &pair);
		return width4 ? hashed_mark(flow, *width4, number) : 0;
	}
	key.number = choose_route(flow, pair, number);
	route = bpf_map_lookup_elem(&routes, &key);
	return route ? route->mark : 0;
}

static __noinline __u32 select_path(const struct flow_key *flow)
{
	struct pair pair = {};
	__u32 *mark, number;

	if (!flow)
		return 0;
	mark = bpf_map_lookup_elem(&exact, flow);
	if (mark)
		return *mark;
	pair.src = flow->src;
	pair.dst = flow->dst;
	mark = bpf_map_lookup_elem(&assigned, &pair);
	if (mark)
		return *mark;
	return find_pair(flow, &number) ? drawn_path(flow, number, 0) : 0;
}

static __always_inline int same_flow(const struct flow_key *one, const struct flow_key *other)
{
	return one->src == other->src && one->dst == other->dst && one->ports == other->ports &&
	       one->proto == other->proto;
}

static __always_inline void new_flowlet(struct slot *slot)
{
	struct route_key key = {};
	struct route *route;

	__sync_fetch_and_add(&counters.flowlets, 1);
	slot->mark = 0;
	if (!slot->known)
		return;
	if (settings.choice == HASH) {
		slot->mark = drawn_path(&slot->flow, slot->pair, slot->number);
		return;
	}
	slot->route = choose_route(&slot->flow, slot->pair, slot->number);
	key.pair = slot->pair;
	key.number = slot->route;
	route = bpf_map_lookup_elem(&routes, &key);
	slot->mark = route ? route->mark : 0;
}

static __noinline __u32 flowlet_path(const struct flow_key *flow, __u32 bytes)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct slot *slot;
	__u32 index;

	if (!flow)
		return 0;
	index = draw(flow, 3, 1, settings.slots);
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return 0;
	if (slot->generation != settings.generation || !same_flow(&slot->flow, flow)) {
		if (slot->generation == settings.generation && now_ns - slot->last_ns < AGE_NS)
			__sync_fetch_and_add(&counters.evictions, 1);
		slot->flow = *flow;
		slot->generation = settings.generation;
		slot->number = 0;
		slot->known = find_pair(flow, &slot->pair);
		new_flowlet(slot);
	} else if (now_ns - slot->last_ns >= settings.gap_ns) {
		slot->number++;
		new_flowlet(slot);
	}
	slot->last_ns = now_ns;
	if (slot->known && settings.choice >= LOCAL)
		add_load(slot->pair, slot->route, bytes, now_ns);
	return slot->mark;
}

/* Fills in the key; 0 where the frame is no IPv4 packet. */
static __always_inline int read_flow(struct __sk_buff *skb, struct flow_key *flow)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u8 *ip = data + ETH_BYTES;
	__u32 header;

	if (data + ETH_BYTES + IP_BYTES + PORT_BYTES > end) {
		bpf_skb_pull_data(skb, ETH_BYTES + IP_BYTES + PORT_BYTES);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		ip = data + ETH_BYTES;
		if (data + ETH_BYTES + IP_BYTES > end)
			return 0;
	}
	flow->proto = ip[9];
	flow->src = *(__u32 *)(ip + 12);
	flow->dst = *(__u32 *)(ip + 16);
	flow->ports = 0;
	if (*(__u16 *)(ip + 6) & FRAGMENT)
		return 1;
	if (!(flow->proto < 64 && HAS_PORTS >> flow->proto & 1) && flow->proto != 132)
		return 1;
	header = (*ip & 0x0f) * 4;
	if (header == IP_BYTES && data + ETH_BYTES + IP_BYTES + PORT_BYTES <= end)
		flow->ports = *(__u32 *)(ip + IP_BYTES);
	else /* options, which are rare; a truncated header leaves 0 */
		bpf_skb_load_bytes(skb, ETH_BYTES + header, &flow->ports, PORT_BYTES);
	return 1;
}

static __noinline int count_new(struct __sk_buff *skb, const struct flow_key *flow, __u32 packets)
{
	struct flow_entry entry = {};

	if (!flow)
		return TC_ACT_UNSPEC;
	entry.mark = settings.slots ? flowlet_path(flow, skb->len) : select_path(flow);
	entry.generation = settings.generation;
	entry.down = settings.down;
	entry.packets = packets;
	entry.bytes = skb->len;
	skb->mark = entry.mark;
	if (bpf_map_update_elem(&flows, flow, &entry, BPF_ANY))
		__sync_fetch_and_add(&counters.unrecorded, packets);
	return TC_ACT_UNSPEC;
}

/* The flow's packets so far went by its old path. */
static __noinline int change_path(const struct flow_key *flow, struct flow_entry *known, __u32 mark)
{
	struct taken_key key = {};
	struct taken_entry first = {}, *before;

	if (!flow || !known)
		return 0;
	key.flow = *flow;
	key.mark = known->mark;
	key.down = known->down;
	before = bpf_map_lookup_elem(&taken, &key);
	if (before) {
		before->packets += known->packets;
		before->bytes += known->bytes;
	} else {
		first.packets = known->packets;
		first.bytes = known->bytes;
		if (bpf_map_update_elem(&taken, &key, &first, BPF_ANY))
			__sync_fetch_and_add(&counters.unrecorded, known->packets);
	}
	known->mark = mark;
	known->down = settings.down;
	known->packets = known->bytes = 0;
	return 0;
}

SEC("tc")
int select_by_hash(struct __sk_buff *skb)
{
	struct flow_key flow;
	struct flow_entry *known;
	__u32 packets = skb->gso_segs ? skb->gso_segs : 1;

	if (skb->protocol != ETH_IPV4 || !read_flow(skb, &flow))
		return TC_ACT_UNSPEC;
	known = bpf_map_lookup_elem(&flows, &flow);
	if (!known)
		return count_new(skb, &flow, packets);
	if (settings.slots || known->generation != settings.generation) {
		__u32 mark = settings.slots ? flowlet_path(&flow, skb->len) : select_path(&flow);

		if (mark != known->mark || known->down != settings.down)
			change_path(&flow, known, mark);
		known->generation = settings.generation;
	}
	__sync_fetch_and_add(&known->packets, packets);
	__sync_fetch_and_add(&known->bytes, skb->len);
	skb->mark = known->mark;
	return TC_ACT_UNSPEC;
}

char program_license[] SEC("license") = "GPL";
