/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The classifier of one link, in the NIC's driver.
 *
 * Packets of the neighbour to our two ports are ours: each is dropped and counted, or steered to the AF_XDP socket of
 * its stream. What is left over, from anybody, is looked up among the flows of TCP that this host runs itself, and their
 * listeners (flows.bpf.h). Everything else goes on to the kernel untouched; so do tagged VLANs, which we never send. Offsets
 * of pointers are constant: variable ones would need CAP_PERFMON.
 *
 * The rest of a packet's consistency is checked by the receiver; here only what keeps a buffer from being spent
 * on packets that no receiver may use. Bounded: for packets of the neighbour no loop and at most one look-up in a hash table, for
 * others at most four extension headers and two look-ups. Nothing is locked: counters that
 * several CPUs write are atomic, a bucket that two CPUs fill at the same instant refuses one of them. */
#include "punctual.bpf.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define UDP 17
#define IPV4_WITHOUT_OPTIONS 0x45
#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_FRAGMENT_OFFSET 0x1fff

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__u16 type;
};

struct ipv4 {
	__u8 version_and_words;
	__u8 service;
	__u16 bytes;
	__u16 id;
	__u16 fragment;
	__u8 hops;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
};

struct ipv6 {
	__u32 version_and_flow;
	__u16 payload_bytes;
	__u8 next_header;
	__u8 hops;
	__u32 source[4];
	__u32 destination[4];
};

struct udp {
	__u16 source;
	__u16 destination;
	__u16 bytes;
	__u16 checksum;
};

const volatile struct config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, STREAM_ACCOUNTS);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FILTERS_MAX);
	__type(key, struct path);
	__type(value, struct filter);
} filters SEC(".maps");

/* Buckets of signalling, of best effort, and of unknown senders' signalling. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct neighbour);
} neighbours SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STREAM_ACCOUNTS + FILTERS_MAX + FLOW_ACCOUNTS);
	__type(key, __u32);
	__type(value, struct taken);
} taken SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STREAM_ACCOUNTS + FILTERS_MAX + FLOW_ACCOUNTS);
	__type(key, __u32);
	__type(value, struct returned);
} returned SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

static __always_inline int drop(enum reason reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&drops, &key);

	if (count)
		*count += 1;
	return XDP_DROP;
}

/* Takes a token; false if there is none. */
static __always_inline int conforms(struct bucket *bucket, __u64 now)
{
	__u64 was = *(volatile __u64 *)&bucket->full_at_ns;
	__u64 full_at = (was > now ? was : now) + bucket->interval_ns;

	if (!bucket->interval_ns)
		return 1;
	if (full_at - now > bucket->depth_ns)
		return 0;
	return __sync_val_compare_and_swap(&bucket->full_at_ns, was, full_at) == was;
}

/* Whether a buffer is left. Reads user space's counter, a foreign cache line, only if necessary. */
static __always_inline int has_buffer(struct taken *account, __u32 number)
{
	__s32 limit = account->limit;
	struct returned *back;

	if ((__s32)(account->taken - account->returned_seen) < limit)
		return 1;
	back = bpf_map_lookup_elem(&returned, &number);
	if (!back)
		return 0;
	account->returned_seen = *(volatile __u32 *)&back->returned;
	return (__s32)(account->taken - account->returned_seen) < limit;
}

/* Whether enough buffers are left for an unknown sender: half of them are reserved for the neighbour. */
static __always_inline int is_half_free(struct taken *account, __u32 number)
{
	struct returned *back = bpf_map_lookup_elem(&returned, &number);

	if (!back)
		return 0;
	return (__s32)(account->taken - *(volatile __u32 *)&back->returned) < (__s32)((account->limit + 1) >> 1);
}

static __always_inline __u32 charge(struct taken *account)
{
	return __sync_fetch_and_add(&account->taken, 1) + 1;
}

/* Position of the payload of a packet, in one argument: at most five can be passed. */
#define EXTENT(offset, bytes) ((__u32)(offset) << 16 | (__u16)(bytes))

/* The accounts that a packet is to be charged to. */
struct charged {
	struct taken *stream;
	struct taken *path;
};

/* Chooses the socket of the stream, if the packet may have a buffer there and in its path's account. */
static __always_inline int find_buffer(struct xdp_md *ctx, __u32 stream, __u32 path, struct charged *charged)
{
	__u32 number = ctx->rx_queue_index * STREAMS + stream;

	charged->path = 0;
	if (ctx->rx_queue_index >= QUEUES_MAX || stream >= STREAMS)
		return 0;
	charged->stream = bpf_map_lookup_elem(&taken, &number);
	if (!charged->stream || !has_buffer(charged->stream, number))
		return 0;
	if (path != NO_PATH) {
		charged->path = bpf_map_lookup_elem(&taken, &path);
		if (!charged->path || !has_buffer(charged->path, path))
			return 0;
	}
	return bpf_redirect_map(&sockets, number, XDP_DROP) == XDP_REDIRECT;
}

static __always_inline void write_tag(struct tag *tag, const struct charged *charged, __u32 path, __u64 now,
				      __u32 extent)
{
	tag->received_ns = now;
	tag->stream_count = charge(charged->stream);
	tag->path_count = charged->path ? charge(charged->path) : 0;
	tag->path = path;
	tag->offset = extent >> 16;
	tag->bytes = (__u16)extent;
}

/* Sends a packet of ours to its stream. A function of its own: inline it leaves too few registers, and the verifier, which
 * we face without CAP_PERFMON, lets no slot of the stack hold a pointer and then a number. */
static __attribute__((noinline)) int steer(struct xdp_md *ctx, enum stream stream, __u32 path, __u64 now,
					   __u32 extent)
{
	struct tag *tag = (void *)(long)ctx->data;
	struct charged charged;

	if ((void *)(tag + 1) > (void *)(long)ctx->data_end || !find_buffer(ctx, stream, path, &charged))
		return drop(NO_BUFFER);
	write_tag(tag, &charged, path, now, extent);
	return XDP_REDIRECT;
}

/* Bounds signalling or best effort as a whole, by the bucket `key`. */
static __always_inline int steer_bounded(struct xdp_md *ctx, enum stream stream, __u32 key, __u16 offset, __u16 bytes)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &key);
	__u64 now = bpf_ktime_get_ns();

	if (!bucket || !conforms(bucket, now))
		return drop(POLICED);
	return steer(ctx, stream, NO_PATH, now, EXTENT(offset, bytes));
}

/* Whether fields contradict one another, whatever the path. */
static __always_inline int is_consistent(const struct wire *wire, __u16 bytes)
{
	__u16 flags = little16(wire->flags);
	int is_best_effort = wire->kind == WIRE_BEST_EFFORT;

	if (wire->version != WIRE_VERSION || (wire->kind != WIRE_GUARANTEED && !is_best_effort))
		return 0;
	if (is_best_effort ? flags : flags & ~(WIRE_DEMOTED | WIRE_UNPROMISED) || flags == WIRE_UNPROMISED)
		return 0;
	if (!wire->source || (is_best_effort && !wire->end))
		return 0;
	return little16(wire->fragment) < little16(wire->fragments) &&
	       little16(wire->payload_bytes) <= bytes - sizeof(*wire) &&
	       little16(wire->payload_bytes) <= little32(wire->message_bytes);
}

static __always_inline int classify_data(struct xdp_md *ctx, const struct wire *wire, __u16 offset, __u16 bytes)
{
	struct path path;
	struct filter *filter;
	__u64 now;

	if (bytes < sizeof(*wire) || (void *)(wire + 1) > (void *)(long)ctx->data_end || !is_consistent(wire, bytes))
		return drop(MALFORMED);
	if (wire->kind == WIRE_BEST_EFFORT)
		return steer_bounded(ctx, BEST_EFFORT, BEST_EFFORT, offset, bytes);

	path.node = little32(wire->source);
	path.channel = little32(wire->channel);
	path.epoch = little64(wire->epoch);
	filter = bpf_map_lookup_elem(&filters, &path);
	if (!filter)
		return drop(UNKNOWN);
	if (filter->cookie != little32(wire->cookie))
		return drop(WRONG_COOKIE);
	if (bytes > filter->packet_bytes_max)
		return drop(MALFORMED);
	if ((__s64)little64(wire->slack_ns) < filter->slack_ns_min)
		return drop(EXPIRED);
	if (wire->flags)
		return steer_bounded(ctx, BEST_EFFORT, BEST_EFFORT, offset, bytes);

	now = bpf_ktime_get_ns();
	if (!conforms(&filter->bucket, now))
		return drop(POLICED);
	return steer(ctx, filter->stream, filter->account, now, EXTENT(offset, bytes));
}

static __always_inline __u64 rotated(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void sip_round(__u64 v[4])
{
	v[0] += v[1];
	v[1] = rotated(v[1], 13) ^ v[0];
	v[0] = rotated(v[0], 32);
	v[2] += v[3];
	v[3] = rotated(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotated(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotated(v[1], 17) ^ v[2];
	v[2] = rotated(v[2], 32);
}

static __always_inline void sip_word(__u64 v[4], __u64 word)
{
	v[3] ^= word;
	sip_round(v);
	sip_round(v);
	v[0] ^= word;
}

/* SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) of two words of 8 bytes. It is not inlined: inline it
 * leaves too few registers, and without CAP_PERFMON the verifier permits no stack slot to be used twice. */
static __attribute__((noinline)) __u64 sip_hash(__u64 key_low, __u64 key_high, __u64 first, __u64 second)
{
	__u64 v[4] = { key_low ^ 0x736f6d6570736575, key_high ^ 0x646f72616e646f6d, key_low ^ 0x6c7967656e657261,
		       key_high ^ 0x7465646279746573 };

	sip_word(v, first);
	sip_word(v, second);
	sip_word(v, (__u64)16 << 56);
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Takes a packet number once (RFC 4303, 3.4.3); false if it is a duplicate or too old to check. */
static __always_inline int take_number(struct neighbour *neighbour, __u64 number)
{
	__u64 ahead, behind;

	if (number >= neighbour->next) {
		ahead = number - neighbour->next + 1;
		neighbour->seen = ahead < 64 ? neighbour->seen << ahead | 1 : 1;
		neighbour->next = number + 1;
		return 1;
	}
	behind = neighbour->next - 1 - number;
	if (behind >= 64 || neighbour->seen >> behind & 1)
		return 0;
	neighbour->seen |= (__u64)1 << behind;
	return 1;
}

/* Half of the buffers are reserved for the neighbour. */
static __always_inline int has_room_for_strangers(struct xdp_md *ctx)
{
	__u32 number = ctx->rx_queue_index * STREAMS + SIGNALLING;
	struct taken *account;

	if (ctx->rx_queue_index >= QUEUES_MAX)
		return 0;
	account = bpf_map_lookup_elem(&taken, &number);
	return account && is_half_free(account, number);
}

/* The neighbour, if it has sealed this packet. */
static __always_inline struct neighbour *sender(__u64 number, __u64 seal, __u64 bytes)
{
	__u32 first = 0;
	struct neighbour *neighbour = bpf_map_lookup_elem(&neighbours, &first);

	if (!neighbour || !neighbour->is_known)
		return 0;
	return seal == sip_hash(neighbour->key[0], neighbour->key[1], number, bytes) ? neighbour : 0;
}

/* A flood of unsealed signalling takes nothing from the neighbour. The envelope is read first: a pointer into the
 * packet that is used across calls would be spilled to the stack. */
static __always_inline int classify_signal(struct xdp_md *ctx, const struct envelope *envelope, __u16 offset,
					   __u16 bytes)
{
	struct neighbour *neighbour = 0;
	__u64 number = 0;

	if (bytes >= sizeof(*envelope) && (void *)(envelope + 1) <= (void *)(long)ctx->data_end &&
	    envelope->version == RTCOP_VERSION) {
		number = little64(envelope->number);
		neighbour = sender(number, little64(envelope->seal), bytes);
	}
	if (!neighbour)
		return has_room_for_strangers(ctx) ? steer_bounded(ctx, SIGNALLING, STRANGERS, offset, bytes) :
						     drop(NO_BUFFER);
	if (!take_number(neighbour, number))
		return drop(REPLAYED);
	return steer_bounded(ctx, SIGNALLING, SIGNALLING, offset, bytes);
}

/* From here on the packet is for our address and from the neighbour's. `offset` is the offset of the UDP header, and
 * `room` the number of bytes from there on according to IP. */
static __always_inline int classify_udp(struct xdp_md *ctx, const struct udp *udp, __u32 offset, __u32 room)
{
	__u32 bytes, end;

	if ((void *)(udp + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (udp->destination != config.data_port && udp->destination != config.signalling_port)
		return XDP_PASS;
	bytes = network16(udp->bytes);
	end = offset + room;
	if (bytes <= sizeof(*udp) || bytes > room || bytes - sizeof(*udp) > config.packet_bytes_max)
		return drop(MALFORMED);
	if (end > bpf_xdp_get_buff_len(ctx))
		return drop(MALFORMED);
	offset += sizeof(*udp);
	bytes -= sizeof(*udp);
	if (udp->destination == config.signalling_port)
		return udp->source == config.peer_signalling_port ?
			       classify_signal(ctx, (void *)(udp + 1), offset, bytes) :
			       drop(UNKNOWN);
	return udp->source == config.peer_data_port ? classify_data(ctx, (void *)(udp + 1), offset, bytes) :
						      drop(UNKNOWN);
}

static __always_inline int classify_ipv4(struct xdp_md *ctx, const struct ipv4 *ip)
{
	__u32 bytes;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end || ip->version_and_words != IPV4_WITHOUT_OPTIONS)
		return XDP_PASS;
	if (ip->destination != config.local[0] || ip->source != config.peer[0] || ip->protocol != UDP)
		return XDP_PASS;
	if (network16(ip->fragment) & (IPV4_MORE_FRAGMENTS | IPV4_FRAGMENT_OFFSET))
		return XDP_PASS;
	bytes = network16(ip->bytes);
	if (bytes < sizeof(*ip))
		return XDP_PASS;
	return classify_udp(ctx, (void *)(ip + 1), sizeof(struct ethernet) + sizeof(*ip), bytes - sizeof(*ip));
}

static __always_inline int is_address(const __u32 *address, const volatile __u32 *ours)
{
	return address[0] == ours[0] && address[1] == ours[1] && address[2] == ours[2] && address[3] == ours[3];
}

static __always_inline int classify_ipv6(struct xdp_md *ctx, const struct ipv6 *ip)
{
	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (!is_address(ip->destination, config.local) || !is_address(ip->source, config.peer))
		return XDP_PASS;
	if (ip->next_header != UDP || *(const __u8 *)ip >> 4 != 6)
		return XDP_PASS;
	return classify_udp(ctx, (void *)(ip + 1), sizeof(struct ethernet) + sizeof(*ip), network16(ip->payload_bytes));
}

#include "flows.bpf.h"

SEC("xdp.frags")
int punctual(struct xdp_md *ctx)
{
	struct ethernet *ethernet = (void *)(long)ctx->data;
	int verdict = XDP_PASS;

	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (config.is_ipv6 && ethernet->type == network16(ETHERTYPE_IPV6))
		verdict = classify_ipv6(ctx, (void *)(ethernet + 1));
	if (!config.is_ipv6 && ethernet->type == network16(ETHERTYPE_IPV4))
		verdict = classify_ipv4(ctx, (void *)(ethernet + 1));
	return verdict == XDP_PASS ? classify_foreign(ctx) : verdict;
}

char terms[] SEC("license") = "Apache-2.0 OR MIT";
