/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Attribution of time to stacks.
 *
 * A stretch of blocked or runnable time that is as long as a period or longer is charged to its
 * stack as it is: nothing is left to chance. Shorter ones fill a credit per thread and state; when it
 * passes a period, that period is charged to the stack that crosses, and the remainder is kept. A random
 * first phase makes this an unbiased sample by time. The cost is bounded by off-CPU
 * time and not by the switch rate.
 *
 * The kernel stack is taken at the switch-in itself (the thread is still where it slept). The thread reads its user
 * stack itself, a moment later (deferred_user_stack.h). Until then samples carry a *ticket*, which stands for "the
 * user stack of this stay in the kernel".
 *
 * The task iterator reads the stacks of threads that stay blocked ahead, so that a stack is known even if the
 * thread is killed in its sleep.
 */
#pragma once
#include "user_unwind.h"
#include "publish.h"
#include "managed.h"
#include "raw.h"
#include "scratch.h"
#include "deferred_user_stack.h"
#include "resource.h"
#include "in_flight.h"

/* Memory of the task iterator, of which there is one. */
struct ws_iter_scratch {
	struct ws_dump d;
	struct ws_kstack k;
	struct ws_unwind u;
	struct py_work python;
	struct ws_histogram_event s;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_iter_scratch);
} iter_scratch SEC(".maps");

/* Flags of a sample for the present or the last wait of a thread: requests on its connections. */
static __always_inline u32 wait_flags(struct ws_thread *t, u8 asking)
{
	return (asking ? WS_S_IN_FLIGHT : 0) | (t->wait.talks ? WS_S_TALKS : 0) |
	       (asking & WS_AWAITS ? WS_S_AWAITS : 0);
}

/*
 * Takes from `credit` the time to charge for an interval of `length` ns, which `credit` includes. An interval of at
 * least a period is charged as it is; shorter ones by the whole periods that they have filled.
 */
static __always_inline u64 take_charge(u64 *credit, u64 length, u64 period)
{
	u64 ns = length >= period && length <= *credit ? length : *credit / period * period;

	*credit -= ns;
	return ns;
}

/* A random part of a period. Charging whole periods is unbiased if a thread's first one begins anywhere in its time. */
static __always_inline u64 phase(u64 period)
{
	u64 part = bpf_get_prandom_u32();

	return part * (period >> 32) + (part * (u32)period >> 32);
}

/* Draws new phases of a thread, and adds its last blocked and runnable time (ns). */
static __always_inline void draw_phases(struct ws_thread *t, u64 period, u64 blocked, u64 queued)
{
	t->credit.blocked = phase(period) + blocked;
	t->credit.runnable = phase(period) + queued;
	t->wakeup.phases = set_phases;
}

static __always_inline bool phases_are_old(struct ws_thread *t)
{
	return unlikely(t->wakeup.phases != (u8)set_phases);
}

/* At a switch-in: charges blocked and runnable time to the present stack. */
static __always_inline void charge_off_cpu(struct ws_hook *h, struct ws_thread *t,
					   struct task_struct *p, struct ws_queued wait)
{
	u64 period = set_period, blocked = 0, queued = 0, start;
	struct ws_sample s = {};
	struct ws_kstack *k;
	u32 key = KSTACK_SWITCH;

	if (unlikely(!period)) {
		/* Off-CPU stacks are given up: the time until they are taken again is charged to none. */
		t->credit.blocked = t->credit.runnable = t->samples.early = 0;
		return;
	}
	if (phases_are_old(t))
		draw_phases(t, period, t->at.block_len, wait.length);
	if (!unlikely(t->credit.blocked >= period || t->credit.runnable >= period || t->samples.early))
		return;
	start = bpf_ktime_get_ns();
	blocked = take_charge(&t->credit.blocked, t->at.block_len, period);
	queued = take_charge(&t->credit.runnable, wait.length, period);
	if (blocked || queued) {
		h->c->cost.charges++;
		h->c->cost.charged += blocked + queued;
	}

	s.id = t->id;
	s.pid = t->pid;
	s.tid = t->tid;
	s.cpu = h->cpu;
	k = bpf_map_lookup_elem(&kstacks, &key);
	if (k)
		s.kstack = kernel_hash(k, bpf_get_task_stack(p, k->pc, sizeof(k->pc), 0));
	if (no_user_stack(p)) {
		s.flags = WS_S_NO_USER;
	} else {
		defer(h->ctx, t, p);
		s.flags = WS_S_DEFERRED;
		s.ustack = t->stacks.ticket;
	}
	if (t->samples.early) {
		s.state = WS_ON_CPU;
		s.begin = s.end = h->now;
		s.count = t->samples.early;
		s.ns = t->samples.early * set_cpu_period;
		send_sample(&s);
		t->samples.early = 0;
	}
	if (blocked) {
		s.state = WS_BLOCKED;
		s.flags |= wait_flags(t, t->wait.asking);
		s.detail = t->at.block_reason;
		s.resource = waited_for(t, p, t->at.block_reason);
		s.begin = t->turn.block_begin;
		s.end = t->turn.block_begin + t->at.block_len;
		s.count = blocked / period;
		s.ns = blocked;
		send_sample(&s);
	}
	if (queued) {
		s.state = WS_RUNNABLE;
		s.resource = 0;
		s.detail = wait.part;
		s.begin = h->now - wait.length;
		s.end = h->now;
		s.count = queued / period;
		s.ns = queued;
		send_sample(&s);
	}
	h->c->cost.taken_ns += bpf_ktime_get_ns() - start;
}

/* Completes and sends a sample of the thread that runs on this CPU now. The caller sets WS_S_USER_MODE. */
static __always_inline void sample_here(struct ws_sample *s, struct ws_thread *t,
					struct task_struct *p, void *ctx)
{
	struct ws_kstack *k;
	struct ws_unwind *u;
	struct ws_slot *slot;
	u32 zero = 0, key = KSTACK_TIMER;

	s->id = t->id;
	s->pid = t->pid;
	s->tid = t->tid;
	s->cpu = bpf_get_smp_processor_id();
	s->count = 1;
	s->begin = s->end = bpf_ktime_get_ns();
	if (!(s->flags & WS_S_USER_MODE)) {
		k = bpf_map_lookup_elem(&kstacks, &key);
		if (k)
			s->kstack = kernel_hash(k, bpf_get_stack(ctx, k->pc, sizeof(k->pc), 0));
	}
	u = bpf_map_lookup_elem(&unwinds, &zero);
	if (no_user_stack(p)) {
		s->flags |= WS_S_NO_USER;
	} else if (u) {
		uw_copy_regs(&u->regs, (void *)bpf_task_pt_regs(p));
		u->work.tls = p->thread.fsbase;
		uw_unwind_probe(&u->work, p->tgid, &u->regs);
		if (u->work.out.end == UW_END_UNREADABLE && cfg_task_work) {
			/* A page is not in memory: the thread itself can bring it in, by task work. */
			defer(ctx, t, p);
			s->flags |= WS_S_DEFERRED;
			s->ustack = t->stacks.ticket;
		} else if (lacks_tables(u, p->tgid) && (slot = take_slot())) {
			s->flags |= WS_S_DEFERRED;
			s->ustack = 1ull << 63 | __sync_fetch_and_add(&raw_tickets, 1);
			SEND_RAW(u, &slot->raw, t->id, s->ustack, p->tgid, bpf_probe_read_user, 0);
			give_slot(slot);
		} else {
			s->ustack = managed_hash(u, bpf_map_lookup_elem(&pythons, &zero), p,
						 READ_PROBE);
		}
	}
	send_sample(s);
}

static __always_inline void sample_on_cpu(struct ws_thread *t, struct task_struct *p,
					  struct bpf_perf_event_data *ctx)
{
	struct ws_sample s = { .state = WS_ON_CPU };

	s.ns = set_cpu_period;
	s.flags = ctx->regs.cs & 3 ? WS_S_USER_MODE : 0;
	sample_here(&s, t, p, ctx);
}

/*
 * Task iterator: reads the stack of a thread that stays blocked, once a block, so that it is known even if the thread
 * is killed. At the end it charges the open interval, too.
 */
static __always_inline void read_blocked_stack(struct ws_iter_scratch *v, struct ws_thread *t,
				       struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns(), period = set_period, seq = t->seq, hash = 0, open, credit, ns;
	u64 futex = 0;
	bool blocked = t->at.state == WS_BLOCKED, end = set_iter == ITER_END;
	struct ws_sample s = {};
	u64 until = waits_since(t, p) ?: now;

	if (!period || (!blocked && !(end && t->at.state == WS_RUNNABLE)))
		return;
	open = until - t->at.since;
	credit = blocked ? t->credit.blocked : t->credit.runnable;
	credit = (phases_are_old(t) ? phase(period) : credit) + open;
	ns = take_charge(&credit, open, period);
	if (!ns || (!end && (t->stacks.ahead == seq || open < 10 * period)))
		return;
	if (end)
		s.kstack = kernel_hash(&v->k, bpf_get_task_stack(p, v->k.pc, sizeof(v->k.pc), 0));
	if (!no_user_stack(p)) {
		uw_copy_regs(&v->u.regs, (void *)bpf_task_pt_regs(p));
		v->u.work.tls = p->thread.fsbase;
		if (blocked && t->at.detail == WS_LOCK)
			futex = limited_futex(p);
		uw_unwind_remote(&v->u.work, p->tgid, p, &v->u.regs);
		if (t->seq == seq)
			hash = managed_hash(&v->u, &v->python, p, READ_REMOTE);
	} else {
		s.flags = WS_S_NO_USER;
	}
	if (t->seq != seq)
		return; /* the thread ran: its next switch-in charges the time */
	t->stacks.ahead = seq;
	if (!end) {
		if (hash)
			tell_early_stack(t->id, t->stacks.ticket, hash, futex);
		return;
	}
	s.id = t->id;
	s.pid = t->pid;
	s.tid = t->tid;
	s.cpu = t->at.cpu;
	s.ustack = hash;
	s.flags |= WS_S_OPEN;
	s.state = t->at.state;
	s.detail = blocked ? told_since(p, t->at.detail) : t->at.detail;
	if (blocked) {
		monitor_awaited(t, p);
		s.resource = waited_for(t, p, s.detail);
	}
	s.flags |= wait_flags(t, blocked ? was_in_flight(t, until) : t->wait.asking);
	s.begin = t->at.since;
	s.end = until;
	s.count = ns / period;
	s.ns = ns;
	send_sample(&s);
}
