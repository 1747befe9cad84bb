/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The holder of a lock by the lock's memory, for waits with a time limit.
 *
 * A holder that unlocks wakes the waiter, and so is known as its waker. A wait that times out has no such
 * waker. But the C library stores the holder in the lock's word or beside it, and the memory is at hand when
 * a thread begins to wait. The words around it are kept, and sent if the wait is charged to a stack. User
 * space interprets them and decides whether to believe them (session/lock_owner.rs).
 */
#pragma once

/* Commands of futex(2) that wait, without the bits that say how. */
enum {
	FUTEX_WAIT = 0,
	FUTEX_LOCK_PI = 6,
	FUTEX_WAIT_BITSET = 9,
	FUTEX_LOCK_PI2 = 13,
	FUTEX_HOW = 128 | 256,
};
enum { CALL_FUTEX = 202 };
/* Words of held mutexes and read-write locks with waiters; other locks hold the owner's id and that bit. */
enum { MUTEX_AWAITED = 2, RWLOCK_AWAITED = 3, WAITERS_BIT = 0x80000000 };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct ws_words);
} limited SEC(".maps");

static const struct ws_words words_none;

/* Whether the call has a time limit and may wait for a lock that stores its holder. */
static __always_inline bool waits_limited(struct pt_regs *regs)
{
	u32 op = (u32)regs->si & ~FUTEX_HOW, value = regs->dx;

	if (call_of(regs) != CALL_FUTEX || !regs->r10)
		return false;
	if (op == FUTEX_LOCK_PI || op == FUTEX_LOCK_PI2)
		return true;
	return (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET) &&
	       (value == MUTEX_AWAITED || value == RWLOCK_AWAITED || value & WAITERS_BIT);
}

/* `p` leaves the CPU to wait for a lock, in its own address space. */
static __always_inline void limited_waits(struct ws_thread *t, struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	struct ws_words *w;
	u64 id = t->id;

	t->waited.lock.limited = 0;
	if (p->flags & PF_IN_KERNEL_ONLY || !waits_limited(regs))
		return;
	bpf_map_update_elem(&limited, &id, &words_none, BPF_ANY);
	w = bpf_map_lookup_elem(&limited, &id);
	if (!w) {
		lost(WS_L_LIMITED);
		return;
	}
	w->id = id;
	w->begin = t->turn.block_begin;
	w->address = regs->di;
	w->pid = t->pid;
	w->tid = t->tid;
	w->op = regs->si;
	w->value = regs->dx;
	/* The words before it may be on a page that is not mapped: then they are no part of a mutex. */
	if (bpf_probe_read_user(w->word, sizeof(w->word), (void *)(regs->di - 4 * WS_WORDS_BEFORE)) &&
	    bpf_probe_read_user(w->word + WS_WORDS_BEFORE, sizeof(w->word) - 4 * WS_WORDS_BEFORE,
				(void *)regs->di)) {
		lost(WS_L_LIMITED);
		return;
	}
	t->waited.lock.limited = 1;
}

/* A wait with a time limit, which will be charged to a stack, is over. */
static __always_inline void limited_tell(struct ws_thread *t)
{
	u64 id = t->id;
	struct ws_words *w = bpf_map_lookup_elem(&limited, &id);

	if (!w || w->begin != t->turn.block_begin)
		return; /* evicted from the full table: then the wait counts like any other */
	w->head.kind = WS_EV_WORDS;
	w->head.size = sizeof(*w);
	if (bpf_ringbuf_output(&events, w, sizeof(*w), ring_flags()))
		lost(WS_L_RING_WAKE);
}
