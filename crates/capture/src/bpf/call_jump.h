/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Whether a jump leads out of its function: a tail call, if it does.
 */
#pragma once
#include "calls.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_jump);
} jumps SEC(".maps");

/* Whether a conditional jump is taken, by its condition code and the flags. */
static __always_inline bool is_taken(u32 condition, u64 flags)
{
	bool carry = flags & 1, parity = flags & 4, zero = flags & 64, sign = flags & 128;
	bool overflow = flags & 2048, yes;

	switch (condition >> 1) {
	case 0:
		yes = overflow;
		break;
	case 1:
		yes = carry;
		break;
	case 2:
		yes = zero;
		break;
	case 3:
		yes = carry || zero;
		break;
	case 4:
		yes = sign;
		break;
	case 5:
		yes = parity;
		break;
	case 6:
		yes = sign != overflow;
		break;
	default:
		yes = zero || sign != overflow;
	}
	return yes != (condition & 1);
}

static __always_inline u64 register_at(struct pt_regs *ctx, u8 index)
{
	u64 value = 0;

	if (index < sizeof(struct pt_regs) / 8)
		bpf_probe_read_kernel(&value, sizeof(value), (void *)ctx + (u32)index * 8);
	return value;
}

/* Whether an indirect jump leads out of its function. */
static __always_inline bool leads_out(struct pt_regs *ctx, u32 key)
{
	struct ws_jump *j = bpf_map_lookup_elem(&jumps, &key);
	u64 to;
	s64 relative;

	if (!j)
		return false;
	to = register_at(ctx, j->base);
	if (j->memory) {
		u64 at = to + register_at(ctx, j->index) * j->scale + j->displacement;

		if (bpf_probe_read_user(&to, sizeof(to), (void *)at))
			return false;
	}
	relative = to - ctx->ip;
	return relative < j->low || relative >= j->high;
}
