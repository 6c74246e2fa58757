/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The parts of the kernel's stable interface (include/uapi/linux/bpf.h) that the program uses, so that clang alone
 * builds it. */
#ifndef PUNCTUAL_KERNEL_H
#define PUNCTUAL_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))

/* Fields of a map's definition, read from its BTF. */
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_XSKMAP = 17,
};

#define BPF_F_MMAPABLE (1 << 10)

enum xdp_action {
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_REDIRECT = 4,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)188;
static long (*bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 offset, void *to, __u32 bytes) = (void *)189;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define network16(x) __builtin_bswap16(x)
#define little16(x) (x)
#define little32(x) (x)
#define little64(x) (x)
#else
#define network16(x) (x)
#define little16(x) __builtin_bswap16(x)
#define little32(x) __builtin_bswap32(x)
#define little64(x) __builtin_bswap64(x)
#endif

#endif
