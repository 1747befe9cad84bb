/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Samples and stacks on their way to user space. A stack is sent once and then referred to by a hash of its
 * frames.
 */
#pragma once

/* Kernel stacks on their way out, by hook: the timer may interrupt a switch. */
enum ws_kstack_of { KSTACK_SWITCH, KSTACK_TIMER, KSTACK_WAKER, KSTACKS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KSTACKS);
	__type(key, u32);
	__type(value, struct ws_kstack);
} kstacks SEC(".maps");

static __always_inline u64 mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0xff51afd7ed558ccdull;
	return hash ^ (hash >> 32);
}

u64 managed_woken; /* when user space was last woken for a new stack of managed code */

/* Ring-buffer wake-up policy for managed stacks: names are wanted soon, but not one by one. User space doubles
 * `set_managed_every` each time that no name was new. */
static __always_inline u64 managed_flags(void)
{
	u64 now = bpf_ktime_get_ns();

	if (now - managed_woken <= set_managed_every)
		return ring_flags();
	managed_woken = now;
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends a stack to user space unless it is there already. */
static __always_inline void publish(u64 hash, void *record, u32 size, u32 managed)
{
	u8 one = 1;

	if (bpf_map_lookup_elem(&seen, &hash))
		return;
	if (bpf_ringbuf_output(&events, record, size, managed ? managed_flags() : ring_flags())) {
		lost(WS_L_RING_STACK);
		return;
	}
	if (bpf_map_update_elem(&seen, &hash, &one, BPF_ANY))
		lost(WS_L_SEEN_FULL);
}

/*
 * A hash of the first `n` frames. Global, thus verified once: else the verifier goes through all that
 * follows once for each number of frames.
 */
__noinline u64 ws_hash_frames(struct ws_kstack *k, u32 n)
{
	u64 hash = 0x9e3779b97f4a7c15ull;

	if (!k)
		return 0;
	for (u32 i = 0; i < WS_KFRAMES; i++) {
		if (i >= n)
			break;
		hash = mix(hash, k->pc[i]);
	}
	return hash;
}

/* Publishes the kernel stack in `k->pc`, with the length in `bytes` that the helper returned. Returns its hash, 0 for
 * none. */
static __always_inline u64 kernel_hash(struct ws_kstack *k, long bytes)
{
	u64 hash;
	u32 n;

	if (bytes <= 0) {
		if (bytes < 0)
			lost(WS_L_KSTACK);
		return 0;
	}
	n = (u64)bytes / 8;
	if (n > WS_KFRAMES)
		n = WS_KFRAMES;
	hash = ws_hash_frames(k, n);
	k->head.kind = WS_EV_KSTACK;
	k->head.size = sizeof(*k);
	k->hash = hash;
	k->n = n;
	publish(hash, k, offsetof(struct ws_kstack, pc) + n * 8, 0);
	return hash;
}

/* Publishes the stack that the unwinder found. */
static __always_inline u64 user_hash(struct uw_stack *out)
{
	struct uw_work *w = (void *)out - offsetof(struct uw_work, out);
	u32 n = out->n;

	if (n > UW_MAX_FRAMES)
		n = UW_MAX_FRAMES;
	publish(out->hash, out, offsetof(struct uw_stack, frames) + n * 8, w->hs.pid_emitted);
	return out->hash;
}

/* Tells the user stack of a wait that is not over; `futex`: the lock, if the wait has a time limit. */
static __always_inline void tell_early_stack(u64 id, u64 ticket, u64 hash, u64 futex)
{
	struct ws_resolve r = {
		.head = { WS_EV_RESOLVE, sizeof(r) }, .id = id, .ticket = ticket, .ustack = hash,
		.futex = futex,
	};

	if (bpf_ringbuf_output(&events, &r, sizeof(r), ring_flags()))
		lost(WS_L_RING_RESOLVE);
}

static __always_inline void tell_resolved(u64 id, u64 ticket, u64 hash)
{
	tell_early_stack(id, ticket, hash, 0);
}

static __always_inline void send_sample(struct ws_sample *s)
{
	s->head.kind = WS_EV_SAMPLE;
	s->head.size = sizeof(*s);
	if (bpf_ringbuf_output(&events, s, sizeof(*s), ring_flags()))
		lost(WS_L_RING_SAMPLE);
}
