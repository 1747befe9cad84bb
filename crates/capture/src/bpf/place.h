/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The reason of a wait, by the kernel functions on the stack of the thread.
 *
 * The system call alone is wrong where a thread sleeps on the way to its request: a read that
 * runs into a page fault, a fault that has to free memory first, any call that meets a lock of the
 * kernel. Such sleeps are nearly all uninterruptible, so that only they, and calls of which the
 * number tells nothing, pay for a walk of the kernel stack.
 *
 * User space passes the address ranges of functions with names that tell a reason (places.rs). If kernel
 * symbols are hidden there are none, and the system call decides alone.
 */
#pragma once

#define WS_PLACES 4096
struct ws_place {
	u64 start;
	u32 size;
	u32 reason; /* enum ws_reason */
};

/*
 * Sorted by start. User space reads the kernel's names while the programs are loaded, and fills these before they
 * run. (The verifier knows the values of data that never changes, and would follow each of the thousands of ways
 * through the search by itself.)
 */
struct ws_place places[WS_PLACES] = {};
u32 set_places = 0;
u64 set_timerfd_read = 0; /* the function that reads a timerfd, 0: unknown */

#define WS_PLACE_FRAMES 48
struct ws_standing {
	u64 pc[WS_PLACE_FRAMES];
	/* Bounds of a search. Kept here and not in registers: the verifier would follow all its ways. */
	volatile u32 low, high;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_standing);
} standing SEC(".maps");

/* The reason that the function at `pc` tells, WS_REASONS for none. Global: verified once. */
__noinline u32 ws_reason_at(struct ws_standing *at, u64 pc)
{
	u32 found;

	if (!at)
		return WS_REASONS;
	at->low = 0;
	at->high = set_places;
	for (int i = 0; i < 13; i++) {
		u32 low = at->low, high = at->high, middle = (low + high) / 2;

		if (low >= high)
			break;
		if (places[middle & (WS_PLACES - 1)].start <= pc)
			at->low = middle + 1;
		else
			at->high = middle;
	}
	found = at->low;
	if (!found)
		return WS_REASONS;
	found = (found - 1) & (WS_PLACES - 1);
	return pc - places[found].start < places[found].size ? places[found].reason : WS_REASONS;
}

struct ws_verdict {
	struct ws_standing *at;
	u32 n, reason;
};

/* The innermost function that tells something decides; a fault or reclaim may still explain I/O. */
static long judge_frame(u32 i, struct ws_verdict *v)
{
	u32 reason;

	if (i >= v->n || i >= WS_PLACE_FRAMES)
		return 1;
	reason = ws_reason_at(v->at, v->at->pc[i]);
	if (reason >= WS_REASONS)
		return 0;
	if (v->reason == WS_REASONS)
		v->reason = reason;
	else if (reason == WS_PAGE_FAULT || reason == WS_MEMORY)
		v->reason = reason;
	return v->reason != WS_DISK && v->reason != WS_PAGE_FAULT;
}

/* The reason that a stack of `n` frames tells, WS_REASONS for none. Global: verified once. */
__noinline u32 ws_reason_by_stack(struct ws_standing *at, u32 n)
{
	struct ws_verdict v = { .at = at, .n = n, .reason = WS_REASONS };

	if (!at)
		return WS_REASONS;
	bpf_loop(WS_PLACE_FRAMES, judge_frame, &v, 0);
	return v.reason;
}

/*
 * The reason that the kernel stack of `p` tells, WS_REASONS for none. `ctx`: of the hook, if `p` is
 * the current task. The stack of another task comes without the scheduler's own section, and with
 * that without the slow paths of locks.
 */
static __always_inline u32 reason_by_place(void *ctx, struct task_struct *p)
{
	struct ws_standing *at;
	u32 key = 0;
	long bytes;

	if (!set_places)
		return WS_REASONS;
	at = bpf_map_lookup_elem(&standing, &key);
	if (!at)
		return WS_REASONS;
	bytes = ctx ? bpf_get_stack(ctx, at->pc, sizeof(at->pc), 0)
		    : bpf_get_task_stack(p, at->pc, sizeof(at->pc), 0);
	if (bytes <= 0) {
		lost(WS_L_KSTACK);
		return WS_REASONS;
	}
	return ws_reason_by_stack(at, (u64)bytes / 8);
}
