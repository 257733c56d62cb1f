// SPDX-License-Identifier: GPL-2.0
/*
 * net/sched/sch_fabric.c	One egress port of a switch or of a host
 *
 *  skb --> classes (DSCP) --> strict priority, then DRR --> serialisation --> wire (propagation) --> device
 *             |  shared buffer of the switch: reserve, shared pool, headroom per ingress port and class
 *             |  PFC: an ingress over its threshold sends a real 802.1Qbb frame out of its own port
 *
 * The port is an event machine in nanoseconds, and its events are exact however late the kernel's timer is: a frame
 * starts when the transmitter is free, finishes (bytes + overhead) * 8 / rate later (remainders are carried through a
 * busy period, so n frames take the rounded sum) and reaches the device after the propagation delay.  A frame waits
 * until its serialisation begins; from then on it is on the wire.
 *
 * Events are run lazily.  fabric_run() brings all ports of one buffer up to a moment, in the order (time, slot of the
 * port); whoever looks at a port calls it first.  So a saturated port costs one timer per frame, its arrival, and a
 * start needs a timer of its own only when something else depends on it: nothing is on the wire, or a PFC XOFF is
 * out, whose XON has to leave in time.
 *
 * Locks: a device's root lock, then the lock of one buffer; never two buffers.  The buffer's lock covers the ports
 * that joined it, so a port may be advanced by a neighbour; what belongs to its root lock (qlen, backlog) is settled
 * when the port next runs itself.
 *
 * Accounting and thresholds follow the switch of the HPCC simulator (switch-mmu.cc); README.md lists the differences.
 */

#include <linux/etherdevice.h>
#include <linux/if_ether.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_netdev.h>
#include <linux/rbtree.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <net/gen_stats.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#include <net/gso.h>
#endif
#include <net/inet_ecn.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>

#include "sch_fabric.h"

#define FABRIC_NEVER		U64_MAX
#define FABRIC_MAX_PORTS	512		/* of one shared buffer */
#define FABRIC_LOCAL		0		/* slot of what came in through no port of the buffer */
#define FABRIC_CONTROL		0xff		/* "class" of a PFC frame in fabric_cb */
#define FABRIC_MIN_QUANTUM	256		/* bytes; bounds the turns of one DRR decision */
#define FABRIC_MIN_QUANTA	32		/* half of it is longer than a PFC frame, so refreshes never pile up */
#define FABRIC_MAX_DELAY_NS	(1000ULL * NSEC_PER_SEC)
#define FABRIC_COMPLETION_NS	(10 * NSEC_PER_USEC)	/* latest time at which a socket learns that its frame has left */
#define FABRIC_PPB		1000000000U

#define FABRIC_PFC_OPCODE	0x0101
#define FABRIC_PFC_FRAME	60		/* Ethernet's minimum without FCS */

struct fabric_pfc {
	__be16	opcode;
	__be16	enable;
	__be16	quanta[FABRIC_CLASSES];
} __packed;

/* What a frame carries while it is ours. */
struct fabric_cb {
	u64	time;		/* waiting: when it came; on the wire: when it arrives */
	u16	ingress;	/* slot that is charged for it */
	u8	class;
	bool	charged;
};

struct fabric_fifo {
	struct sk_buff	*head;
	struct sk_buff	*tail;
};

struct fabric_class_config {
	u64	limit;
	u64	kmin;
	u64	kmax;
	u64	reserve;
	u64	headroom;
	u64	xoff;
	u64	xon_offset;
	u64	watchdog_ns;
	u64	restore_ns;
	u32	flags;
	u32	quantum;
	u32	egress_alpha;
	u32	alpha;
	u32	pmax_ppb;
	u8	priority;
};

struct fabric_config {
	u64	rate;
	u64	delay;
	u64	limit;
	u32	overhead;
	u16	quanta;
	u8	default_class;
	u8	dscp[FABRIC_DSCPS];
	struct fabric_class_config class[FABRIC_CLASSES];
};

struct fabric_class {
	struct fabric_fifo	queue;
	u64			deficit;
	u64			paused_until;
	u64			pause_counted;	/* paused_ns is complete up to here */
	u64			stalled_ns;	/* since when packets wait behind a pause */
	bool			storm;
	struct fabric_class_xstats x;		/* ingress fields and state are filled in when read */
};

/* What waits in the buffer and came in through one port. */
struct fabric_ingress {
	struct fabric_port	*port;		/* NULL: the local slot, or the port has left */
	u64			reserve[FABRIC_CLASSES];
	u64			bytes[FABRIC_CLASSES];		/* reserve and shared */
	u64			headroom[FABRIC_CLASSES];
	u64			headroom_peak[FABRIC_CLASSES];
	u64			refresh_ns[FABRIC_CLASSES];
	u8			xoff;				/* classes told to stop */
};

struct fabric_buffer {
	spinlock_t		lock;
	struct rb_root_cached	events;		/* ports by (next_ns, slot) */
	u64			clock;		/* everything before this moment has happened */
	unsigned int		xoffs;		/* XOFFs outstanding, all ports */
	struct sk_buff		*garbage;	/* to be freed once the lock is released */

	u32			id;		/* 0: private to one port, nothing is shared */
	u64			bytes;
	u64			promised;	/* all reserves and headrooms */
	u64			shared;		/* sum over ingresses of max(0, bytes - reserve) */
	u64			shared_peak;	/* since the first port was last read ... */
	u64			shared_peak_before;	/* ... and before that */
	unsigned int		ports;
	struct fabric_ingress	**ingress;	/* by slot */
	struct hlist_head	by_ifindex[64];

	struct net		*net;
	struct list_head	list;
	struct rcu_head		rcu;
};

struct fabric_port {
	struct Qdisc		*sch;
	struct fabric_buffer	*buffer;
	struct fabric_ingress	*ingress;	/* of frames that come in here; NULL in a private buffer */
	u16			slot;
	bool			gone;
	struct hlist_node	by_ifindex;
	struct rb_node		event;
	u64			next_ns;	/* next event; FABRIC_NEVER: not in the tree */
	u64			urgent_ns;	/* next event that must not be late */
	u64			armed_ns;

	u64			free_ns;	/* the transmitter is busy until then ... */
	u64			rest;		/* ... plus this / rate ns */
	u64			last_arrival;
	u64			random;
	u8			waiting;	/* classes with packets */
	u8			paused;		/* classes that may be under a pause */
	u8			stalled;
	u8			level[FABRIC_CLASSES];	/* classes of each priority */
	u8			turn[FABRIC_CLASSES];	/* whose turn it is at each priority */
	struct fabric_fifo	control;
	struct fabric_fifo	wire;
	u32			debt_packets;	/* dropped by a neighbour's run, still in sch->q.qlen */
	u32			debt_bytes;

	struct fabric_config	cfg;
	struct fabric_class	class[FABRIC_CLASSES];
	struct fabric_xstats	x;

	struct qdisc_watchdog	watchdog;
	struct nf_hook_ops	hook;
	struct net		*net;
};

static const struct fabric_class_config fabric_default_class = { .quantum = 9216 };
static LIST_HEAD(fabric_buffers);
static DEFINE_MUTEX(fabric_buffers_lock);
static struct Qdisc_ops fabric_qdisc_ops;

static void fabric_arm(struct fabric_port *port, u64 now, bool own);

static struct fabric_cb *fabric_cb(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(struct fabric_cb));
	return (struct fabric_cb *)qdisc_skb_cb(skb)->data;
}

static void fifo_push(struct fabric_fifo *fifo, struct sk_buff *skb)
{
	skb->next = NULL;
	if (fifo->head)
		fifo->tail->next = skb;
	else
		fifo->head = skb;
	fifo->tail = skb;
}

static struct sk_buff *fifo_pop(struct fabric_fifo *fifo)
{
	struct sk_buff *skb = fifo->head;

	if (skb) {
		fifo->head = skb->next;
		skb->next = NULL;
	}
	return skb;
}

/* ---- time ---- */

/* splitmix64, Steele, Lea and Flood 2014: one add and two multiplies, and easy to repeat in any language. */
static u32 fabric_random(struct fabric_port *port)
{
	u64 z = port->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (z ^ (z >> 31)) >> 32;
}

static u64 fabric_quanta_ns(const struct fabric_port *port, u16 quanta)
{
	return div64_u64((u64)quanta * 512 * NSEC_PER_SEC, port->cfg.rate);
}

/* The transmitter begins a frame at `at`, when it is free; returns when it ends, to the nearest nanosecond. */
static u64 fabric_serialise(struct fabric_port *port, u64 at, u32 len)
{
	u64 bits = ((u64)len + port->cfg.overhead) * 8;

	if (at > port->free_ns)
		port->rest = port->cfg.rate / 2;	/* a busy period begins: its ends are rounded, not cut */
	port->free_ns = at + div64_u64_rem(bits * NSEC_PER_SEC + port->rest, port->cfg.rate, &port->rest);
	port->x.busy_ns += port->free_ns - at;
	return port->free_ns;
}

static bool fabric_paused(const struct fabric_port *port, unsigned int c, u64 at)
{
	const struct fabric_class *cl = &port->class[c];

	return cl->paused_until > at && !(cl->storm && port->cfg.class[c].flags & FABRIC_CLASS_STORM_FORWARD);
}

/* When the watchdog of a class fires, if the pause lasts that long. */
static u64 fabric_fire_ns(const struct fabric_port *port, unsigned int c)
{
	const struct fabric_class *cl = &port->class[c];
	u64 limit = port->cfg.class[c].watchdog_ns;

	if (!limit || cl->storm || cl->stalled_ns == FABRIC_NEVER || cl->stalled_ns + limit >= cl->paused_until)
		return FABRIC_NEVER;
	return cl->stalled_ns + limit;
}

static bool fabric_before(struct rb_node *a, const struct rb_node *b)
{
	const struct fabric_port *x = rb_entry(a, struct fabric_port, event);
	const struct fabric_port *y = rb_entry(b, struct fabric_port, event);

	return x->next_ns < y->next_ns || (x->next_ns == y->next_ns && x->slot < y->slot);
}

/* Finds a port's next event after something about it changed. */
static void fabric_reschedule(struct fabric_port *port)
{
	struct fabric_buffer *b = port->buffer;
	u64 urgent = FABRIC_NEVER, start = FABRIC_NEVER;
	unsigned long set;
	unsigned int c;

	if (port->control.head || port->waiting & ~port->paused) {
		start = b->clock;
	} else {
		set = port->waiting;
		for_each_set_bit(c, &set, FABRIC_CLASSES)
			start = min(start, fabric_paused(port, c, b->clock) ? port->class[c].paused_until : b->clock);
	}
	if (start != FABRIC_NEVER)
		start = max(start, port->free_ns);
	set = port->stalled;
	for_each_set_bit(c, &set, FABRIC_CLASSES)
		urgent = min(urgent, fabric_fire_ns(port, c));
	set = port->ingress ? port->ingress->xoff : 0;
	for_each_set_bit(c, &set, FABRIC_CLASSES)
		urgent = min(urgent, port->ingress->refresh_ns[c]);
	port->urgent_ns = urgent;
	start = min(start, urgent);
	if (start == port->next_ns)
		return;
	if (port->next_ns != FABRIC_NEVER)
		rb_erase_cached(&port->event, &b->events);
	port->next_ns = start;
	if (start != FABRIC_NEVER)
		rb_add_cached(&port->event, &b->events, fabric_before);
}

/* ---- PFC out ---- */

static bool fabric_is_up(const struct fabric_port *port)
{
	return !port->gone && !test_bit(__QDISC_STATE_DEACTIVATED, &port->sch->state);
}

static void fabric_send_pfc(struct fabric_port *port, unsigned int c, u16 quanta, u64 at)
{
	static const u8 destination[ETH_ALEN] = { 0x01, 0x80, 0xc2, 0x00, 0x00, 0x01 };
	struct net_device *dev = qdisc_dev(port->sch);
	struct fabric_pfc *pfc;
	struct sk_buff *skb;
	struct ethhdr *eth;

	skb = alloc_skb(NET_SKB_PAD + FABRIC_PFC_FRAME, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb) {
		port->x.control_failed++;
		return;
	}
	skb_reserve(skb, NET_SKB_PAD);
	eth = skb_put_zero(skb, FABRIC_PFC_FRAME);
	ether_addr_copy(eth->h_dest, destination);
	ether_addr_copy(eth->h_source, dev->dev_addr);
	eth->h_proto = htons(ETH_P_PAUSE);
	pfc = (struct fabric_pfc *)(eth + 1);
	pfc->opcode = htons(FABRIC_PFC_OPCODE);
	pfc->enable = htons(BIT(c));
	pfc->quanta[c] = htons(quanta);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb->protocol = htons(ETH_P_PAUSE);
	skb->priority = TC_PRIO_CONTROL;
	skb->dev = dev;
	qdisc_skb_cb(skb)->pkt_len = skb->len;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	qdisc_skb_cb(skb)->pkt_segs = 1;
#endif
	*fabric_cb(skb) = (struct fabric_cb){ .time = at, .class = FABRIC_CONTROL };
	fifo_push(&port->control, skb);
	if (quanta)
		port->class[c].x.pauses_sent++;
	else
		port->class[c].x.resumes_sent++;
}

static u64 fabric_refresh_ns(const struct fabric_port *port)
{
	return max_t(u64, fabric_quanta_ns(port, port->cfg.quanta) / 2, 1);
}

static void fabric_xoff(struct fabric_port *port, unsigned int c, u64 at)
{
	struct fabric_buffer *b = port->buffer;
	struct rb_node *node;

	port->ingress->xoff |= BIT(c);
	port->ingress->refresh_ns[c] = at + fabric_refresh_ns(port);
	fabric_send_pfc(port, c, port->cfg.quanta, at);
	fabric_reschedule(port);
	fabric_arm(port, at, false);
	if (b->xoffs++ == 0)	/* from now on every start may cause an XON: none may be late */
		for (node = rb_first_cached(&b->events); node; node = rb_next(node))
			fabric_arm(rb_entry(node, struct fabric_port, event), at, false);
}

static void fabric_xon(struct fabric_port *port, unsigned int c, u64 at)
{
	port->ingress->xoff &= ~BIT(c);
	port->buffer->xoffs--;
	fabric_send_pfc(port, c, 0, at);
	fabric_reschedule(port);
	fabric_arm(port, at, false);
}

/* ---- the shared buffer ---- */

static u64 fabric_free(const struct fabric_buffer *b)
{
	u64 taken = b->promised + b->shared;

	return b->bytes > taken ? b->bytes - taken : 0;
}

static u64 fabric_threshold(const struct fabric_buffer *b, const struct fabric_ingress *in, unsigned int c)
{
	const struct fabric_class_config *cfg;

	if (!in->port)
		return fabric_free(b);
	cfg = &in->port->cfg.class[c];
	if (cfg->alpha)
		return (fabric_free(b) * cfg->alpha) >> 8;
	return cfg->xoff ?: fabric_free(b);
}

static u64 fabric_over_reserve(const struct fabric_ingress *in, unsigned int c)
{
	return in->bytes[c] > in->reserve[c] ? in->bytes[c] - in->reserve[c] : 0;
}

static bool fabric_lossless(const struct fabric_ingress *in, unsigned int c)
{
	return in->port && in->port->cfg.class[c].flags & FABRIC_CLASS_PFC;
}

static struct fabric_ingress *fabric_find_ingress(struct fabric_buffer *b, int ifindex, u16 *slot)
{
	struct fabric_port *port;

	if (ifindex)
		hlist_for_each_entry(port, &b->by_ifindex[ifindex % ARRAY_SIZE(b->by_ifindex)], by_ifindex)
			if (qdisc_dev(port->sch)->ifindex == ifindex) {
				*slot = port->slot;
				return port->ingress;
			}
	*slot = FABRIC_LOCAL;
	return b->ingress[FABRIC_LOCAL];
}

/* Charges a frame to its ingress; returns FABRIC_DROP_CAUSES, or the cause why it may not come in. */
static int fabric_charge(struct fabric_buffer *b, struct fabric_ingress *in, unsigned int c, u32 len)
{
	u64 after = in->bytes[c] + len, over, part;

	if (after > in->reserve[c]) {
		over = after - in->reserve[c];
		part = min_t(u64, len, over);
		if (over > fabric_threshold(b, in, c) || part > fabric_free(b)) {
			if (!fabric_lossless(in, c))
				return FABRIC_DROP_SHARED;
			if (in->headroom[c] + len > in->port->cfg.class[c].headroom)
				return FABRIC_DROP_HEADROOM;
			in->headroom[c] += len;
			return FABRIC_DROP_CAUSES;
		}
		b->shared += part;
	}
	in->bytes[c] = after;
	return FABRIC_DROP_CAUSES;
}

static void fabric_check_pause(struct fabric_buffer *b, struct fabric_ingress *in, unsigned int c, u64 at)
{
	if (!fabric_lossless(in, c) || in->xoff & BIT(c) || !fabric_is_up(in->port))
		return;
	if (in->headroom[c] || fabric_over_reserve(in, c) >= fabric_threshold(b, in, c))
		fabric_xoff(in->port, c, at);
}

static void fabric_check_resume(struct fabric_buffer *b, struct fabric_ingress *in, unsigned int c, u64 at)
{
	u64 used;

	if (!(in->xoff & BIT(c)) || in->headroom[c])
		return;
	used = fabric_over_reserve(in, c);
	if (!used || used + in->port->cfg.class[c].xon_offset <= fabric_threshold(b, in, c))
		fabric_xon(in->port, c, at);
}

static void fabric_release(struct fabric_buffer *b, const struct fabric_cb *cb, u32 len, u64 at)
{
	struct fabric_ingress *in = b->ingress[cb->ingress];
	unsigned int c = cb->class;
	u64 from_headroom = min_t(u64, in->headroom[c], len);

	in->headroom[c] -= from_headroom;
	b->shared -= min(len - from_headroom, fabric_over_reserve(in, c));
	in->bytes[c] -= len - from_headroom;
	fabric_check_resume(b, in, c, at);
}

/* ---- marking ---- */

static bool fabric_should_mark(struct fabric_port *port, unsigned int c)
{
	const struct fabric_class_config *cfg = &port->cfg.class[c];
	const struct fabric_class *cl = &port->class[c];
	u64 queue, ppb;

	if (!(cfg->flags & FABRIC_CLASS_ECN))
		return false;
	queue = cfg->flags & FABRIC_CLASS_ECN_PACKETS ? cl->x.queue_packets : cl->x.queue_bytes;
	if (queue > cfg->kmax)
		return true;
	if (queue <= cfg->kmin)
		return false;
	ppb = div64_u64(cfg->pmax_ppb * (queue - cfg->kmin), cfg->kmax - cfg->kmin);
	return (u64)fabric_random(port) * FABRIC_PPB >> 32 < ppb;
}

/*
 * Marks a frame if it may be marked.  The header is copied first if a capture shares it: a frame is CE from here on,
 * not in what was captured before.
 */
static void fabric_mark(struct fabric_class *cl, struct sk_buff *skb)
{
	int offset = skb_network_offset(skb);
	u8 ecn = INET_ECN_NOT_ECT;

	switch (skb_protocol(skb, true)) {
	case htons(ETH_P_IP):
		offset += sizeof(struct iphdr);
		if (pskb_may_pull(skb, offset))
			ecn = ipv4_get_dsfield(ip_hdr(skb)) & INET_ECN_MASK;
		break;
	case htons(ETH_P_IPV6):
		offset += sizeof(struct ipv6hdr);
		if (pskb_may_pull(skb, offset))
			ecn = ipv6_get_dsfield(ipv6_hdr(skb)) & INET_ECN_MASK;
		break;
	}
	if (ecn == INET_ECN_CE)
		return;
	if (ecn == INET_ECN_NOT_ECT || skb_ensure_writable(skb, offset)) {
		cl->x.unmarkable++;
		return;
	}
	INET_ECN_set_ce(skb);
	cl->x.marked++;
}

static unsigned int fabric_classify(const struct fabric_port *port, struct sk_buff *skb)
{
	int offset = skb_network_offset(skb);

	switch (skb_protocol(skb, true)) {
	case htons(ETH_P_IP):
		if (!pskb_may_pull(skb, offset + sizeof(struct iphdr)))
			break;
		return port->cfg.dscp[ipv4_get_dsfield(ip_hdr(skb)) >> 2];
	case htons(ETH_P_IPV6):
		if (!pskb_may_pull(skb, offset + sizeof(struct ipv6hdr)))
			break;
		return port->cfg.dscp[ipv6_get_dsfield(ipv6_hdr(skb)) >> 2];
	}
	return port->cfg.default_class;
}

/* ---- events ---- */

static struct sk_buff *fabric_pop(struct fabric_port *port, unsigned int c)
{
	struct fabric_class *cl = &port->class[c];
	struct sk_buff *skb = fifo_pop(&cl->queue);

	cl->x.queue_packets--;
	cl->x.queue_bytes -= qdisc_pkt_len(skb);
	port->x.queue_packets--;
	port->x.queue_bytes -= qdisc_pkt_len(skb);
	if (!cl->queue.head) {
		port->waiting &= ~BIT(c);
		cl->deficit = 0;
	}
	return skb;
}

static void fabric_drop(struct fabric_class *cl, u32 len, unsigned int cause)
{
	cl->x.dropped_packets[cause]++;
	cl->x.dropped_bytes[cause] += len;
}

/* Drops what waits in a class; the caller settles the port's share of sch->q.qlen. */
static void fabric_flush_class(struct fabric_port *port, unsigned int c, unsigned int cause, u64 at)
{
	struct fabric_class *cl = &port->class[c];
	struct fabric_buffer *b = port->buffer;
	struct sk_buff *skb;

	while (cl->queue.head) {
		skb = fabric_pop(port, c);
		fabric_drop(cl, qdisc_pkt_len(skb), cause);
		port->debt_packets++;
		port->debt_bytes += qdisc_pkt_len(skb);
		if (fabric_cb(skb)->charged)
			fabric_release(b, fabric_cb(skb), qdisc_pkt_len(skb), at);
		skb->next = b->garbage;
		b->garbage = skb;
	}
	cl->stalled_ns = FABRIC_NEVER;
	port->stalled &= ~BIT(c);
}

static void fabric_fire(struct fabric_port *port, unsigned int c, u64 at)
{
	struct fabric_class *cl = &port->class[c];

	cl->storm = true;
	cl->x.watchdog_fired++;
	cl->stalled_ns = FABRIC_NEVER;
	port->stalled &= ~BIT(c);
	if (!(port->cfg.class[c].flags & FABRIC_CLASS_STORM_FORWARD))
		fabric_flush_class(port, c, FABRIC_DROP_WATCHDOG, at);
}

/* Lets go of a fired watchdog once its class has not been paused for long enough. */
static void fabric_settle_storm(struct fabric_port *port, unsigned int c, u64 at)
{
	struct fabric_class *cl = &port->class[c];

	if (cl->storm && at >= cl->paused_until + port->cfg.class[c].restore_ns) {
		cl->storm = false;
		cl->x.watchdog_restored++;
	}
}

static void fabric_settle_pause(struct fabric_class *cl, u64 at)
{
	u64 upto = min(at, cl->paused_until);

	if (upto > cl->pause_counted) {
		cl->x.paused_ns += upto - cl->pause_counted;
		cl->pause_counted = upto;
	}
}

/* The class whose head is sent next: strict priority, then deficit round robin. */
static int fabric_select(struct fabric_port *port, u64 at)
{
	unsigned long set = port->waiting & port->paused;
	u8 ready = port->waiting & ~port->paused;
	unsigned int c, p;
	u64 need;

	for_each_set_bit(c, &set, FABRIC_CLASSES) {
		if (fabric_paused(port, c, at))
			continue;
		if (port->class[c].paused_until <= at)
			port->paused &= ~BIT(c);
		ready |= BIT(c);
	}
	if (!ready)
		return -1;
	for (p = FABRIC_CLASSES - 1; !(ready & port->level[p]); p--)
		;
	ready &= port->level[p];
	if (!(ready & (ready - 1)))
		return __ffs(ready);
	for (c = port->turn[p];;) {
		if (ready & BIT(c)) {
			need = qdisc_pkt_len(port->class[c].queue.head) + port->cfg.overhead;
			if (port->class[c].deficit >= need) {
				port->class[c].deficit -= need;
				port->turn[p] = c;
				return c;
			}
		}
		do {
			c = (c + 1) % FABRIC_CLASSES;
		} while (!(ready & BIT(c)));
		port->class[c].deficit += port->cfg.class[c].quantum;
	}
}

/* Serialisation of the next frame begins. */
static void fabric_start(struct fabric_port *port, u64 at)
{
	struct fabric_buffer *b = port->buffer;
	struct fabric_class *cl;
	struct fabric_cb *cb;
	struct sk_buff *skb;
	u32 len;
	int c;

	skb = fifo_pop(&port->control);
	if (skb) {
		len = qdisc_pkt_len(skb);
		port->x.control_packets++;
		port->x.control_bytes += len;
		cb = fabric_cb(skb);
	} else {
		c = fabric_select(port, at);
		if (c < 0)
			return;
		cl = &port->class[c];
		skb = fabric_pop(port, c);
		len = qdisc_pkt_len(skb);
		cb = fabric_cb(skb);
		if (!(port->cfg.class[c].flags & FABRIC_CLASS_ECN_ENQUEUE) && fabric_should_mark(port, c))
			fabric_mark(cl, skb);
		cl->x.sent_packets++;
		cl->x.sent_bytes += len;
		cl->x.wait_ns += at - cb->time;
		cl->stalled_ns = FABRIC_NEVER;
		port->stalled &= ~BIT(c);
		if (cb->charged)
			fabric_release(b, cb, len, at);
		skb_orphan_partial(skb);
	}
	port->last_arrival = max(port->last_arrival, fabric_serialise(port, at, len) + port->cfg.delay);
	cb->time = port->last_arrival;
	port->x.wire_packets++;
	port->x.wire_bytes += len;
	fifo_push(&port->wire, skb);
}

static void fabric_event(struct fabric_port *port, u64 at)
{
	unsigned long set = port->stalled;
	unsigned int c;

	for_each_set_bit(c, &set, FABRIC_CLASSES)
		if (fabric_fire_ns(port, c) <= at)
			fabric_fire(port, c, at);
	set = port->ingress ? port->ingress->xoff : 0;
	for_each_set_bit(c, &set, FABRIC_CLASSES)
		if (port->ingress->refresh_ns[c] <= at) {
			port->ingress->refresh_ns[c] = at + fabric_refresh_ns(port);
			fabric_send_pfc(port, c, port->cfg.quanta, at);
		}
	if (port->free_ns <= at)
		fabric_start(port, at);
}

/* Brings every port of the buffer up to `now`. */
static void fabric_run(struct fabric_buffer *b, u64 now)
{
	struct fabric_port *port;
	struct rb_node *node;

	while ((node = rb_first_cached(&b->events))) {
		port = rb_entry(node, struct fabric_port, event);
		if (port->next_ns > now)
			break;
		b->clock = max(b->clock, port->next_ns);
		fabric_event(port, port->next_ns);
		fabric_reschedule(port);
	}
	b->clock = max(b->clock, now);
}

/* Sets the port's timer.  In the port's own context what is due already is taken by the dequeue that follows. */
static void fabric_arm(struct fabric_port *port, u64 now, bool own)
{
	u64 at = port->urgent_ns, start = port->next_ns;

	if (port->wire.head) {
		at = min(at, fabric_cb(port->wire.head)->time);
		if (!port->buffer->xoffs && start != FABRIC_NEVER)
			start += FABRIC_COMPLETION_NS;
	}
	at = min(at, start);
	if (at == FABRIC_NEVER)
		return;
	if (at <= now) {
		hrtimer_try_to_cancel(&port->watchdog.timer);
		if (!own && fabric_is_up(port))
			__netif_schedule(port->sch);
		return;
	}
	if (port->armed_ns == at && hrtimer_is_queued(&port->watchdog.timer))
		return;
	port->armed_ns = at;
	qdisc_watchdog_schedule_ns(&port->watchdog, at);
}

/* ---- the qdisc: frames in and out ---- */

static struct sk_buff *fabric_take_garbage(struct fabric_buffer *b)
{
	struct sk_buff *list = b->garbage;

	b->garbage = NULL;
	return list;
}

/* Settles, in the port's own context, what a neighbour's run dropped here. */
static void fabric_pay_debt(struct fabric_port *port)
{
	struct Qdisc *sch = port->sch;

	if (likely(!port->debt_packets))
		return;
	WRITE_ONCE(sch->q.qlen, sch->q.qlen - port->debt_packets);
	WRITE_ONCE(sch->qstats.backlog, sch->qstats.backlog - port->debt_bytes);
	WRITE_ONCE(sch->qstats.drops, sch->qstats.drops + port->debt_packets);
	port->debt_packets = 0;
	port->debt_bytes = 0;
}

/* Why the egress side refuses a frame, or FABRIC_DROP_CAUSES. */
static int fabric_refuse(struct fabric_port *port, unsigned int c, u32 len, u64 now)
{
	const struct fabric_class_config *cfg = &port->cfg.class[c];
	const struct fabric_class *cl = &port->class[c];
	u64 after = cl->x.queue_bytes + len;

	fabric_settle_storm(port, c, now);
	if (cl->storm && !(cfg->flags & FABRIC_CLASS_STORM_FORWARD))
		return FABRIC_DROP_WATCHDOG;
	if ((cfg->limit && after > cfg->limit) || (port->cfg.limit && port->x.queue_bytes + len > port->cfg.limit))
		return FABRIC_DROP_EGRESS;
	if (cfg->egress_alpha && port->buffer->id && !(cfg->flags & (FABRIC_CLASS_PFC | FABRIC_CLASS_EXEMPT)) &&
	    after > (fabric_free(port->buffer) * cfg->egress_alpha) >> 8)
		return FABRIC_DROP_EGRESS;
	return FABRIC_DROP_CAUSES;
}

static void fabric_note_peaks(struct fabric_port *port, struct fabric_class *cl, unsigned int c,
			      struct fabric_ingress *in)
{
	cl->x.peak_packets = max(cl->x.peak_packets, cl->x.queue_packets);
	cl->x.peak_bytes = max(cl->x.peak_bytes, cl->x.queue_bytes);
	port->x.peak_bytes = max(port->x.peak_bytes, port->x.queue_bytes);
	if (!in)
		return;
	port->buffer->shared_peak = max(port->buffer->shared_peak, port->buffer->shared);
	in->headroom_peak[c] = max(in->headroom_peak[c], in->headroom[c]);
}

/* One frame comes to the port; true if it stays. */
static bool fabric_admit(struct fabric_port *port, struct sk_buff *skb, u64 now)
{
	struct fabric_buffer *b = port->buffer;
	struct fabric_ingress *in = NULL;
	u32 len = qdisc_pkt_len(skb);
	struct fabric_class *cl;
	u16 slot = 0;
	unsigned int c;
	int cause;

	c = fabric_classify(port, skb);
	cl = &port->class[c];
	cl->x.enqueued_packets++;
	cl->x.enqueued_bytes += len;
	cause = fabric_refuse(port, c, len, now);
	if (cause == FABRIC_DROP_CAUSES && b->id && !(port->cfg.class[c].flags & FABRIC_CLASS_EXEMPT)) {
		in = fabric_find_ingress(b, skb->skb_iif, &slot);
		cause = fabric_charge(b, in, c, len);
	}
	if (cause != FABRIC_DROP_CAUSES) {
		fabric_drop(cl, len, cause);
		return false;
	}
	if (in)
		fabric_check_pause(b, in, c, now);
	if (port->cfg.class[c].flags & FABRIC_CLASS_ECN_ENQUEUE && fabric_should_mark(port, c))
		fabric_mark(cl, skb);
	*fabric_cb(skb) = (struct fabric_cb){ .time = now, .ingress = slot, .class = c, .charged = in };
	fifo_push(&cl->queue, skb);
	cl->x.queue_packets++;
	cl->x.queue_bytes += len;
	port->x.queue_packets++;
	port->x.queue_bytes += len;
	port->waiting |= BIT(c);
	if (cl->stalled_ns == FABRIC_NEVER && !cl->storm && cl->paused_until > now) {
		cl->stalled_ns = now;
		port->stalled |= BIT(c);
	}
	fabric_reschedule(port);
	fabric_run(b, now);
	fabric_note_peaks(port, cl, c, in);
	return true;
}

static int fabric_admit_one(struct fabric_port *port, struct sk_buff *skb, u64 now, struct sk_buff **to_free)
{
	struct Qdisc *sch = port->sch;
	u32 len = qdisc_pkt_len(skb);

	if (!fabric_admit(port, skb, now))
		return qdisc_drop(skb, sch, to_free);
	WRITE_ONCE(sch->q.qlen, sch->q.qlen + 1);
	WRITE_ONCE(sch->qstats.backlog, sch->qstats.backlog + len);
	return NET_XMIT_SUCCESS;
}

/* A switch port queues packets, not what a host's stack would like to send in one piece. */
static struct sk_buff *fabric_segment(struct sk_buff *skb, struct sk_buff **to_free)
{
	struct sk_buff *segments, *one;

	if (!skb_is_gso(skb)) {
		skb->next = NULL;
		return skb;
	}
	segments = skb_gso_segment(skb, netif_skb_features(skb) & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(segments)) {
		__qdisc_drop(skb, to_free);
		return NULL;
	}
	for (one = segments; one; one = one->next) {
		qdisc_skb_cb(one)->pkt_len = one->len;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
		qdisc_skb_cb(one)->pkt_segs = 1;
#endif
	}
	consume_skb(skb);
	return segments;
}

static int fabric_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct fabric_buffer *b = port->buffer;
	struct sk_buff *next, *garbage;
	int ret = NET_XMIT_DROP;
	u64 now;

	skb = fabric_segment(skb, to_free);
	if (!skb) {
		qdisc_qstats_drop(sch);
		return NET_XMIT_DROP;
	}
	spin_lock(&b->lock);
	now = ktime_get_ns();
	fabric_run(b, now);
	for (; skb; skb = next) {
		next = skb->next;
		if (fabric_admit_one(port, skb, now, to_free) == NET_XMIT_SUCCESS)
			ret = NET_XMIT_SUCCESS;
	}
	fabric_pay_debt(port);
	fabric_arm(port, now, true);
	garbage = fabric_take_garbage(b);
	spin_unlock(&b->lock);
	kfree_skb_list(garbage);
	return ret;
}

static struct fabric_port *fabric_peer(struct net_device *dev);
static void fabric_obey(struct fabric_port *port, const struct sk_buff *skb, int offset);

/*
 * A veth's receiver may hold frames back to moderate interrupts, which no MAC does to a pause: so a PFC frame acts on
 * the far end's port at the moment it leaves the wire, and then goes on as a frame for captures to see.
 */
static void fabric_deliver_pfc(const struct Qdisc *sch, const struct sk_buff *skb)
{
	struct fabric_port *peer;

	rcu_read_lock();
	peer = fabric_peer(qdisc_dev(sch));
	if (peer)
		fabric_obey(peer, skb, ETH_HLEN);
	rcu_read_unlock();
}

static struct sk_buff *fabric_dequeue(struct Qdisc *sch)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct fabric_buffer *b = port->buffer;
	struct sk_buff *skb, *garbage;
	bool control = false;
	u32 len = 0;
	u64 now;

	if (hrtimer_is_queued(&port->watchdog.timer))
		return NULL;	/* nothing is due before it expires */
	spin_lock(&b->lock);
	now = ktime_get_ns();
	fabric_run(b, now);
	fabric_pay_debt(port);
	skb = port->wire.head;
	if (skb && fabric_cb(skb)->time <= now) {
		fifo_pop(&port->wire);
		len = qdisc_pkt_len(skb);
		control = fabric_cb(skb)->class == FABRIC_CONTROL;
		port->x.wire_packets--;
		port->x.wire_bytes -= len;
		port->x.delivered_packets++;
		port->x.delivered_bytes += len;
	} else {
		skb = NULL;
	}
	fabric_arm(port, now, true);	/* now, so that the core's next call finds the timer set and returns at once */
	garbage = fabric_take_garbage(b);
	spin_unlock(&b->lock);
	kfree_skb_list(garbage);
	if (!skb)
		return NULL;
	if (!control) {
		WRITE_ONCE(sch->q.qlen, sch->q.qlen - 1);
		WRITE_ONCE(sch->qstats.backlog, sch->qstats.backlog - len);
	}
	qdisc_bstats_update(sch, skb);
	if (unlikely(skb->protocol == htons(ETH_P_PAUSE)))
		fabric_deliver_pfc(sch, skb);
	return skb;
}

/* ---- PFC in ---- */

static struct fabric_port *fabric_peer(struct net_device *dev)
{
	struct net_device *peer;
	struct Qdisc *sch;

	if (!dev->netdev_ops->ndo_get_peer_dev)
		return NULL;
	peer = dev->netdev_ops->ndo_get_peer_dev(dev);
	if (!peer)
		return NULL;
	sch = rcu_dereference(netdev_get_tx_queue(peer, 0)->qdisc);
	return sch->ops == &fabric_qdisc_ops ? qdisc_priv(sch) : NULL;
}

static void fabric_obey_class(struct fabric_port *port, unsigned int c, u16 quanta, u64 now)
{
	struct fabric_class *cl = &port->class[c];
	u64 before = cl->paused_until;

	fabric_settle_storm(port, c, now);
	fabric_settle_pause(cl, now);
	if (!quanta) {
		cl->x.resumes_received++;
		cl->paused_until = min(before, now);
		cl->stalled_ns = FABRIC_NEVER;
		port->stalled &= ~BIT(c);
		return;
	}
	cl->x.pauses_received++;
	cl->paused_until = now + fabric_quanta_ns(port, quanta);
	cl->pause_counted = now;
	port->paused |= BIT(c);
	if (cl->queue.head && !cl->storm && (cl->stalled_ns == FABRIC_NEVER || before < now)) {
		cl->stalled_ns = now;
		port->stalled |= BIT(c);
	}
}

static void fabric_obey(struct fabric_port *port, const struct sk_buff *skb, int offset)
{
	struct fabric_buffer *b = port->buffer;
	const struct fabric_pfc *pfc;
	struct fabric_pfc copy;
	struct sk_buff *garbage;
	unsigned long enable = 0;
	bool obeyed = false;
	unsigned int c;
	u64 now;

	pfc = skb_header_pointer(skb, offset, sizeof(copy), &copy);
	if (pfc && pfc->opcode == htons(FABRIC_PFC_OPCODE))
		enable = ntohs(pfc->enable) & 0xff;
	spin_lock_bh(&b->lock);
	if (!fabric_is_up(port)) {
		spin_unlock_bh(&b->lock);
		return;
	}
	now = ktime_get_ns();
	fabric_run(b, now);
	for_each_set_bit(c, &enable, FABRIC_CLASSES)
		if (port->cfg.class[c].flags & FABRIC_CLASS_PFC) {
			fabric_obey_class(port, c, ntohs(pfc->quanta[c]), now);
			obeyed = true;
		}
	if (!obeyed)
		port->x.control_ignored++;
	fabric_reschedule(port);
	fabric_run(b, now);
	fabric_arm(port, now, false);
	garbage = fabric_take_garbage(b);
	spin_unlock_bh(&b->lock);
	kfree_skb_list(garbage);
}

/*
 * Takes MAC control frames out of what the device received, before a bridge or the stack sees them (captures have
 * seen them already).  They have acted already unless the far end is not one of ours.
 */
static unsigned int fabric_receive(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct fabric_port *port = priv;

	if (likely(skb->protocol != htons(ETH_P_PAUSE)))
		return NF_ACCEPT;
	if (!fabric_peer(skb->dev))
		fabric_obey(port, skb, 0);
	consume_skb(skb);
	return NF_STOLEN;
}

/* ---- life of a port and of a buffer ---- */

static u64 fabric_promised(const struct fabric_config *cfg)
{
	const struct fabric_class_config *cl;
	u64 sum = 0;

	for (cl = cfg->class; cl < cfg->class + FABRIC_CLASSES; cl++)
		sum += cl->reserve + (cl->flags & FABRIC_CLASS_PFC ? cl->headroom : 0);
	return sum;
}

static void fabric_set_reserve(struct fabric_buffer *b, struct fabric_ingress *in, unsigned int c, u64 reserve)
{
	b->shared -= fabric_over_reserve(in, c);
	in->reserve[c] = reserve;
	b->shared += fabric_over_reserve(in, c);
}

static void fabric_clear_xoffs(struct fabric_port *port)
{
	if (port->ingress) {
		port->buffer->xoffs -= hweight8(port->ingress->xoff);
		port->ingress->xoff = 0;
	}
}

static void fabric_reset(struct Qdisc *sch)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct fabric_buffer *b = port->buffer;
	struct sk_buff *skb, *garbage;
	unsigned int c;
	u64 now;

	if (!b)
		return;
	spin_lock_bh(&b->lock);
	now = ktime_get_ns();
	fabric_run(b, now);
	for (c = 0; c < FABRIC_CLASSES; c++) {
		fabric_settle_pause(&port->class[c], now);
		fabric_flush_class(port, c, FABRIC_DROP_FLUSH, now);
		port->class[c].paused_until = 0;
		port->class[c].storm = false;
	}
	fabric_clear_xoffs(port);
	while ((skb = fifo_pop(&port->control))) {
		skb->next = b->garbage;
		b->garbage = skb;
	}
	while ((skb = fifo_pop(&port->wire))) {
		port->x.wire_flushed_packets++;
		port->x.wire_flushed_bytes += qdisc_pkt_len(skb);
		skb->next = b->garbage;
		b->garbage = skb;
	}
	port->x.wire_packets = 0;
	port->x.wire_bytes = 0;
	port->debt_packets = 0;
	port->debt_bytes = 0;
	port->free_ns = min(port->free_ns, now);
	port->last_arrival = min(port->last_arrival, now);
	fabric_reschedule(port);
	garbage = fabric_take_garbage(b);
	spin_unlock_bh(&b->lock);
	qdisc_watchdog_cancel(&port->watchdog);
	kfree_skb_list(garbage);
}

static bool fabric_ingress_idle(const struct fabric_ingress *in)
{
	unsigned int c;

	for (c = 0; c < FABRIC_CLASSES; c++)
		if (in->bytes[c] || in->headroom[c])
			return false;
	return !in->port;
}

static struct fabric_buffer *fabric_buffer_alloc(struct net *net, u32 id)
{
	struct fabric_buffer *b = kzalloc(sizeof(*b), GFP_KERNEL);

	if (!b)
		return NULL;
	spin_lock_init(&b->lock);
	b->events = RB_ROOT_CACHED;
	b->id = id;
	b->net = net;
	INIT_LIST_HEAD(&b->list);
	if (!id)
		return b;
	b->ingress = kcalloc(FABRIC_MAX_PORTS + 1, sizeof(*b->ingress), GFP_KERNEL);
	if (b->ingress)
		b->ingress[FABRIC_LOCAL] = kzalloc(sizeof(**b->ingress), GFP_KERNEL);
	if (!b->ingress || !b->ingress[FABRIC_LOCAL]) {
		kfree(b->ingress);
		kfree(b);
		return NULL;
	}
	list_add_tail(&b->list, &fabric_buffers);
	return b;
}

static void fabric_buffer_free(struct rcu_head *rcu)
{
	struct fabric_buffer *b = container_of(rcu, struct fabric_buffer, rcu);
	unsigned int slot;

	for (slot = 0; b->ingress && slot <= FABRIC_MAX_PORTS; slot++)
		kfree(b->ingress[slot]);
	kfree(b->ingress);
	kfree(b);
}

/* Called with fabric_buffers_lock held. */
static struct fabric_buffer *fabric_buffer_find(struct net *net, u32 id)
{
	struct fabric_buffer *b;

	if (id)
		list_for_each_entry(b, &fabric_buffers, list)
			if (b->net == net && b->id == id)
				return b;
	return fabric_buffer_alloc(net, id);
}

/* Gives the port the lowest free slot of the buffer.  Called with fabric_buffers_lock held. */
static int fabric_join(struct fabric_port *port, struct fabric_buffer *b)
{
	struct fabric_ingress *fresh = NULL;
	unsigned int slot;

	if (b->id) {
		fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);
		if (!fresh)
			return -ENOMEM;
	}
	spin_lock_bh(&b->lock);
	for (slot = FABRIC_LOCAL + 1; b->id && slot <= FABRIC_MAX_PORTS; slot++)
		if (!b->ingress[slot] || fabric_ingress_idle(b->ingress[slot]))
			break;
	if (slot > FABRIC_MAX_PORTS) {
		spin_unlock_bh(&b->lock);
		kfree(fresh);
		return -ENOSPC;
	}
	port->buffer = b;
	port->slot = slot;
	if (b->id) {
		if (!b->ingress[slot]) {
			b->ingress[slot] = fresh;
			fresh = NULL;
		}
		port->ingress = b->ingress[slot];
		memset(port->ingress, 0, sizeof(*port->ingress));
		port->ingress->port = port;
		hlist_add_head(&port->by_ifindex,
			       &b->by_ifindex[qdisc_dev(port->sch)->ifindex % ARRAY_SIZE(b->by_ifindex)]);
	}
	b->ports++;
	spin_unlock_bh(&b->lock);
	kfree(fresh);
	return 0;
}

static void fabric_leave(struct fabric_port *port)
{
	struct fabric_buffer *b = port->buffer;
	unsigned int c;
	bool last;

	mutex_lock(&fabric_buffers_lock);
	spin_lock_bh(&b->lock);
	port->gone = true;
	fabric_clear_xoffs(port);
	if (port->next_ns != FABRIC_NEVER)
		rb_erase_cached(&port->event, &b->events);
	port->next_ns = FABRIC_NEVER;
	if (port->ingress) {
		hlist_del(&port->by_ifindex);
		b->promised -= fabric_promised(&port->cfg);
		for (c = 0; c < FABRIC_CLASSES; c++)
			fabric_set_reserve(b, port->ingress, c, 0);
		port->ingress->port = NULL;
	}
	last = --b->ports == 0;
	spin_unlock_bh(&b->lock);
	if (last) {
		list_del(&b->list);
		call_rcu(&b->rcu, fabric_buffer_free);
	}
	mutex_unlock(&fabric_buffers_lock);
}

/* ---- configuration ---- */

static const struct nla_policy fabric_policy[TCA_FABRIC_MAX + 1] = {
	[TCA_FABRIC_RATE_BPS]		= { .type = NLA_U64 },
	[TCA_FABRIC_DELAY_NS]		= { .type = NLA_U64 },
	[TCA_FABRIC_OVERHEAD]		= { .type = NLA_U32 },
	[TCA_FABRIC_LIMIT]		= { .type = NLA_U64 },
	[TCA_FABRIC_DSCP_MAP]		= NLA_POLICY_EXACT_LEN(FABRIC_DSCPS),
	[TCA_FABRIC_DEFAULT_CLASS]	= NLA_POLICY_MAX(NLA_U8, FABRIC_CLASSES - 1),
	[TCA_FABRIC_SEED]		= { .type = NLA_U64 },
	[TCA_FABRIC_BUFFER_ID]		= { .type = NLA_U32 },
	[TCA_FABRIC_BUFFER_BYTES]	= { .type = NLA_U64 },
	[TCA_FABRIC_PAUSE_QUANTA]	= NLA_POLICY_MIN(NLA_U16, FABRIC_MIN_QUANTA),
	[TCA_FABRIC_CLASS]		= { .type = NLA_NESTED },
};

static const struct nla_policy fabric_class_policy[TCA_FABRIC_CLASS_MAX + 1] = {
	[TCA_FABRIC_CLASS_INDEX]	= NLA_POLICY_MAX(NLA_U8, FABRIC_CLASSES - 1),
	[TCA_FABRIC_CLASS_FLAGS]	= NLA_POLICY_MASK(NLA_U32, FABRIC_CLASS_FLAGS),
	[TCA_FABRIC_CLASS_PRIORITY]	= NLA_POLICY_MAX(NLA_U8, FABRIC_CLASSES - 1),
	[TCA_FABRIC_CLASS_QUANTUM]	= NLA_POLICY_MIN(NLA_U32, FABRIC_MIN_QUANTUM),
	[TCA_FABRIC_CLASS_LIMIT]	= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_EGRESS_ALPHA]	= { .type = NLA_U32 },
	[TCA_FABRIC_CLASS_KMIN]		= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_KMAX]		= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_PMAX_PPB]	= { .type = NLA_U32 },
	[TCA_FABRIC_CLASS_RESERVE]	= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_HEADROOM]	= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_ALPHA]	= { .type = NLA_U32 },
	[TCA_FABRIC_CLASS_XOFF]		= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_XON_OFFSET]	= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_WATCHDOG_NS]	= { .type = NLA_U64 },
	[TCA_FABRIC_CLASS_RESTORE_NS]	= { .type = NLA_U64 },
};

static void fabric_get_u64(u64 *to, const struct nlattr *attr)
{
	if (attr)
		*to = nla_get_u64(attr);
}

static void fabric_get_u32(u32 *to, const struct nlattr *attr)
{
	if (attr)
		*to = nla_get_u32(attr);
}

static void fabric_get_u8(u8 *to, const struct nlattr *attr)
{
	if (attr)
		*to = nla_get_u8(attr);
}

static int fabric_parse_class(struct fabric_config *cfg, struct nlattr *attr, struct netlink_ext_ack *extack)
{
	struct nlattr *tb[TCA_FABRIC_CLASS_MAX + 1];
	struct fabric_class_config *cl;
	int err;

	err = nla_parse_nested(tb, TCA_FABRIC_CLASS_MAX, attr, fabric_class_policy, extack);
	if (err)
		return err;
	if (!tb[TCA_FABRIC_CLASS_INDEX]) {
		NL_SET_ERR_MSG(extack, "fabric: a class needs its index");
		return -EINVAL;
	}
	cl = &cfg->class[nla_get_u8(tb[TCA_FABRIC_CLASS_INDEX])];
	fabric_get_u32(&cl->flags, tb[TCA_FABRIC_CLASS_FLAGS]);
	fabric_get_u8(&cl->priority, tb[TCA_FABRIC_CLASS_PRIORITY]);
	fabric_get_u32(&cl->quantum, tb[TCA_FABRIC_CLASS_QUANTUM]);
	fabric_get_u64(&cl->limit, tb[TCA_FABRIC_CLASS_LIMIT]);
	fabric_get_u32(&cl->egress_alpha, tb[TCA_FABRIC_CLASS_EGRESS_ALPHA]);
	fabric_get_u64(&cl->kmin, tb[TCA_FABRIC_CLASS_KMIN]);
	fabric_get_u64(&cl->kmax, tb[TCA_FABRIC_CLASS_KMAX]);
	fabric_get_u32(&cl->pmax_ppb, tb[TCA_FABRIC_CLASS_PMAX_PPB]);
	fabric_get_u64(&cl->reserve, tb[TCA_FABRIC_CLASS_RESERVE]);
	fabric_get_u64(&cl->headroom, tb[TCA_FABRIC_CLASS_HEADROOM]);
	fabric_get_u32(&cl->alpha, tb[TCA_FABRIC_CLASS_ALPHA]);
	fabric_get_u64(&cl->xoff, tb[TCA_FABRIC_CLASS_XOFF]);
	fabric_get_u64(&cl->xon_offset, tb[TCA_FABRIC_CLASS_XON_OFFSET]);
	fabric_get_u64(&cl->watchdog_ns, tb[TCA_FABRIC_CLASS_WATCHDOG_NS]);
	fabric_get_u64(&cl->restore_ns, tb[TCA_FABRIC_CLASS_RESTORE_NS]);
	return 0;
}

static int fabric_check_class(const struct fabric_class_config *cl, struct netlink_ext_ack *extack)
{
	if (cl->kmin > cl->kmax || cl->kmax > U32_MAX) {
		NL_SET_ERR_MSG(extack, "fabric: ECN needs kmin <= kmax < 2^32");
		return -EINVAL;
	}
	if (cl->pmax_ppb > FABRIC_PPB) {
		NL_SET_ERR_MSG(extack, "fabric: pmax is above 1 (10^9 parts per 10^9)");
		return -EINVAL;
	}
	if (max3(cl->reserve, cl->headroom, cl->xoff) > U32_MAX || max(cl->xon_offset, cl->limit) > S64_MAX) {
		NL_SET_ERR_MSG(extack, "fabric: reserve, headroom and XOFF must be below 2^32 bytes");
		return -EINVAL;
	}
	if (cl->watchdog_ns > FABRIC_MAX_DELAY_NS || cl->restore_ns > FABRIC_MAX_DELAY_NS) {
		NL_SET_ERR_MSG(extack, "fabric: a watchdog's times must be at most 1,000 s");
		return -EINVAL;
	}
	if (max(cl->alpha, cl->egress_alpha) > 1U << 24) {
		NL_SET_ERR_MSG(extack, "fabric: alpha must be at most 2^16 (2^24 in Q8)");
		return -EINVAL;
	}
	return 0;
}

static int fabric_check(const struct fabric_config *cfg, struct netlink_ext_ack *extack)
{
	unsigned int i;
	int err;

	if (!cfg->rate || cfg->delay > FABRIC_MAX_DELAY_NS) {
		NL_SET_ERR_MSG(extack, "fabric: rate is required and above 0, delay is at most 1,000 s");
		return -EINVAL;
	}
	for (i = 0; i < FABRIC_DSCPS; i++)
		if (cfg->dscp[i] >= FABRIC_CLASSES) {
			NL_SET_ERR_MSG(extack, "fabric: the DSCP map names a class above 7");
			return -EINVAL;
		}
	for (i = 0; i < FABRIC_CLASSES; i++) {
		err = fabric_check_class(&cfg->class[i], extack);
		if (err)
			return err;
	}
	return 0;
}

static int fabric_parse(struct fabric_config *cfg, struct nlattr **tb, struct nlattr *opt,
			struct netlink_ext_ack *extack)
{
	struct nlattr *attr;
	int rem, err;

	fabric_get_u64(&cfg->rate, tb[TCA_FABRIC_RATE_BPS]);
	fabric_get_u64(&cfg->delay, tb[TCA_FABRIC_DELAY_NS]);
	fabric_get_u32(&cfg->overhead, tb[TCA_FABRIC_OVERHEAD]);
	fabric_get_u64(&cfg->limit, tb[TCA_FABRIC_LIMIT]);
	fabric_get_u8(&cfg->default_class, tb[TCA_FABRIC_DEFAULT_CLASS]);
	if (tb[TCA_FABRIC_PAUSE_QUANTA])
		cfg->quanta = nla_get_u16(tb[TCA_FABRIC_PAUSE_QUANTA]);
	if (tb[TCA_FABRIC_DSCP_MAP])
		nla_memcpy(cfg->dscp, tb[TCA_FABRIC_DSCP_MAP], sizeof(cfg->dscp));
	nla_for_each_nested(attr, opt, rem) {
		if (nla_type(attr) != TCA_FABRIC_CLASS)
			continue;
		err = fabric_parse_class(cfg, attr, extack);
		if (err)
			return err;
	}
	return fabric_check(cfg, extack);
}

/* Puts a checked configuration in force; called with the buffer's lock held and everything up to `now`. */
static void fabric_commit(struct fabric_port *port, const struct fabric_config *cfg, u64 now)
{
	struct fabric_buffer *b = port->buffer;
	struct fabric_class *cl;
	unsigned int c;

	if (cfg->rate != port->cfg.rate)
		port->rest = cfg->rate / 2;
	if (port->ingress)
		b->promised += fabric_promised(cfg) - fabric_promised(&port->cfg);
	port->cfg = *cfg;
	memset(port->level, 0, sizeof(port->level));
	for (c = 0; c < FABRIC_CLASSES; c++) {
		cl = &port->class[c];
		port->level[cfg->class[c].priority] |= BIT(c);
		if (!(cfg->class[c].flags & FABRIC_CLASS_PFC)) {
			fabric_settle_pause(cl, now);
			cl->paused_until = min(cl->paused_until, now);
			cl->stalled_ns = FABRIC_NEVER;
			port->stalled &= ~BIT(c);
		}
		if (!port->ingress)
			continue;
		fabric_set_reserve(b, port->ingress, c, cfg->class[c].reserve);
		if (port->ingress->xoff & BIT(c) && !(cfg->class[c].flags & FABRIC_CLASS_PFC))
			fabric_xon(port, c, now);
	}
}

static int fabric_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct nlattr *tb[TCA_FABRIC_MAX + 1];
	struct fabric_buffer *b = port->buffer;
	struct fabric_config *cfg;
	struct sk_buff *garbage;
	u64 bytes, now;
	unsigned int c, slot;
	int err;

	err = nla_parse(tb, TCA_FABRIC_MAX, nla_data(opt), nla_len(opt), fabric_policy, extack);
	if (err)
		return err;
	if (tb[TCA_FABRIC_BUFFER_ID] && nla_get_u32(tb[TCA_FABRIC_BUFFER_ID]) != b->id) {
		NL_SET_ERR_MSG(extack, "fabric: a port cannot change its buffer; delete the qdisc and add it again");
		return -EOPNOTSUPP;
	}
	cfg = kmemdup(&port->cfg, sizeof(port->cfg), GFP_KERNEL);
	if (!cfg)
		return -ENOMEM;
	err = fabric_parse(cfg, tb, opt, extack);
	if (err)
		goto out;

	spin_lock_bh(&b->lock);
	now = ktime_get_ns();
	fabric_run(b, now);
	bytes = b->bytes;
	fabric_get_u64(&bytes, tb[TCA_FABRIC_BUFFER_BYTES]);
	if (b->id && (bytes > S64_MAX >> 24 ||
		      b->promised - fabric_promised(&port->cfg) + fabric_promised(cfg) > bytes)) {
		NL_SET_ERR_MSG(extack, "fabric: the buffer cannot hold all reserves and headrooms of its ports");
		err = -EINVAL;
	} else {
		b->bytes = bytes;
		fabric_get_u64(&port->random, tb[TCA_FABRIC_SEED]);
		fabric_commit(port, cfg, now);
		for (slot = 1; b->xoffs && slot <= FABRIC_MAX_PORTS && b->ingress[slot]; slot++)
			for (c = 0; c < FABRIC_CLASSES; c++)
				fabric_check_resume(b, b->ingress[slot], c, now);
		fabric_reschedule(port);
		fabric_run(b, now);
		fabric_arm(port, now, false);
	}
	garbage = fabric_take_garbage(b);
	spin_unlock_bh(&b->lock);
	kfree_skb_list(garbage);
out:
	kfree(cfg);
	return err;
}

static void fabric_defaults(struct fabric_port *port)
{
	struct fabric_config *cfg = &port->cfg;
	unsigned int c;

	cfg->quanta = U16_MAX;
	port->next_ns = FABRIC_NEVER;
	port->urgent_ns = FABRIC_NEVER;
	port->random = 1;
	port->level[0] = 0xff;
	for (c = 0; c < FABRIC_CLASSES; c++) {
		cfg->class[c] = fabric_default_class;
		port->class[c].stalled_ns = FABRIC_NEVER;
	}
}

static int fabric_listen(struct fabric_port *port, struct netlink_ext_ack *extack)
{
	struct net_device *dev = qdisc_dev(port->sch);
	int err;

	port->net = dev_net(dev);
	port->hook.hook = fabric_receive;
	port->hook.priv = port;
	port->hook.dev = dev;
	port->hook.pf = NFPROTO_NETDEV;
	port->hook.hooknum = NF_NETDEV_INGRESS;
	port->hook.priority = INT_MIN;
	err = nf_register_net_hook(port->net, &port->hook);
	if (err) {
		NL_SET_ERR_MSG(extack, "fabric: no ingress hook; the kernel needs CONFIG_NETFILTER_INGRESS");
		port->hook.hook = NULL;
	}
	return err;
}

static int fabric_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct nlattr *tb[TCA_FABRIC_MAX + 1];
	struct fabric_buffer *b;
	u32 id = 0;
	int err;

	port->sch = sch;
	fabric_defaults(port);
	qdisc_watchdog_init(&port->watchdog, sch);
	if (!opt || sch->parent != TC_H_ROOT) {
		NL_SET_ERR_MSG(extack, "fabric: a port is a root qdisc and needs at least a rate");
		return -EINVAL;
	}
	err = nla_parse(tb, TCA_FABRIC_MAX, nla_data(opt), nla_len(opt), fabric_policy, extack);
	if (err)
		return err;
	fabric_get_u32(&id, tb[TCA_FABRIC_BUFFER_ID]);
	mutex_lock(&fabric_buffers_lock);
	b = fabric_buffer_find(dev_net(qdisc_dev(sch)), id);
	err = b ? fabric_join(port, b) : -ENOMEM;
	if (err && b && !b->ports) {
		list_del(&b->list);
		fabric_buffer_free(&b->rcu);
	}
	mutex_unlock(&fabric_buffers_lock);
	if (err) {
		NL_SET_ERR_MSG(extack, "fabric: the buffer has no room for another port");
		return err;
	}
	err = fabric_change(sch, opt, extack);
	return err ?: fabric_listen(port, extack);
}

static void fabric_destroy(struct Qdisc *sch)
{
	struct fabric_port *port = qdisc_priv(sch);

	if (port->hook.hook)
		nf_unregister_net_hook(port->net, &port->hook);
	if (port->buffer)
		fabric_leave(port);
	qdisc_watchdog_cancel(&port->watchdog);
}

/* ---- reading ---- */

static int fabric_dump_class(struct sk_buff *skb, const struct fabric_class_config *cl, u8 index)
{
	struct nlattr *nest = nla_nest_start(skb, TCA_FABRIC_CLASS);

	if (!nest ||
	    nla_put_u8(skb, TCA_FABRIC_CLASS_INDEX, index) ||
	    nla_put_u32(skb, TCA_FABRIC_CLASS_FLAGS, cl->flags) ||
	    nla_put_u8(skb, TCA_FABRIC_CLASS_PRIORITY, cl->priority) ||
	    nla_put_u32(skb, TCA_FABRIC_CLASS_QUANTUM, cl->quantum) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_LIMIT, cl->limit, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u32(skb, TCA_FABRIC_CLASS_EGRESS_ALPHA, cl->egress_alpha) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_KMIN, cl->kmin, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_KMAX, cl->kmax, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u32(skb, TCA_FABRIC_CLASS_PMAX_PPB, cl->pmax_ppb) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_RESERVE, cl->reserve, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_HEADROOM, cl->headroom, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u32(skb, TCA_FABRIC_CLASS_ALPHA, cl->alpha) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_XOFF, cl->xoff, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_XON_OFFSET, cl->xon_offset, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_WATCHDOG_NS, cl->watchdog_ns, TCA_FABRIC_CLASS_PAD) ||
	    nla_put_u64_64bit(skb, TCA_FABRIC_CLASS_RESTORE_NS, cl->restore_ns, TCA_FABRIC_CLASS_PAD))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int fabric_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct fabric_buffer *b = port->buffer;
	struct fabric_config *cfg = &port->cfg;
	struct nlattr *nest;
	unsigned int c;
	int err;

	nest = nla_nest_start_noflag(skb, TCA_OPTIONS);
	if (!nest)
		return -EMSGSIZE;
	spin_lock_bh(&b->lock);
	err = nla_put_u64_64bit(skb, TCA_FABRIC_RATE_BPS, cfg->rate, TCA_FABRIC_PAD) ||
	      nla_put_u64_64bit(skb, TCA_FABRIC_DELAY_NS, cfg->delay, TCA_FABRIC_PAD) ||
	      nla_put_u32(skb, TCA_FABRIC_OVERHEAD, cfg->overhead) ||
	      nla_put_u64_64bit(skb, TCA_FABRIC_LIMIT, cfg->limit, TCA_FABRIC_PAD) ||
	      nla_put(skb, TCA_FABRIC_DSCP_MAP, sizeof(cfg->dscp), cfg->dscp) ||
	      nla_put_u8(skb, TCA_FABRIC_DEFAULT_CLASS, cfg->default_class) ||
	      nla_put_u32(skb, TCA_FABRIC_BUFFER_ID, b->id) ||
	      nla_put_u64_64bit(skb, TCA_FABRIC_BUFFER_BYTES, b->bytes, TCA_FABRIC_PAD) ||
	      nla_put_u16(skb, TCA_FABRIC_PAUSE_QUANTA, cfg->quanta);
	for (c = 0; !err && c < FABRIC_CLASSES; c++)	/* short dumps: ports are read often */
		if (memcmp(&cfg->class[c], &fabric_default_class, sizeof(fabric_default_class)))
			err = fabric_dump_class(skb, &cfg->class[c], c);
	spin_unlock_bh(&b->lock);
	if (err) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	return nla_nest_end(skb, nest);
}

static void fabric_read_class(struct fabric_port *port, unsigned int c, struct fabric_class_xstats *to, u64 now)
{
	struct fabric_class *cl = &port->class[c];
	struct fabric_ingress *in = port->ingress;

	fabric_settle_storm(port, c, now);
	fabric_settle_pause(cl, now);
	*to = cl->x;
	to->state = (cl->paused_until > now ? FABRIC_STATE_PAUSED : 0) | (cl->storm ? FABRIC_STATE_STORM : 0);
	if (!in)
		return;
	to->state |= in->xoff & BIT(c) ? FABRIC_STATE_XOFF : 0;
	to->ingress_bytes = in->bytes[c];
	to->headroom_bytes = in->headroom[c];
	to->headroom_peak_bytes = in->headroom_peak[c];
}

static bool fabric_class_used(const struct fabric_port *port, unsigned int c)
{
	const struct fabric_class_xstats *x = &port->class[c].x;
	const struct fabric_ingress *in = port->ingress;

	return x->enqueued_packets || x->pauses_received || x->resumes_received || x->pauses_sent ||
	       (in && (in->bytes[c] || in->headroom[c]));
}

/* A dump reads all ports of a buffer in turn: the first one starts a new peak, the others tell the same. */
static bool fabric_starts_shared_peak(const struct fabric_port *port)
{
	unsigned int first = 1;

	if (!port->buffer->id)
		return false;
	while (!port->buffer->ingress[first]->port)
		first++;
	return port->slot == first;
}

static u64 fabric_shared_peak(const struct fabric_port *port)
{
	const struct fabric_buffer *b = port->buffer;

	if (!b->id)
		return 0;
	return fabric_starts_shared_peak(port) ? b->shared_peak : max(b->shared_peak, b->shared_peak_before);
}

static void fabric_forget_peaks(struct fabric_port *port)
{
	unsigned int c;

	port->x.peak_bytes = port->x.queue_bytes;
	if (fabric_starts_shared_peak(port)) {
		port->buffer->shared_peak_before = port->buffer->shared_peak;
		port->buffer->shared_peak = port->buffer->shared;
	}
	for (c = 0; c < FABRIC_CLASSES; c++) {
		struct fabric_class *cl = &port->class[c];

		cl->x.peak_packets = cl->x.queue_packets;
		cl->x.peak_bytes = cl->x.queue_bytes;
		if (port->ingress)
			port->ingress->headroom_peak[c] = port->ingress->headroom[c];
	}
}

/*
 * Whether all of a message that tells the statistics will fit: they go in twice, with less than FABRIC_REST of others.
 * One that does not fit is thrown away and told again in the next buffer: the peaks must still be there.
 */
#define FABRIC_REST 512
static bool fabric_fits(const struct gnet_dump *d, size_t length)
{
	return skb_tailroom(d->skb) >= 2 * nla_total_size_64bit(length) + FABRIC_REST;
}

static int fabric_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct fabric_port *port = qdisc_priv(sch);
	struct fabric_buffer *b = port->buffer;
	struct fabric_class_xstats *to;
	struct fabric_xstats *x;
	struct sk_buff *garbage;
	unsigned int c;
	u64 now;
	int err;

	x = kmalloc(sizeof(*x) + FABRIC_CLASSES * sizeof(*to), GFP_ATOMIC);
	if (!x)
		return -ENOMEM;
	to = (struct fabric_class_xstats *)(x + 1);
	spin_lock_bh(&b->lock);
	now = ktime_get_ns();
	fabric_run(b, now);
	*x = port->x;
	x->version = FABRIC_XSTATS_VERSION;
	x->class_mask = 0;
	x->now_ns = now;
	x->buffer_id = b->id;
	x->buffer_ports = b->ports;
	x->pool_bytes = b->id ? b->bytes - b->promised : 0;
	x->shared_bytes = b->shared;
	x->shared_peak_bytes = fabric_shared_peak(port);
	for (c = 0; c < FABRIC_CLASSES; c++)
		if (fabric_class_used(port, c)) {
			x->class_mask |= BIT(c);
			fabric_read_class(port, c, to++, now);
		}
	if (fabric_fits(d, (u8 *)to - (u8 *)x))
		fabric_forget_peaks(port);
	fabric_arm(port, now, false);
	garbage = fabric_take_garbage(b);
	spin_unlock_bh(&b->lock);
	kfree_skb_list(garbage);
	err = gnet_stats_copy_app(d, x, (u8 *)to - (u8 *)x);
	kfree(x);
	return err;
}

static struct Qdisc_ops fabric_qdisc_ops __read_mostly = {
	.id		= "fabric",
	.priv_size	= sizeof(struct fabric_port),
	.enqueue	= fabric_enqueue,
	.dequeue	= fabric_dequeue,
	.peek		= qdisc_peek_dequeued,
	.init		= fabric_init,
	.reset		= fabric_reset,
	.destroy	= fabric_destroy,
	.change		= fabric_change,
	.dump		= fabric_dump,
	.dump_stats	= fabric_dump_stats,
	.owner		= THIS_MODULE,
};
#ifdef MODULE_ALIAS_NET_SCH
MODULE_ALIAS_NET_SCH("fabric");
#else
MODULE_ALIAS("sch_fabric");
#endif

static int __init fabric_module_init(void)
{
	return register_qdisc(&fabric_qdisc_ops);
}

static void __exit fabric_module_exit(void)
{
	unregister_qdisc(&fabric_qdisc_ops);
	rcu_barrier();	/* fabric_buffer_free() is ours */
}

module_init(fabric_module_init);
module_exit(fabric_module_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Port of a shared-buffer switch: exact serialisation, ECN, PFC");
