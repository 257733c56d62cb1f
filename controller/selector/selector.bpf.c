// SPDX-License-Identifier: GPL-2.0
/* The path selector: a tc program on clsact ingress of a switch's host-facing ports.
 *
 *   packet -> 5-tuple -> table `flows`: known -> its mark
 *                                       new   -> `exact` (its own) or `assigned` (its pair's), by the controller,
 *                                                else one hash per level
 *          -> skb->mark = path (controller/path_marks.py), packets and bytes counted
 *
 * A known flow costs one look-up.  Whatever is no IPv4 keeps mark 0.  `generation` tells flows of before the last change
 * of the tables from those of after: an old one chooses again.  The verdict is always "unspecified": other filters on the
 * same port have their say.
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

struct settings settings SEC(".data.settings") = {};
__u64 unrecorded SEC(".bss.counters") = 0; /* packets of flows that found the table full */

static __always_inline __u32 hashed_mark(const struct flow_key *flow, __u32 width4)
{
	const __u32 scrambled[HASHED_WORDS] = {
		scramble(flow->src), scramble(flow->dst), scramble(flow->ports), scramble(flow->proto)
	};
	__u32 mark = 0;

	for (int level = 0; level < LEVELS; level++) {
		__u32 width = width4 >> (8 * level) & 0xff;

		if (width > 1)
			mark |= choose(hash_scrambled(scrambled, settings.seeds[level]), width) << (8 * level);
	}
	return mark;
}

static __noinline __u32 select_path(const struct flow_key *flow)
{
	struct pair pair = {};
	__u32 *mark, *from, *to, *width4, index;

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
	from = bpf_map_lookup_elem(&hosts, &pair.src);
	to = bpf_map_lookup_elem(&hosts, &pair.dst);
	if (!from || !to)
		return 0;
	index = *from * settings.leaves + *to;
	width4 = bpf_map_lookup_elem(&widths, &index);
	return width4 ? hashed_mark(flow, *width4) : 0;
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
	entry.mark = select_path(flow);
	entry.generation = settings.generation;
	entry.packets = packets;
	entry.bytes = skb->len;
	skb->mark = entry.mark;
	if (bpf_map_update_elem(&flows, flow, &entry, BPF_ANY))
		__sync_fetch_and_add(&unrecorded, packets);
	return TC_ACT_UNSPEC;
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
	if (known->generation != settings.generation) {
		known->mark = select_path(&flow);
		known->generation = settings.generation;
	}
	__sync_fetch_and_add(&known->packets, packets);
	__sync_fetch_and_add(&known->bytes, skb->len);
	skb->mark = known->mark;
	return TC_ACT_UNSPEC;
}

char program_license[] SEC("license") = "GPL";
