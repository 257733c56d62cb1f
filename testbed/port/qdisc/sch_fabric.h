/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The user's side of the `fabric` queueing discipline: one instance is one egress port of a switch or of a host.
 *
 * Times are nanoseconds, sizes are bytes of frame (Ethernet header included, FCS not), rates are bit/s.
 * An attribute that is absent from a change leaves its setting as it is; a dump leaves out the classes that are as
 * they are in a new port: all zero but for a quantum of 9216.
 */
#ifndef _UAPI_SCH_FABRIC_H
#define _UAPI_SCH_FABRIC_H

#include <linux/types.h>

#define FABRIC_CLASSES		8
#define FABRIC_DSCPS		64
#define FABRIC_XSTATS_VERSION	1

enum {
	TCA_FABRIC_UNSPEC,
	TCA_FABRIC_PAD,
	TCA_FABRIC_RATE_BPS,		/* u64; required when the port is created */
	TCA_FABRIC_DELAY_NS,		/* u64; propagation, added once after serialisation */
	TCA_FABRIC_OVERHEAD,		/* u32; bytes per frame on the wire beyond the frame (preamble, FCS, gap: 24) */
	TCA_FABRIC_LIMIT,		/* u64; bytes that may wait in all classes together; 0 = no limit */
	TCA_FABRIC_DSCP_MAP,		/* 64 x u8; class of each DSCP */
	TCA_FABRIC_DEFAULT_CLASS,	/* u8; class of what is not IP */
	TCA_FABRIC_SEED,		/* u64; state of the marking generator */
	TCA_FABRIC_BUFFER_ID,		/* u32; shared buffer to join, 0 = none; only when the port is created */
	TCA_FABRIC_BUFFER_BYTES,	/* u64; size of that buffer: one value for all its ports, the last one counts */
	TCA_FABRIC_PAUSE_QUANTA,	/* u16; duration put into pause frames, in units of 512 bit times */
	TCA_FABRIC_CLASS,		/* nested, once for each class that is set */
	__TCA_FABRIC_MAX
};
#define TCA_FABRIC_MAX (__TCA_FABRIC_MAX - 1)

enum {
	TCA_FABRIC_CLASS_UNSPEC,
	TCA_FABRIC_CLASS_PAD,
	TCA_FABRIC_CLASS_INDEX,		/* u8; 0..7, required; also the PFC priority */
	TCA_FABRIC_CLASS_FLAGS,		/* u32; FABRIC_CLASS_* */
	TCA_FABRIC_CLASS_PRIORITY,	/* u8; 0..7, the higher is served first */
	TCA_FABRIC_CLASS_QUANTUM,	/* u32; wire bytes a turn among classes of equal priority */
	TCA_FABRIC_CLASS_LIMIT,		/* u64; bytes that may wait in this class; 0 = no limit */
	TCA_FABRIC_CLASS_EGRESS_ALPHA,	/* u32; Q8: a lossy class may hold alpha x free shared bytes; 0 = no limit */
	TCA_FABRIC_CLASS_KMIN,		/* u64; bytes, or packets with FABRIC_CLASS_ECN_PACKETS */
	TCA_FABRIC_CLASS_KMAX,		/* u64; equal to kmin: a step */
	TCA_FABRIC_CLASS_PMAX_PPB,	/* u32; probability at kmax in parts per 10^9 */
	TCA_FABRIC_CLASS_RESERVE,	/* u64; bytes of the buffer kept for this class of this ingress port */
	TCA_FABRIC_CLASS_HEADROOM,	/* u64; bytes kept for what still arrives after XOFF */
	TCA_FABRIC_CLASS_ALPHA,		/* u32; Q8: this ingress may use alpha x free shared bytes; 0 = see xoff */
	TCA_FABRIC_CLASS_XOFF,		/* u64; fixed threshold in shared bytes when alpha is 0; 0 = all that is free */
	TCA_FABRIC_CLASS_XON_OFFSET,	/* u64; XON when the shared bytes are this far below the threshold */
	TCA_FABRIC_CLASS_WATCHDOG_NS,	/* u64; longest pause with packets waiting; 0 = no watchdog */
	TCA_FABRIC_CLASS_RESTORE_NS,	/* u64; time without pause after which a fired watchdog lets go */
	__TCA_FABRIC_CLASS_MAX
};
#define TCA_FABRIC_CLASS_MAX (__TCA_FABRIC_CLASS_MAX - 1)

#define FABRIC_CLASS_PFC		(1U << 0)	/* lossless: obeys pauses, and sends them where a buffer is shared */
#define FABRIC_CLASS_ECN		(1U << 1)	/* marks */
#define FABRIC_CLASS_ECN_PACKETS	(1U << 2)	/* kmin and kmax count packets */
#define FABRIC_CLASS_ECN_ENQUEUE	(1U << 3)	/* mark on arrival instead of when serialisation begins */
#define FABRIC_CLASS_EXEMPT		(1U << 4)	/* not charged to the shared buffer (control traffic) */
#define FABRIC_CLASS_STORM_FORWARD	(1U << 5)	/* a fired watchdog ignores pauses instead of dropping the class */
#define FABRIC_CLASS_FLAGS		((1U << 6) - 1)

enum {
	FABRIC_DROP_EGRESS,		/* limit of the class or the port, or egress alpha */
	FABRIC_DROP_SHARED,		/* ingress threshold, or the shared pool is used up */
	FABRIC_DROP_HEADROOM,		/* lossless class, headroom full */
	FABRIC_DROP_WATCHDOG,		/* class under a fired watchdog */
	FABRIC_DROP_FLUSH,		/* the port went down */
	FABRIC_DROP_CAUSES
};

#define FABRIC_STATE_PAUSED	(1U << 0)	/* told not to send by the far end */
#define FABRIC_STATE_STORM	(1U << 1)	/* the watchdog has fired and not let go */
#define FABRIC_STATE_XOFF	(1U << 2)	/* has told the far end not to send */

/*
 * TCA_STATS_APP: the header, then one fabric_class_xstats for every bit of class_mask, lowest first.
 * At any moment, in packets and in bytes: enqueued = sent + sum(dropped) + queue, and for the port
 * sum(sent) + control = delivered + wire + wire_flushed.
 * A peak is the highest value since the last read; reading sets it to the present value.
 */
struct fabric_xstats {
	__u32	version;
	__u32	class_mask;		/* classes that follow: those that have ever been used */
	__u64	now_ns;			/* CLOCK_MONOTONIC of this reading */
	__u64	queue_packets;		/* waiting, all classes */
	__u64	queue_bytes;
	__u64	peak_bytes;
	__u64	wire_packets;		/* being serialised or propagating */
	__u64	wire_bytes;
	__u64	delivered_packets;	/* handed to the far end */
	__u64	delivered_bytes;
	__u64	wire_flushed_packets;	/* lost on the wire when the port went down */
	__u64	wire_flushed_bytes;
	__u64	control_packets;	/* PFC frames that left */
	__u64	control_bytes;
	__u64	control_ignored;	/* MAC control frames received that no class obeys */
	__u64	control_failed;		/* PFC frames that could not be allocated */
	__u64	busy_ns;		/* time spent serialising */
	__u32	buffer_id;
	__u32	buffer_ports;
	__u64	pool_bytes;		/* shared pool: buffer less all reserves and headrooms */
	__u64	shared_bytes;		/* of which in use */
	__u64	shared_peak_bytes;	/* since the buffer's first port was last read */
};

struct fabric_class_xstats {
	__u64	enqueued_packets;	/* offered to the class, drops included */
	__u64	enqueued_bytes;
	__u64	sent_packets;		/* serialisation has begun */
	__u64	sent_bytes;
	__u64	dropped_packets[FABRIC_DROP_CAUSES];
	__u64	dropped_bytes[FABRIC_DROP_CAUSES];
	__u64	marked;			/* ECT made CE by this port */
	__u64	unmarkable;		/* would have been marked, is not ECT: sent as it is */
	__u64	queue_packets;
	__u64	queue_bytes;
	__u64	peak_packets;
	__u64	peak_bytes;
	__u64	wait_ns;		/* summed waiting time of all packets sent */
	__u64	pauses_sent;		/* refreshes included */
	__u64	resumes_sent;
	__u64	pauses_received;
	__u64	resumes_received;
	__u64	paused_ns;
	__u64	watchdog_fired;
	__u64	watchdog_restored;
	__u64	ingress_bytes;		/* came in here and wait somewhere: reserve and shared */
	__u64	headroom_bytes;		/* came in here and wait somewhere: headroom */
	__u64	headroom_peak_bytes;
	__u32	state;			/* FABRIC_STATE_* */
	__u32	pad;
};

#endif
