/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Calls under way: where each began, matched to its end by the stack pointer; pairs of events and
 * system calls by their number. Ledgers are read under the record's sequence number, as programs at
 * user-space probes may be preempted.
 */
#pragma once
#include "call_sums.h"

u32 set_live = 0; /* calls count that begin while it is 1: the window */
const volatile u32 cfg_choose = 0; /* only processes in `targets` count: probes are not theirs alone */

/* What a probe of each kind costs the thread that meets it, in a row and cold, ns: by user space. */
u64 set_cost[2][16];

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_met);
} probes_met SEC(".maps");

/* Which functions' tail calls lead to which: function << 16 | the function that is called. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} tail_calls SEC(".maps");

/* With its head it fills 8 KiB. */
#define WS_DEPTH 48
struct ws_calls {
	u64 charged; /* cost of all probes that the thread has met, ns */
	u32 depth, pad0;
	struct ws_open open[WS_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ws_calls);
} open_calls SEC(".maps");

/* Pairs of events, and system calls: no stack, a place for each. */
#define WS_PAIRS 16
struct ws_pairs {
	struct ws_open open[WS_PAIRS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ws_pairs);
} open_pairs SEC(".maps");

/*
 * A probe was met; whether it was cold: code that ran in between has displaced its code and data in the caches
 * if the thread has been off the CPU since it last met one of this kind. `t` may be missing.
 */
static __always_inline bool note_met(struct task_struct *p, struct ws_thread *t, u64 cookie)
{
	u32 zero = 0, site = WS_COOKIE_SITE(cookie);
	struct ws_met *m = bpf_map_lookup_elem(&probes_met, &zero);
	u64 stay;

	if (!m)
		return false;
	ADD(m->kind[site].count, 1);
	/* A record changes at each switch, and is at hand: the task's own counts often are not. */
	stay = t ? t->id << 32 | (u32)t->seq : (u64)p->pid << 32 | (u32)(p->nvcsw + p->nivcsw);
	if (m->stay[site] == stay)
		return false;
	m->stay[site] = stay;
	ADD(m->kind[site].cold, 1);
	return true;
}

static __always_inline bool is_live(void)
{
	return *(volatile u32 *)&set_live;
}

/* Whether the calls of a task count. For a task with a record `t` that was decided when the record was made. */
static __always_inline bool wanted(struct task_struct *p, struct ws_thread *t)
{
	u32 tgid = p->tgid;

	if (t)
		return true;
	if (tgid == cfg_self)
		return false;
	return !cfg_choose || bpf_map_lookup_elem(&targets, &tgid);
}

/* A function begins: its counts, if the thread is one that counts. */
static __always_inline struct ws_tally *entered(struct task_struct *p, struct ws_thread *t,
						u64 cookie)
{
	struct ws_tally *tally;

	if (!is_live() || !wanted(p, t))
		return NULL;
	tally = tally_of(WS_COOKIE_FUNCTION(cookie));
	if (tally)
		ADD(tally->entered, 1);
	return tally;
}

/* Makes the record of the running thread, at its first call. */
static __always_inline struct ws_thread *new_record(struct task_struct *p)
{
	struct ws_thread *t;
	struct ws_cpu *c;

	t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		lost(WS_L_NO_RECORD);
		return NULL;
	}
	c = this_cpu();
	t->pid = p->tgid;
	t->tid = p->pid;
	t->id = __sync_fetch_and_add(&next_id, 1);
	t->at.kernel.exec = p->se.sum_exec_runtime;
	t->at.kernel.delay = p->sched_info.run_delay;
	t->at.block_reason = WS_OTHER;
	t->at.cpu = bpf_get_smp_processor_id();
	t->turn.irq0 = c ? c->irq_ns : 0;
	t->turn.excl0 = excluded_ns(p);
	t->birth.time = t->at.since = bpf_ktime_get_ns();
	barrier();
	/* A switch in between added time to a record without a beginning. */
	__builtin_memset(&t->acc, 0, sizeof(t->acc));
	t->at.state = WS_ON_CPU;
	return t;
}

/* The running thread's sums up to now, the open interval included; returns now. */
static __always_inline u64 read_books(struct ws_thread *t, u64 *books)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 before, now = 0, open, came, queued;

	for (int try = 0; try < 4; try++) {
		before = *(volatile u64 *)&t->seq;
		barrier();
		books[0] = t->acc.on_cpu;
		for (int i = 0; i < WS_PARTS; i++)
			books[1 + i] = t->acc.runnable[i];
		for (int i = 0; i < WS_REASONS; i++)
			books[1 + WS_PARTS + i] = t->acc.blocked[i];
		books[1 + WS_PARTS + WS_OTHER] += t->acc.limbo;
		now = bpf_ktime_get_ns();
		open = elapsed(t, now);
		came = unseen_arrival(t, p, now);
		if (came) {
			queued = unseen_queueing(t, p, came);
			books[0] += now - came;
			books[1 + WS_WOKEN] += queued;
			open -= now - came + queued;
		}
		if (t->at.state == WS_BLOCKED && t->at.detail < WS_REASONS)
			books[1 + WS_PARTS + t->at.detail] += open;
		else if (t->at.state == WS_RUNNABLE && t->at.detail < WS_PARTS)
			books[1 + t->at.detail] += open;
		else
			books[0] += open;
		barrier();
		if (!(before & 1) && before == *(volatile u64 *)&t->seq)
			return now;
	}
	lost(WS_L_TORN);
	return now;
}

struct ws_dropping {
	struct ws_calls *c;
	u64 sp;
	u32 function;
};

static long drop_one(u32 i, struct ws_dropping *d)
{
	u32 top = d->c->depth - 1, jumps;
	struct ws_tally *tally;
	struct ws_open *o;

	if (top >= WS_DEPTH)
		return 1;
	o = &d->c->open[top];
	if (o->sp > d->sp)
		return 1;
	/* A tail call: this function returns to the caller of the function that jumped; that call is open. */
	jumps = o->function << 16 | d->function;
	if (o->sp == d->sp && bpf_map_lookup_elem(&tail_calls, &jumps))
		return 1;
	tally = tally_of(o->function);
	if (tally)
		ADD(tally->left, 1);
	d->c->depth = top;
	return 0;
}

/*
 * Drops the calls that are still on the stack of open calls although the thread stands above them: it has left
 * them.
 */
static __always_inline void drop_left(struct ws_calls *c, u64 sp, u32 function)
{
	struct ws_dropping d = { c, sp, function };

	if (c->depth)
		bpf_loop(WS_DEPTH, drop_one, &d, 0);
}

/* `sp`: where the return address is. Global: verified once. */
__noinline int ws_call_begins(u64 cookie, u64 sp)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u32 site = WS_COOKIE_SITE(cookie), top;
	bool cold = note_met(p, t, cookie);
	struct ws_tally *tally = entered(p, t, cookie);
	struct ws_calls *c;
	struct ws_open *o;

	if (!tally)
		return 0;
	if (!t)
		t = new_record(p);
	c = bpf_task_storage_get(&open_calls, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || !c) {
		lost(WS_L_NO_RECORD);
		return 0;
	}
	drop_left(c, sp, WS_COOKIE_FUNCTION(cookie));
	c->charged += set_cost[cold][site];
	top = c->depth;
	if (top >= WS_DEPTH) {
		ADD(tally->deep, 1);
		return 0;
	}
	o = &c->open[top];
	o->sp = sp;
	o->function = WS_COOKIE_FUNCTION(cookie);
	o->entry = site == WS_AT_STEPPED_ENTRY;
	o->charged = c->charged;
	c->depth = top + 1;
	o->begin = read_books(t, o->books);
	return 0;
}

struct ws_closing {
	struct ws_calls *c;
	u64 sp;
	u32 function, closed;
	struct ws_ending e;
};

static long close_one(u32 i, struct ws_closing *n)
{
	u32 top = n->c->depth - 1;
	struct ws_tally *tally;
	struct ws_open *o;

	if (top >= WS_DEPTH)
		return 1;
	o = &n->c->open[top];
	if (o->sp > n->sp)
		return 1;
	/* With a return probe each call ends by itself, though several return at once. */
	if (n->e.site == WS_AT_RETURN && o->sp == n->sp && (n->closed || o->function != n->function))
		return 1;
	if (o->sp == n->sp || n->e.site == WS_AT_CATCH) {
		ws_add_call(o, &n->e);
		n->closed++;
	} else {
		tally = tally_of(o->function);
		if (tally)
			ADD(tally->left, 1);
	}
	n->c->depth = top;
	return 0;
}

/*
 * The thread returns through the return address at `sp`: every open call with its return address there or
 * below has ended. Global: verified once.
 */
__noinline int ws_call_ends(u64 cookie, u64 sp)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_closing n = {
		.sp = sp,
		.function = WS_COOKIE_FUNCTION(cookie),
		.e.site = WS_COOKIE_SITE(cookie),
	};
	bool cold = note_met(p, t, cookie);
	struct ws_tally *tally;

	if (!wanted(p, t))
		return 0;
	n.c = bpf_task_storage_get(&open_calls, p, 0, 0);
	if (t && n.c) {
		n.e.now = read_books(t, n.e.books);
		n.e.charged = n.c->charged;
		n.c->charged += set_cost[cold][n.e.site & 15]; /* the mask is for the verifier */
		if (n.c->depth)
			bpf_loop(WS_DEPTH, close_one, &n, 0);
	}
	/* A jump may stay within the function, in a part that was put elsewhere. */
	if (n.closed || WS_COOKIE_FOLLOWED(cookie) ||
	    (n.e.site != WS_AT_RETURN && n.e.site != WS_AT_RET))
		return 0;
	/* It had begun before the probes were there. */
	tally = is_live() ? tally_of(n.function) : NULL;
	if (tally)
		ADD(tally->begun, 1);
	return 0;
}

static __always_inline struct ws_open *pair_of(struct ws_pairs *c, u32 function)
{
	return &c->open[function & (WS_PAIRS - 1)];
}

/* The first of a pair of events. */
__noinline int ws_pair_begins(u64 cookie)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u32 function = WS_COOKIE_FUNCTION(cookie);
	struct ws_tally *tally;
	struct ws_pairs *c;
	struct ws_open *o;

	note_met(p, t, cookie);
	tally = entered(p, t, cookie);
	if (!tally)
		return 0;
	if (!t)
		t = new_record(p);
	c = bpf_task_storage_get(&open_pairs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || !c) {
		lost(WS_L_NO_RECORD);
		return 0;
	}
	o = pair_of(c, function);
	if (o->begin)
		ADD(tally->left, 1);
	o->function = function;
	o->begin = read_books(t, o->books);
	return 0;
}

/* The second. */
__noinline int ws_pair_ends(u64 cookie)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u32 function = WS_COOKIE_FUNCTION(cookie);
	struct ws_ending e = { .site = WS_COOKIE_SITE(cookie) };
	struct ws_tally *tally;
	struct ws_pairs *c;
	struct ws_open *o;

	note_met(p, t, cookie);
	if (!wanted(p, t))
		return 0;
	c = bpf_task_storage_get(&open_pairs, p, 0, 0);
	o = c ? pair_of(c, function) : NULL;
	if (t && o && o->begin && o->function == function) {
		e.now = read_books(t, e.books);
		ws_add_call(o, &e);
		o->begin = 0;
		return 0;
	}
	tally = is_live() ? tally_of(function) : NULL;
	if (tally)
		ADD(tally->begun, 1);
	return 0;
}
