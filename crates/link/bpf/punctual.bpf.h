/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the program shares with user space (crates/link/src/xdp) and with the wire (crates/proto/src/wire/header.rs).
 * A test sends packets of the protocol's own writer through the program, so a difference between the two fails a test. */
#ifndef PUNCTUAL_BPF_H
#define PUNCTUAL_BPF_H

#include "kernel.h"

/* Wire format: a data packet behind its UDP header, little-endian. */
#define WIRE_VERSION 2
#define WIRE_GUARANTEED 1
#define WIRE_BEST_EFFORT 2
#define WIRE_DEMOTED 1
#define WIRE_UNPROMISED 2 /* only with WIRE_DEMOTED */

struct wire {
	__u8 version;
	__u8 kind;
	__u16 flags;
	__u32 source;
	__u32 channel;
	__u32 cookie;
	__u64 epoch;
	__u64 message;
	__u16 fragment;
	__u16 fragments;
	__u32 message_bytes;
	__s64 slack_ns;
	__u64 logical_arrival_ns;
	__u16 payload_bytes;
	__u16 age;
	__u32 end; /* destination of best effort, clock error of a channel */
};

_Static_assert(sizeof(struct wire) == 64, "the header has 64 bytes");

/* Signalling behind its UDP header: the envelope that every packet begins with (crates/proto/src/seal.rs). */
#define RTCOP_VERSION 10

struct envelope {
	__u8 version;
	__u64 epoch;
	__u32 session;
	__u64 number;
	__u64 seal;
} __attribute__((packed));

_Static_assert(sizeof(struct envelope) == 29, "the envelope has 29 bytes");

/* Stream, the most urgent first. */
enum stream {
	SIGNALLING,
	LOW_LATENCY,
	GUARANTEED,
	BEST_EFFORT,
	STREAMS,
};

/* StreamDrops. */
enum reason {
	POLICED,
	MALFORMED,
	UNKNOWN,
	WRONG_COOKIE,
	NO_BUFFER,
	EXPIRED,
	REPLAYED,
	FRAGMENTED,
	REASONS,
};

#define QUEUES_MAX 64
#define STREAM_ACCOUNTS (QUEUES_MAX * STREAMS)
#define FILTERS_MAX 65536
#define FLOWS_MAX 65536
#define LISTENERS_MAX 4096
/* Accounts behind those of paths: of ICMP errors, of listeners, of flows, in this order. */
#define FLOW_ACCOUNTS (FLOWS_MAX + LISTENERS_MAX + 1)
#define NO_PATH 0xffffffff

/* Constants of a loaded program: the verifier folds them into its code. Addresses and ports in network order, an IPv4
 * address in the first word. */
struct config {
	__u32 local[4];
	__u32 peer[4];
	__u16 signalling_port;
	__u16 data_port;
	__u16 peer_signalling_port;
	__u16 peer_data_port;
	__u32 packet_bytes_max;
	__u32 is_ipv6;
	__u32 ip_bytes_max; /* longest IP packet of a flow */
};

/* A token bucket by its theoretical arrival time (GCRA): one word of state, so that CPUs need no lock. */
struct bucket {
	__u64 interval_ns; /* for each packet; 0: no bound */
	__u64 depth_ns;    /* packets at once, times interval_ns */
	__u64 full_at_ns;  /* when it is full again */
};

/* Buckets: one of each stream, and one of signalling without the neighbour's seal. */
#define STRANGERS STREAMS
#define BUCKETS (STREAMS + 1)

/* State of the neighbour: neighbour.rs. Packets of one flow come in on one queue, so one CPU writes this. */
struct neighbour {
	__u64 key[2];
	__u64 is_known;
	__u64 next; /* one more than the largest number so far */
	__u64 seen; /* bit i: next - 1 - i was seen */
};

struct path {
	__u32 node;
	__u32 channel;
	__u64 epoch;
};

struct filter {
	struct bucket bucket;
	__s64 slack_ns_min;
	__u32 cookie;
	__u32 packet_bytes_max;
	__u32 account;
	__u32 stream;
};

/* A flow: flows.rs. Addresses and ports in network order, an IPv4 address in the first word. */
struct flow {
	__u32 local[4];
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
	__u8 protocol;
	__u8 is_ipv6;
	__u16 pad;
};

_Static_assert(sizeof(struct flow) == 40, "no gaps: a key is compared byte by byte");

struct listener {
	__u32 local[4];
	__u16 port;
	__u8 protocol;
	__u8 is_ipv6;
};

_Static_assert(sizeof(struct listener) == 20, "no gaps: a key is compared byte by byte");

/* How packets of a flow or of a listener, or ICMP errors, are let in. */
struct inlet {
	struct bucket bucket;
	__u32 account;
	__u32 stream;
};

/* Accounts: accounts.rs tells the protocol. */
struct taken {
	__u32 taken;         /* written here */
	__u32 limit;         /* written by user space */
	__u32 returned_seen; /* written here */
	__u32 pad;
};

struct returned {
	__u32 returned; /* written by user space */
	__u32 pad;
};

/* Over the first bytes of a steered frame, or in front of the frame of an IP packet of a flow: tag.rs. */
struct tag {
	__u64 received_ns;
	__u32 stream_count;
	__u32 path_count;
	__u32 path;
	__u16 offset;
	__u16 bytes;
};

_Static_assert(sizeof(struct tag) == 24, "the tag fits where Ethernet and IP headers were");

#endif
