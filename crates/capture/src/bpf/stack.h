/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Which stack spent the time.
 *
 * Blocked and runnable time each run a clock per thread. When a clock passes whole periods at a
 * switch-in, those periods are charged to the stack that crosses, and the remainder is kept: with
 * the random first phase that is an unbiased sample by time, its cost is bounded by off-CPU time
 * and not by the switch rate, and a block longer than the period is always seen.
 *
 * The kernel stack is taken at the switch-in itself (the thread still stands where it slept). The
 * user stack comes by one of two mechanisms:
 *
 *   task work (6.18)  the thread reads its own stack, of any depth and paged in where needed,
 *                     just before it returns to user mode. Until then samples carry a *ticket*,
 *                     which stands for "the user stack of this stay in the kernel".
 *   window            at each switch-out a part of the stack is copied into the thread's record
 *                     and unwound at the switch-in that crosses.
 *
 * Threads that stay blocked are read ahead by the task iterator, so that a stack is known even if
 * the thread is killed in its sleep.
 */
#pragma once
#include "../../../unwind/bpf/unwind.h"
#include "../../../unwind/bpf/python.h"

#define SLOTS 16

/*
 * Kernel stacks on their way out: 0 in sched_switch, 1 in the timer (which may interrupt it), 2 of
 * wakers.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, struct ws_kstack);
} kstacks SEC(".maps");

/* One unwinding at work: the registers it starts from, and the unwinder's own state. */
struct ws_unwind {
	struct uw_pt_regs regs;
	struct uw_work work;
};

/* Where nothing can preempt; 0 and 1 as above. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, struct ws_unwind);
} unwinds SEC(".maps");

/* Raw stacks on their way out; apart, as values of one CPU may not exceed 32 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct ws_raw);
} raws SEC(".maps");

/* For sleepable code, which may be preempted and migrate. */
struct ws_slot {
	u32 busy, pad0;
	struct ws_unwind u;
	struct py_work python;
	struct ws_raw raw;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, u32);
	__type(value, struct ws_slot);
} slots SEC(".maps");

/* What the task iterator works on; there is only ever one. */
struct ws_visit {
	struct ws_dump d;
	struct ws_kstack k;
	struct ws_unwind u;
	struct py_work python;
	struct ws_shape_event s;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_visit);
} visits SEC(".maps");

/* One per thread: what the kernel needs to call back in it. Keyed by the record's id. */
struct ws_later {
	struct bpf_task_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct ws_later);
} later SEC(".maps");

/* The saved part of a thread's user stack (window mechanism only), from rsp rounded down to 8. */
#define WS_WINDOW 4096
struct ws_window {
	struct uw_pt_regs regs;
	u64 len;
	u8 bytes[WS_WINDOW];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ws_window);
} windows SEC(".maps");

/* The kfunc of 6.18; weak, so that older kernels load the rest. */
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map, bpf_task_work_callback_t callback,
					      void *aux__prog) __weak __ksym;

static __always_inline u64 mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0xff51afd7ed558ccdull;
	return hash ^ (hash >> 32);
}

u64 managed_woken; /* when user space was last woken for a new stack of managed code */

/* New names are wanted soon, but not one by one. */
static __always_inline u64 managed_flags(void)
{
	u64 now = bpf_ktime_get_ns();

	if (now - managed_woken <= 10000000)
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

/* The frames in `k->pc`, `bytes` of them as the helper returned: their hash, 0 for none. */
static __always_inline u64 kernel_hash(struct ws_kstack *k, long bytes)
{
	u64 hash = 0x9e3779b97f4a7c15ull;
	u32 n;

	if (bytes <= 0) {
		if (bytes < 0)
			lost(WS_L_KSTACK);
		return 0;
	}
	n = (u64)bytes / 8;
	if (n > WS_KFRAMES)
		n = WS_KFRAMES;
	for (u32 i = 0; i < WS_KFRAMES; i++) {
		if (i >= n)
			break;
		hash = mix(hash, k->pc[i]);
	}
	k->head.kind = WS_EV_KSTACK;
	k->head.size = sizeof(*k);
	k->hash = hash;
	k->n = n;
	publish(hash, k, offsetof(struct ws_kstack, pc) + n * 8, 0);
	return hash;
}

/* Publishes what the unwinder left. */
static __always_inline u64 user_hash(struct uw_stack *out)
{
	struct uw_work *w = (void *)out - offsetof(struct uw_work, out);
	u32 n = out->n;

	if (n > UW_MAX_FRAMES)
		n = UW_MAX_FRAMES;
	publish(out->hash, out, offsetof(struct uw_stack, frames) + n * 8, w->hs.told);
	return out->hash;
}

#include "managed.h"

static __always_inline void tell_resolved(u64 id, u64 ticket, u64 hash)
{
	struct ws_resolve r = {
		.head = { WS_EV_RESOLVE, sizeof(r) }, .id = id, .ticket = ticket, .ustack = hash,
	};

	if (bpf_ringbuf_output(&events, &r, sizeof(r), ring_flags()))
		lost(WS_L_RING_RESOLVE);
}

#include "resource.h"

static __always_inline void send_sample(struct ws_sample *s)
{
	s->head.kind = WS_EV_SAMPLE;
	s->head.size = sizeof(*s);
	if (bpf_ringbuf_output(&events, s, sizeof(*s), ring_flags()))
		lost(WS_L_RING_SAMPLE);
}

/* Whether a stack that ended so might be whole once the tables have caught up. */
static __always_inline bool too_early(struct ws_unwind *u)
{
	u32 end = u->work.out.end;

	return (end == UW_END_NO_MAPPING || end == UW_END_NOT_LOADED) && raw_budget;
}

/* Sends the stack as it is. READ is the helper that this context may use. */
#define SEND_RAW(u, raw, of_id, of_ticket, of_pid, READ)                                       \
	({                                                                                \
		struct ws_raw *raw_ = (raw);                                              \
		u64 sp_ = (u)->regs.sp;                                                   \
		u64 len_ = 4096 - (sp_ & 4095);                                                \
		raw_->head.kind = WS_EV_RAW;                                                   \
		raw_->head.size = sizeof(*raw_);                                               \
		raw_->id = (of_id);                                                            \
		raw_->ticket = (of_ticket);                                                    \
		raw_->pid = (of_pid);                                                          \
		bpf_probe_read_kernel(raw_->regs, sizeof(raw_->regs), &(u)->regs);             \
		/* Page by page, as a read that crosses the end of the stack fails whole. */   \
		if (READ(raw_->bytes, (u32)len_, (void *)sp_))                                 \
			len_ = 0;                                                                     \
		for (int page_ = 0; len_ && page_ < 3; page_++) {                              \
			if (len_ > WS_RAW_BYTES - 4096 ||                                             \
			    READ(raw_->bytes + len_, 4096, (void *)(sp_ + len_)))                     \
				break;                                                                       \
			len_ += 4096;                                                                 \
		}                                                                              \
		raw_->len = len_;                                                         \
		__sync_fetch_and_sub(&raw_budget, 1);                                     \
		lost(bpf_ringbuf_output(&events, raw_,                                    \
					offsetof(struct ws_raw, bytes) + (len_ & 32767),  \
					BPF_RB_FORCE_WAKEUP)                                     \
			     ? WS_L_RING_STACK                                            \
			     : WS_L_RAW);                                                 \
	})

static __always_inline struct ws_slot *take_slot(void)
{
	for (u32 i = 0; i < SLOTS; i++) {
		u32 key = i;
		struct ws_slot *s = bpf_map_lookup_elem(&slots, &key);

		if (s && !__sync_val_compare_and_swap(&s->busy, 0, 1))
			return s;
	}
	lost(WS_L_NO_SLOT);
	return NULL;
}

static __always_inline void give_slot(struct ws_slot *s)
{
	__sync_lock_test_and_set(&s->busy, 0);
}

/* The next stay in the kernel gets a new ticket. */
static __always_inline void next_ticket(struct ws_thread *t)
{
	t->ticket++;
	t->deferred = 0;
}

/* Runs in the thread itself, sleepable, just before it returns to user mode. */
static int read_own_stack(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u64 start = bpf_ktime_get_ns();
	struct ws_cpu *c;
	struct ws_slot *s;

	if (!t || !t->deferred)
		return 0;
	s = take_slot();
	if (!s) {
		tell_resolved(t->id, t->ticket, 0);
	} else {
		uw_copy_regs(&s->u.regs, (void *)bpf_task_pt_regs(p));
		s->u.work.tls = p->thread.fsbase;
		uw_unwind_fault(&s->u.work, p->tgid, &s->u.regs, UW_MAX_FRAMES);
		if (too_early(&s->u))
			SEND_RAW(&s->u, &s->raw, t->id, t->ticket, p->tgid, bpf_copy_from_user);
		else
			tell_resolved(t->id, t->ticket,
				      managed_hash(&s->u.work.out, &s->python, p, READ_FAULT));
		give_slot(s);
	}
	next_ticket(t);
	c = this_cpu();
	if (c)
		c->later_ns += bpf_ktime_get_ns() - start;
	return 0;
}

/* Asks the thread to read its own stack; the caller's sample carries the ticket. */
static __always_inline void defer(struct ws_thread *t, struct task_struct *p)
{
	struct ws_later *l;
	u64 id = t->id;

	if (t->deferred)
		return;
	if (!cfg_task_work || !bpf_ksym_exists(bpf_task_work_schedule_resume_impl))
		return;
	l = bpf_map_lookup_elem(&later, &id);
	if (!l) {
		lost(WS_L_DEFER_LOST);
		return;
	}
	if (bpf_task_work_schedule_resume_impl(p, &l->work, &later, read_own_stack, NULL))
		lost(WS_L_TASK_WORK);
	else
		t->deferred = 1;
}

static __always_inline void stack_record_made(struct ws_thread *t)
{
	struct ws_later none = {};
	u64 id = t->id;

	if (cfg_task_work && bpf_map_update_elem(&later, &id, &none, BPF_NOEXIST))
		lost(WS_L_DEFER_LOST);
}

static __always_inline void stack_thread_gone(struct ws_thread *t)
{
	u64 id = t->id;

	if (cfg_task_work)
		bpf_map_delete_elem(&later, &id);
}

/* The old address space is gone; what waited for its stack cannot have it any more. */
static __always_inline void stack_exec(struct ws_thread *t)
{
	if (!t->deferred)
		return;
	tell_resolved(t->id, t->ticket, 0);
	next_ticket(t);
	lost(WS_L_EXEC_GONE);
}

static __always_inline bool no_user_stack(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) || !p->mm;
}

/* The thread is about to lose its address space: the last moment to read its stack. */
static __always_inline void read_before_exit(struct ws_thread *t, struct task_struct *p)
{
	u32 key = 0;
	struct ws_unwind *u;
	struct ws_raw *raw;

	if (!t->deferred || no_user_stack(p))
		return;
	u = bpf_map_lookup_elem(&unwinds, &key);
	if (!u)
		return;
	uw_copy_regs(&u->regs, (void *)bpf_task_pt_regs(p));
	u->work.tls = p->thread.fsbase;
	uw_unwind_probe(&u->work, p->tgid, &u->regs, UW_MAX_FRAMES);
	raw = bpf_map_lookup_elem(&raws, &key);
	if (raw && too_early(u))
		SEND_RAW(u, raw, t->id, t->ticket, p->tgid, bpf_probe_read_user);
	else
		tell_resolved(t->id, t->ticket,
			      managed_hash(&u->work.out, bpf_map_lookup_elem(&pythons, &key), p,
					   READ_PROBE));
	next_ticket(t);
}

/* Window mechanism: keeps a part of the stack of a thread that leaves the CPU. */
static __always_inline void save_window(struct task_struct *p)
{
	struct ws_window *w;
	u64 from;

	if (cfg_task_work || no_user_stack(p))
		return;
	w = bpf_task_storage_get(&windows, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		return;
	uw_copy_regs(&w->regs, (void *)bpf_task_pt_regs(p));
	from = w->regs.sp & ~7ull;
	w->len = WS_WINDOW;
	if (bpf_probe_read_user(w->bytes, WS_WINDOW, (void *)from)) {
		/* The stack ends, or is not present, behind this page. */
		w->len = 4096 - (from & 4095);
		if (bpf_probe_read_user(w->bytes, w->len & (WS_WINDOW - 1), (void *)from))
			w->len = 0;
	}
}

/* The same for a thread that slept already when its record was made: from the iterator. */
static __always_inline void save_window_of(struct task_struct *p)
{
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_window *w;
	u64 from, seq;

	if (cfg_task_work || !t || t->state != WS_BLOCKED || no_user_stack(p))
		return;
	seq = t->seq;
	w = bpf_task_storage_get(&windows, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		return;
	uw_copy_regs(&w->regs, (void *)bpf_task_pt_regs(p));
	from = w->regs.sp & ~7ull;
	w->len = WS_WINDOW;
	if (bpf_copy_from_user_task(w->bytes, WS_WINDOW, (void *)from, p, 0)) {
		w->len = 4096 - (from & 4095);
		if (bpf_copy_from_user_task(w->bytes, w->len & (WS_WINDOW - 1), (void *)from, p, 0))
			w->len = 0;
	}
	if (*(volatile u64 *)&t->seq != seq)
		w->len = 0; /* it moved meanwhile: what is there may be of two moments */
}

static __always_inline u64 unwind_window(struct task_struct *p)
{
	struct ws_window *w = bpf_task_storage_get(&windows, p, 0, 0);
	u32 key = 0;
	struct ws_unwind *u = bpf_map_lookup_elem(&unwinds, &key);

	if (!w || !u)
		return 0;
	bpf_probe_read_kernel(u->work.buf, WS_WINDOW, w->bytes);
	u->work.tls = 0;
	uw_unwind_window(&u->work, p->tgid, &w->regs, UW_MAX_FRAMES, w->len);
	return user_hash(&u->work.out);
}

/* What is known of the connections of a thread that waits, or has just waited. */
static __always_inline u32 wait_flags(struct ws_thread *t)
{
	return (t->asking ? WS_S_IN_FLIGHT : 0) | (t->talks ? WS_S_TALKS : 0);
}

/* Whole periods of blocked and runnable time are charged to where the thread stands now. */
static __always_inline void charge_off_cpu(struct ws_thread *t, struct ws_cpu *c,
					   struct task_struct *p, u64 now, u64 waited, u32 part,
					   u32 cpu)
{
	u64 period = set_period, blocked = 0, queued = 0;
	struct ws_sample s = {};
	struct ws_kstack *k;
	u32 key = 0;

	if (!period || (t->credit_blocked < period && t->credit_runnable < period && !t->early))
		return;
	blocked = t->credit_blocked / period;
	queued = t->credit_runnable / period;
	t->credit_blocked -= blocked * period;
	t->credit_runnable -= queued * period;
	c->charges++;

	s.id = t->id;
	s.pid = t->pid;
	s.tid = t->tid;
	s.cpu = cpu;
	k = bpf_map_lookup_elem(&kstacks, &key);
	if (k)
		s.kstack = kernel_hash(k, bpf_get_task_stack(p, k->pc, sizeof(k->pc), 0));
	if (no_user_stack(p)) {
		s.flags = WS_S_NO_USER;
	} else if (cfg_task_work) {
		defer(t, p);
		s.flags = WS_S_DEFERRED;
		s.ustack = t->ticket;
	} else {
		s.ustack = unwind_window(p);
	}
	if (t->early) {
		s.state = WS_ON_CPU;
		s.begin = s.end = now;
		s.count = t->early;
		s.ns = t->early * (u64)(set_cpu_period ? set_cpu_period : cfg_cpu_period);
		send_sample(&s);
		t->early = 0;
	}
	if (blocked) {
		s.state = WS_BLOCKED;
		s.flags |= wait_flags(t);
		s.detail = t->block_reason;
		s.resource = waited_for(t, p, t->block_reason);
		s.begin = t->block_begin;
		s.end = t->block_begin + t->block_len;
		s.count = blocked;
		s.ns = blocked * period;
		send_sample(&s);
	}
	if (queued) {
		s.state = WS_RUNNABLE;
		s.resource = 0;
		s.detail = part;
		s.begin = now - waited;
		s.end = now;
		s.count = queued;
		s.ns = queued * period;
		send_sample(&s);
	}
}

/* Completes and sends a sample of a thread that runs here and now. */
static __always_inline void sample_here(struct ws_sample *s, struct ws_thread *t,
					struct task_struct *p, void *ctx, bool user_mode)
{
	struct ws_kstack *k;
	struct ws_unwind *u;
	struct ws_raw *raw;
	u32 key = 1;

	s->id = t->id;
	s->pid = t->pid;
	s->tid = t->tid;
	s->cpu = bpf_get_smp_processor_id();
	s->count = 1;
	s->begin = s->end = bpf_ktime_get_ns();
	if (user_mode) {
		s->flags = WS_S_USER_MODE;
	} else {
		k = bpf_map_lookup_elem(&kstacks, &key);
		if (k)
			s->kstack = kernel_hash(k, bpf_get_stack(ctx, k->pc, sizeof(k->pc), 0));
	}
	u = bpf_map_lookup_elem(&unwinds, &key);
	if (no_user_stack(p)) {
		s->flags |= WS_S_NO_USER;
	} else if (u) {
		uw_copy_regs(&u->regs, (void *)bpf_task_pt_regs(p));
		u->work.tls = p->thread.fsbase;
		uw_unwind_probe(&u->work, p->tgid, &u->regs, UW_MAX_FRAMES);
		if (u->work.out.end == UW_END_UNREADABLE && cfg_task_work) {
			/* A page is out: the thread itself can bring it in. */
			defer(t, p);
			s->flags |= WS_S_DEFERRED;
			s->ustack = t->ticket;
		} else if (too_early(u) && (raw = bpf_map_lookup_elem(&raws, &key))) {
			s->flags |= WS_S_DEFERRED;
			s->ustack = 1ull << 63 | __sync_fetch_and_add(&raw_tickets, 1);
			SEND_RAW(u, raw, t->id, s->ustack, p->tgid, bpf_probe_read_user);
		} else {
			s->ustack = managed_hash(&u->work.out, bpf_map_lookup_elem(&pythons, &key), p,
						READ_PROBE);
		}
	}
	send_sample(s);
}

static __always_inline void sample_on_cpu(struct ws_thread *t, struct task_struct *p,
					  struct bpf_perf_event_data *ctx)
{
	struct ws_sample s = { .state = WS_ON_CPU };

	s.ns = set_cpu_period ? set_cpu_period : cfg_cpu_period;
	sample_here(&s, t, p, ctx, ctx->regs.cs & 3);
}

/*
 * From the iterator: reads the stack of a thread that stays blocked, once a block, so that it is
 * known whatever becomes of the thread; and at the end charges what is still open.
 */
static __always_inline void read_ahead(struct ws_visit *v, struct ws_thread *t,
				       struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns(), period = set_period, seq = t->seq, hash = 0, open, n;
	bool blocked = t->state == WS_BLOCKED, end = set_iter == ITER_END;
	struct ws_sample s = {};

	if (!period || (!blocked && !(end && t->state == WS_RUNNABLE)))
		return;
	open = now - t->since;
	n = ((blocked ? t->credit_blocked : t->credit_runnable) + open) / period;
	if (!n || (!end && (t->read_seq == seq || open < 10 * period)))
		return;
	if (end)
		s.kstack = kernel_hash(&v->k, bpf_get_task_stack(p, v->k.pc, sizeof(v->k.pc), 0));
	if (!no_user_stack(p)) {
		uw_copy_regs(&v->u.regs, (void *)bpf_task_pt_regs(p));
		v->u.work.tls = p->thread.fsbase;
		uw_unwind_remote(&v->u.work, p->tgid, p, &v->u.regs, UW_MAX_FRAMES);
		if (t->seq == seq)
			hash = managed_hash(&v->u.work.out, &v->python, p, READ_REMOTE);
	} else {
		s.flags = WS_S_NO_USER;
	}
	if (t->seq != seq)
		return; /* it moved on, and will be charged where it does */
	t->read_seq = seq;
	if (!end) {
		if (hash && cfg_task_work)
			tell_resolved(t->id, t->ticket, hash);
		return;
	}
	s.id = t->id;
	s.pid = t->pid;
	s.tid = t->tid;
	s.cpu = t->cpu;
	s.ustack = hash;
	s.flags |= WS_S_OPEN;
	s.state = t->state;
	s.detail = t->detail;
	if (blocked)
		s.resource = waited_for(t, p, t->detail);
	s.flags |= wait_flags(t);
	s.begin = t->since;
	s.end = now;
	s.count = n;
	s.ns = n * period;
	send_sample(&s);
}
