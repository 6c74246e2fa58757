/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Flows: TCP that this host runs itself, with any host.
 *
 * A packet of a flow goes to the flow's stream; one of no flow, to an address and port where we listen, to the listener's
 * stream; so does an ICMP error that quotes a segment of a flow, to where errors go. The tag is in front of the frame,
 * which stays whole. Everything else is the kernel's.
 *
 * Packets are recognised by address, protocol and ports alone. Then:
 * - IPv4 options: steered like any other, the receiver skips them.
 * - IPv6 extension headers in front of TCP: dropped as malformed. The kernel would find TCP behind them, and reset.
 * - The first fragment of a segment: dropped and counted. Later ones have no ports and go to the kernel, which never
 *   completes them without the first.
 * Segments without options are read where they lie. Bytes at variable offsets come by a helper, which is slower: pointers
 * with variable offsets would need CAP_PERFMON. */
#ifndef PUNCTUAL_FLOWS_H
#define PUNCTUAL_FLOWS_H

#define TCP 6
#define TCP_BYTES_MIN 20
#define ICMP 1
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6 58
#define ICMPV6_ERROR_FIRST 1
#define ICMPV6_ERROR_LAST 4
#define ICMP_HEADER_BYTES 8

#define IPV6_HOP_BY_HOP 0
#define IPV6_ROUTING 43
#define IPV6_FRAGMENT 44
#define IPV6_DESTINATION 60
#define IPV6_FRAGMENT_OFFSET 0xfff8
#define IPV6_MORE_FRAGMENTS 1
/* RFC 8200, 4.1, lists no more that may stand in front of TCP. What has more goes to the kernel. */
#define EXTENSIONS_MAX 4

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FLOWS_MAX);
	__type(key, struct flow);
	__type(value, struct inlet);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LISTENERS_MAX);
	__type(key, struct listener);
	__type(value, struct inlet);
} listeners SEC(".maps");

/* Where ICMP errors go. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inlet);
} errors SEC(".maps");

/* Whether there are flows or listeners: without any, the kernel's packets pay for no look-up. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} known SEC(".maps");

/* What may be between the IP header and the transport header. */
enum shape {
	WHOLE,
	EXTENDED,
	FIRST_FRAGMENT,
};


/* Verdict of a part that leaves the packet to the next one. */
#define OTHERWISE -1

struct ports {
	__u16 source;
	__u16 destination;
};

static __always_inline int has_flows(void)
{
	__u32 first = 0;
	__u32 *is_any = bpf_map_lookup_elem(&known, &first);

	return is_any && *is_any;
}

/* Sends a packet to the ring of `inlet`, with its tag in front. A function of its own, as `steer`. */
static __attribute__((noinline)) int steer_flow(struct xdp_md *ctx, struct inlet *inlet, __u32 end)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 account = inlet->account;
	struct charged charged;
	struct tag *tag;

	if (end > bpf_xdp_get_buff_len(ctx) || end - sizeof(struct ethernet) > config.ip_bytes_max)
		return drop(MALFORMED);
	if (!conforms(&inlet->bucket, now))
		return drop(POLICED);
	if (!find_buffer(ctx, inlet->stream, account, &charged) || bpf_xdp_adjust_head(ctx, -(int)sizeof(*tag)))
		return drop(NO_BUFFER);
	tag = (void *)(long)ctx->data;
	if ((void *)(tag + 1) > (void *)(long)ctx->data_end)
		return drop(NO_BUFFER);
	write_tag(tag, &charged, account, now,
		  EXTENT(sizeof(*tag) + sizeof(struct ethernet), end - sizeof(struct ethernet)));
	return XDP_REDIRECT;
}

static __always_inline struct inlet *listener_of(const struct flow *flow)
{
	struct listener key;

	key.local[0] = flow->local[0];
	key.local[1] = flow->local[1];
	key.local[2] = flow->local[2];
	key.local[3] = flow->local[3];
	key.port = flow->local_port;
	key.protocol = flow->protocol;
	key.is_ipv6 = flow->is_ipv6;
	return bpf_map_lookup_elem(&listeners, &key);
}

/* What is looked at of a TCP header. */
struct tcp {
	struct ports ports;
	__u32 numbers[2];
	__u8 words;
	__u8 flags;
};

_Static_assert(sizeof(struct tcp) == 16, "two bytes more than what is looked at, and less than a header");

/* Where a segment ends, how long its header is in words, and its shape, in one argument: at most five can be passed. */
#define SEGMENT(end, words, shape) ((__u32)(end) << 8 | (__u32)(words) << 4 | (__u32)(shape))

/* A segment whose TCP header is at `offset`. */
static __attribute__((noinline)) int classify_segment(struct xdp_md *ctx, const struct flow *flow, __u32 offset,
						      __u32 segment)
{
	__u32 end = segment >> 8, words = segment >> 4 & 15;
	enum shape shape = segment & 15;
	struct inlet *inlet = bpf_map_lookup_elem(&flows, flow);

	if (!inlet)
		inlet = listener_of(flow);
	if (!inlet)
		return XDP_PASS;
	if (shape == FIRST_FRAGMENT)
		return drop(FRAGMENTED);
	if (shape == EXTENDED || words < TCP_BYTES_MIN / 4 || offset + words * 4 > end)
		return drop(MALFORMED);
	return steer_flow(ctx, inlet, end);
}

/* The same by the helper, wherever the header lies; `flow` lacks its ports. */
static __attribute__((noinline)) int classify_tcp(struct xdp_md *ctx, struct flow *flow, __u32 offset, __u32 end,
						  enum shape shape)
{
	struct ports ports;
	__u8 words;

	if (bpf_xdp_load_bytes(ctx, offset, &ports, sizeof(ports)))
		return XDP_PASS;
	/* Cut before that: malformed if it is ours. */
	if (bpf_xdp_load_bytes(ctx, offset + __builtin_offsetof(struct tcp, words), &words, 1))
		words = 0;
	flow->local_port = ports.destination;
	flow->remote_port = ports.source;
	return classify_segment(ctx, flow, offset, SEGMENT(end, words >> 4, shape));
}

/* An ICMP error; `flow` is the one that it quotes. */
static __attribute__((noinline)) int classify_error(struct xdp_md *ctx, struct flow *flow, __u32 offset, __u32 end)
{
	struct inlet *inlet;
	struct ports ports;
	__u32 first = 0;

	if (bpf_xdp_load_bytes(ctx, offset, &ports, sizeof(ports)))
		return XDP_PASS;
	flow->local_port = ports.source;
	flow->remote_port = ports.destination;
	flow->protocol = TCP;
	if (!bpf_map_lookup_elem(&flows, flow))
		return XDP_PASS;
	inlet = bpf_map_lookup_elem(&errors, &first);
	return inlet ? steer_flow(ctx, inlet, end) : drop(NO_BUFFER);
}

static __attribute__((noinline)) int classify_icmp(struct xdp_md *ctx, __u32 offset, __u32 end)
{
	struct flow flow = {};
	struct ipv4 quoted;
	__u8 type;

	if (bpf_xdp_load_bytes(ctx, offset, &type, 1) ||
	    (type != ICMP_UNREACHABLE && type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETER_PROBLEM))
		return XDP_PASS;
	offset += ICMP_HEADER_BYTES;
	if (bpf_xdp_load_bytes(ctx, offset, &quoted, sizeof(quoted)))
		return XDP_PASS;
	if (quoted.version_and_words < IPV4_WITHOUT_OPTIONS || quoted.version_and_words >> 4 != 4 ||
	    quoted.protocol != TCP || network16(quoted.fragment) & IPV4_FRAGMENT_OFFSET)
		return XDP_PASS;
	flow.local[0] = quoted.source;
	flow.remote[0] = quoted.destination;
	return classify_error(ctx, &flow, offset + (quoted.version_and_words & 15) * 4, end);
}

static __attribute__((noinline)) int classify_icmpv6(struct xdp_md *ctx, __u32 offset, __u32 end)
{
	struct flow flow = {};
	struct ipv6 quoted;
	__u8 type;

	if (bpf_xdp_load_bytes(ctx, offset, &type, 1) || type < ICMPV6_ERROR_FIRST || type > ICMPV6_ERROR_LAST)
		return XDP_PASS;
	offset += ICMP_HEADER_BYTES;
	if (bpf_xdp_load_bytes(ctx, offset, &quoted, sizeof(quoted)) || quoted.next_header != TCP)
		return XDP_PASS;
	__builtin_memcpy(flow.local, quoted.source, sizeof(flow.local));
	__builtin_memcpy(flow.remote, quoted.destination, sizeof(flow.remote));
	flow.is_ipv6 = 1;
	return classify_error(ctx, &flow, offset + sizeof(quoted), end);
}

/* Segments as nearly all are: without options, whole, their headers in one piece. */
static __attribute__((noinline)) int classify_plain_ipv4(struct xdp_md *ctx)
{
	const struct ipv4 *ip = (void *)(long)ctx->data + sizeof(struct ethernet);
	const struct tcp *tcp = (void *)(ip + 1);
	struct flow flow = {};

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end || ip->version_and_words != IPV4_WITHOUT_OPTIONS ||
	    ip->protocol != TCP || ip->fragment & network16(IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
		return OTHERWISE;
	flow.local[0] = ip->destination;
	flow.remote[0] = ip->source;
	flow.local_port = tcp->ports.destination;
	flow.remote_port = tcp->ports.source;
	flow.protocol = TCP;
	return classify_segment(ctx, &flow, sizeof(struct ethernet) + sizeof(*ip),
				SEGMENT(sizeof(struct ethernet) + network16(ip->bytes), tcp->words >> 4, WHOLE));
}

static __attribute__((noinline)) int classify_plain_ipv6(struct xdp_md *ctx)
{
	const struct ipv6 *ip = (void *)(long)ctx->data + sizeof(struct ethernet);
	const struct tcp *tcp = (void *)(ip + 1);
	struct flow flow;

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end || *(const __u8 *)ip >> 4 != 6 ||
	    ip->next_header != TCP)
		return OTHERWISE;
	__builtin_memcpy(flow.local, ip->destination, sizeof(flow.local));
	__builtin_memcpy(flow.remote, ip->source, sizeof(flow.remote));
	flow.local_port = tcp->ports.destination;
	flow.remote_port = tcp->ports.source;
	flow.protocol = TCP;
	flow.is_ipv6 = 1;
	flow.pad = 0;
	return classify_segment(ctx, &flow, sizeof(struct ethernet) + sizeof(*ip),
				SEGMENT(sizeof(struct ethernet) + sizeof(*ip) + network16(ip->payload_bytes),
					tcp->words >> 4, WHOLE));
}

static __attribute__((noinline)) int classify_foreign_ipv4(struct xdp_md *ctx)
{
	struct flow flow = {};
	struct ipv4 ip;
	__u32 offset = sizeof(struct ethernet), end;
	__u16 fragment;

	if (bpf_xdp_load_bytes(ctx, offset, &ip, sizeof(ip)) || ip.version_and_words < IPV4_WITHOUT_OPTIONS ||
	    ip.version_and_words >> 4 != 4)
		return XDP_PASS;
	fragment = network16(ip.fragment);
	if (fragment & IPV4_FRAGMENT_OFFSET)
		return XDP_PASS;
	end = offset + network16(ip.bytes);
	offset += (ip.version_and_words & 15) * 4;
	if (ip.protocol == ICMP)
		return fragment & IPV4_MORE_FRAGMENTS ? XDP_PASS : classify_icmp(ctx, offset, end);
	if (ip.protocol != TCP)
		return XDP_PASS;
	flow.local[0] = ip.destination;
	flow.remote[0] = ip.source;
	flow.protocol = TCP;
	return classify_tcp(ctx, &flow, offset, end, fragment & IPV4_MORE_FRAGMENTS ? FIRST_FRAGMENT : WHOLE);
}

struct extension {
	__u8 next_header;
	__u8 words;
	__u16 fragment;
};

static __attribute__((noinline)) int classify_foreign_ipv6(struct xdp_md *ctx)
{
	struct extension extension;
	struct flow flow = {};
	struct ipv6 ip;
	__u32 offset = sizeof(struct ethernet), end;
	enum shape shape = WHOLE;
	__u8 next_header;

	if (bpf_xdp_load_bytes(ctx, offset, &ip, sizeof(ip)) || *(__u8 *)&ip >> 4 != 6)
		return XDP_PASS;
	offset += sizeof(ip);
	end = offset + network16(ip.payload_bytes);
	next_header = ip.next_header;
#pragma unroll
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		if (next_header != IPV6_HOP_BY_HOP && next_header != IPV6_ROUTING && next_header != IPV6_DESTINATION &&
		    next_header != IPV6_FRAGMENT)
			break;
		if (bpf_xdp_load_bytes(ctx, offset, &extension, sizeof(extension)))
			return XDP_PASS;
		offset += 8;
		if (next_header == IPV6_FRAGMENT) {
			if (network16(extension.fragment) & IPV6_FRAGMENT_OFFSET)
				return XDP_PASS;
			/* One that is the only fragment of its packet is whole (RFC 6946). */
			if (network16(extension.fragment) & IPV6_MORE_FRAGMENTS)
				shape = FIRST_FRAGMENT;
		} else {
			offset += extension.words * 8;
		}
		if (shape == WHOLE)
			shape = EXTENDED;
		next_header = extension.next_header;
	}
	if (next_header == ICMPV6)
		return shape == WHOLE ? classify_icmpv6(ctx, offset, end) : XDP_PASS;
	if (next_header != TCP)
		return XDP_PASS;
	__builtin_memcpy(flow.local, ip.destination, sizeof(flow.local));
	__builtin_memcpy(flow.remote, ip.source, sizeof(flow.remote));
	flow.protocol = TCP;
	flow.is_ipv6 = 1;
	return classify_tcp(ctx, &flow, offset, end, shape);
}

/* What is not the neighbour's to our two ports. */
static __always_inline int classify_foreign(struct xdp_md *ctx)
{
	struct ethernet *ethernet = (void *)(long)ctx->data;
	int verdict;

	if (!has_flows() || (void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (ethernet->type == network16(ETHERTYPE_IPV4)) {
		verdict = classify_plain_ipv4(ctx);
		return verdict == OTHERWISE ? classify_foreign_ipv4(ctx) : verdict;
	}
	if (ethernet->type == network16(ETHERTYPE_IPV6)) {
		verdict = classify_plain_ipv6(ctx);
		return verdict == OTHERWISE ? classify_foreign_ipv6(ctx) : verdict;
	}
	return XDP_PASS;
}

#endif
