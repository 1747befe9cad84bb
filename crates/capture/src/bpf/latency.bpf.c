// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * Calls of single functions: how many, how long each, and what it spent that time on.
 *
 *   entry and exit probes   a stack of open calls per thread, matched by the stack pointer
 *   sched_switch, wakeups   the ledger of each thread that has called (ledger.h): what its sums grew
 *                           by between entry and exit is the call's own ledger
 *   fork                    children of targets are targets
 *
 * An object of its own: what is loaded for a recording does not grow by it. A thread gets its record
 * at its first call, in its own context, so threads that never call cost one pointer test a switch.
 *
 * Programs at user-space probes may be preempted (not moved to another CPU), so that sums per CPU are
 * added to atomically, and books are read under the record's sequence number.
 *
 * Not done here: stacks, names, quantiles.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#include "maps.h"

/* Interpreters' own locks are not told from others here. */
static __always_inline bool py_is_gil(u32 tgid, u64 address)
{
	return false;
}

/* Turns are neither told one by one nor counted by length. */
static __always_inline void tell_turn(struct ws_thread *t, u64 time, u64 block, u64 waited, u32 part)
{
}

static __always_inline void shape_turn(struct ws_thread *t, struct task_struct *p, u64 waited,
				       u32 part)
{
}

#include "reason.h"
#include "ledger.h"
#include "calls.h"

/* Requests in flight are not followed here. */
static __always_inline bool has_in_flight(struct ws_thread *t)
{
	return false;
}

const volatile u32 cfg_count_only = 0; /* system calls: no lengths */
const volatile u32 cfg_choose = 0; /* only processes in `targets` count: probes are not theirs alone */

/* What a probe of each kind costs the thread that meets it, ns: measured by user space. */
u64 set_cost[16];
/* How much longer than it is a call seems, by kind of entry and exit, ns. */
u64 set_bias[2][16];
u64 set_slow = -1; /* calls of at least this length are reported one by one, ns */
u64 forked;        /* children of targets born since */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_tally);
} tallies SEC(".maps");

/* Function × octave. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_fine);
} fine SEC(".maps");

/* Function × octave × part. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_coarse);
} coarse SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_jump);
} jumps SEC(".maps");

/* How often probes of each kind were met, by targets or not. */
struct ws_met {
	u64 count[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_met);
} probes_met SEC(".maps");

/* System call number to function + 1; 0: not asked for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WS_SYSCALLS);
	__type(key, u32);
	__type(value, u32);
} calls_of SEC(".maps");

/* A call that has not ended. */
struct ws_open {
	u64 begin;
	u64 sp;      /* at the entry: where its return address is */
	u64 charged; /* the thread's, at the entry */
	u32 function;
	u32 entry;   /* 1: its instruction is single-stepped */
	u64 books[WS_BOOKS];
};

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

#define ADD(place, n) __sync_fetch_and_add(&(place), (n))

static __always_inline void note_met(u64 cookie)
{
	u32 zero = 0;
	struct ws_met *m = bpf_map_lookup_elem(&probes_met, &zero);

	if (m)
		ADD(m->count[WS_COOKIE_SITE(cookie)], 1);
}

static __always_inline bool wanted(struct task_struct *p)
{
	u32 tgid = p->tgid;

	if (tgid == cfg_self)
		return false;
	return !cfg_choose || bpf_map_lookup_elem(&targets, &tgid);
}

/* The record of the running thread, made at its first call. */
static __always_inline struct ws_thread *own_record(struct task_struct *p)
{
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_cpu *c;

	if (t)
		return t;
	t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		lost(WS_L_NO_RECORD);
		return NULL;
	}
	c = this_cpu();
	t->pid = p->tgid;
	t->tid = p->pid;
	t->id = __sync_fetch_and_add(&next_id, 1);
	t->exec = p->se.sum_exec_runtime;
	t->delay = p->sched_info.run_delay;
	t->block_reason = WS_OTHER;
	t->cpu = bpf_get_smp_processor_id();
	t->irq0 = c ? c->irq_ns : 0;
	t->excl0 = excluded_ns(p);
	t->birth = t->since = bpf_ktime_get_ns();
	barrier();
	/* A switch in between added time to a record without a beginning. */
	__builtin_memset(&t->acc, 0, sizeof(t->acc));
	t->state = WS_ON_CPU;
	return t;
}

/* The thread's sums up to now, the open interval included; returns now. */
static __always_inline u64 read_books(struct ws_thread *t, u64 *books)
{
	u64 before, now = 0, open;

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
		if (t->state == WS_BLOCKED && t->detail < WS_REASONS)
			books[1 + WS_PARTS + t->detail] += open;
		else if (t->state == WS_RUNNABLE && t->detail < WS_PARTS)
			books[1 + t->detail] += open;
		else
			books[0] += open;
		barrier();
		if (!(before & 1) && before == *(volatile u64 *)&t->seq)
			return now;
	}
	lost(WS_L_TORN);
	return now;
}

/* Global, so that the verifier does not follow each of its ways on. */
__noinline u32 ws_octave_of(u64 ns)
{
	u32 high = 0;

	if (ns >> 42)
		return WS_OCTAVES - 1;
	for (int step = 32; step; step >>= 1) {
		if (ns >> step >> high)
			high += step;
	}
	return high < 6 ? 0 : high - 5;
}

static __always_inline void raise(u64 *most, u64 to)
{
	u64 old = *(volatile u64 *)most;

	for (int try = 0; try < 8 && old < to; try++) {
		u64 found = __sync_val_compare_and_swap(most, old, to);

		if (found == old)
			break;
		old = found;
	}
}

static __always_inline struct ws_tally *tally_of(u32 function)
{
	return bpf_map_lookup_elem(&tallies, &function);
}

struct ws_ending {
	u64 now, charged;
	u64 books[WS_BOOKS];
	u32 site;
};

/* Adds a call that has ended. Global: verified once. */
__noinline int ws_add_call(struct ws_open *o, struct ws_ending *e)
{
	u64 wall, probes, grown, octave, part, longest;
	struct ws_coarse *sums;
	struct ws_tally *tally;
	struct ws_slow *slow;
	struct ws_fine *lengths;
	u32 key;

	if (!o || !e)
		return 0;
	tally = tally_of(o->function);
	if (!tally)
		return 0;
	wall = (s64)(e->now - o->begin) > 0 ? e->now - o->begin : 0;
	probes = e->charged - o->charged + set_bias[o->entry & 1][e->site & 15];
	/* Probes take CPU time, so no more of it than there was. */
	grown = (s64)(e->books[0] - o->books[0]) > 0 ? e->books[0] - o->books[0] : 0;
	probes = clamp(probes, clamp(grown, wall));
	wall -= probes;
	octave = ws_octave_of(wall);
	part = octave ? (wall >> (octave - 1)) & (WS_PARTS_FINE - 1) : wall & (WS_PARTS_FINE - 1);
	if (wall >> 42)
		part = WS_PARTS_FINE - 1;

	ADD(tally->ended, 1);
	ADD(tally->wall, wall);
	if (e->site == WS_AT_JUMP || e->site == WS_AT_BRANCH || e->site == WS_AT_INDIRECT)
		ADD(tally->by_jump, 1);
	if (e->site == WS_AT_CATCH)
		ADD(tally->by_catch, 1);
	raise(&tally->longest, wall);

	key = o->function * WS_OCTAVES + octave;
	lengths = bpf_map_lookup_elem(&fine, &key);
	if (lengths)
		ADD(lengths->count[part & (WS_PARTS_FINE - 1)], 1);
	key = key * WS_PARTS_COARSE + part / (WS_PARTS_FINE / WS_PARTS_COARSE);
	sums = bpf_map_lookup_elem(&coarse, &key);
	if (sums) {
		ADD(sums->count, 1);
		ADD(sums->wall, wall);
	}
	for (int i = 0; i < WS_BOOKS; i++) {
		grown = e->books[i] - o->books[i];
		if ((s64)grown < 0)
			grown = 0; /* booked elsewhere since, from the kernel's own counters */
		if (!i)
			grown -= probes;
		o->books[i] = grown;
		if (sums && grown)
			ADD(sums->books[i], grown);
	}
	longest = set_slow;
	if (wall < longest)
		return 0;
	slow = bpf_ringbuf_reserve(&events, sizeof(*slow), 0);
	if (!slow) {
		lost(WS_L_RING_SAMPLE);
		return 0;
	}
	slow->head.kind = WS_EV_SLOW;
	slow->head.size = sizeof(*slow);
	slow->begin = o->begin;
	slow->end = e->now;
	slow->wall = wall;
	__builtin_memcpy(slow->books, o->books, sizeof(slow->books));
	slow->function = o->function;
	slow->pid = bpf_get_current_pid_tgid() >> 32;
	slow->tid = (u32)bpf_get_current_pid_tgid();
	slow->pad0 = 0;
	bpf_get_current_comm(slow->comm, sizeof(slow->comm));
	bpf_ringbuf_submit(slow, ring_flags());
	return 0;
}

struct ws_dropping {
	struct ws_calls *c;
	u64 sp;
};

static long drop_one(u32 i, struct ws_dropping *d)
{
	u32 top = d->c->depth - 1;
	struct ws_tally *tally;

	if (top >= WS_DEPTH || d->c->open[top].sp > d->sp)
		return 1;
	tally = tally_of(d->c->open[top].function);
	if (tally)
		ADD(tally->left, 1);
	d->c->depth = top;
	return 0;
}

/* Calls that are still on the stack although the thread stands above them have been left. */
static __always_inline void drop_left(struct ws_calls *c, u64 sp)
{
	struct ws_dropping d = { c, sp };

	if (c->depth)
		bpf_loop(WS_DEPTH, drop_one, &d, 0);
}

/* `sp`: where the return address is. Global: verified once. */
__noinline int ws_call_begins(u64 cookie, u64 sp)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u32 function = WS_COOKIE_FUNCTION(cookie), site = WS_COOKIE_SITE(cookie), top;
	struct ws_tally *tally;
	struct ws_thread *t;
	struct ws_calls *c;
	struct ws_open *o;

	note_met(cookie);
	if (!wanted(p))
		return 0;
	tally = tally_of(function);
	if (!tally)
		return 0;
	ADD(tally->entered, 1);
	t = own_record(p);
	c = bpf_task_storage_get(&open_calls, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || !c) {
		lost(WS_L_NO_RECORD);
		return 0;
	}
	drop_left(c, sp);
	c->charged += set_cost[site];
	top = c->depth;
	if (top >= WS_DEPTH) {
		ADD(tally->deep, 1);
		return 0;
	}
	o = &c->open[top];
	o->sp = sp;
	o->function = function;
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
	/* By a return probe each call ends by itself, though several return at once. */
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
 * The thread returns to what called at stack pointer `sp`: every call from there has ended. Global:
 * verified once.
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
	struct ws_tally *tally;

	note_met(cookie);
	if (!wanted(p))
		return 0;
	n.c = bpf_task_storage_get(&open_calls, p, 0, 0);
	if (t && n.c) {
		n.e.now = read_books(t, n.e.books);
		n.e.charged = n.c->charged;
		n.c->charged += set_cost[n.e.site & 15];
		if (n.c->depth)
			bpf_loop(WS_DEPTH, close_one, &n, 0);
	}
	/* A jump may stay within the function, in a part that was put elsewhere. */
	if (n.closed || WS_COOKIE_FOLLOWED(cookie) ||
	    (n.e.site != WS_AT_RETURN && n.e.site != WS_AT_RET))
		return 0;
	tally = tally_of(n.function);
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
	u32 function = WS_COOKIE_FUNCTION(cookie);
	struct ws_tally *tally;
	struct ws_pairs *c;
	struct ws_thread *t;
	struct ws_open *o;

	note_met(cookie);
	if (!wanted(p))
		return 0;
	tally = tally_of(function);
	if (!tally)
		return 0;
	ADD(tally->entered, 1);
	t = own_record(p);
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

	note_met(cookie);
	if (!wanted(p))
		return 0;
	c = bpf_task_storage_get(&open_pairs, p, 0, 0);
	o = c ? pair_of(c, function) : NULL;
	if (t && o && o->begin && o->function == function) {
		e.now = read_books(t, e.books);
		ws_add_call(o, &e);
		o->begin = 0;
		return 0;
	}
	tally = tally_of(function);
	if (tally)
		ADD(tally->begun, 1);
	return 0;
}

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

static __always_inline int met(struct pt_regs *ctx, u64 cookie)
{
	u64 sp = ctx->sp + WS_COOKIE_DEPTH(cookie);

	switch (WS_COOKIE_SITE(cookie)) {
	case WS_AT_ENTRY:
	case WS_AT_STEPPED_ENTRY:
		return ws_call_begins(cookie, sp);
	case WS_AT_BEGIN:
		return ws_pair_begins(cookie);
	case WS_AT_END:
		return ws_pair_ends(cookie);
	case WS_AT_BRANCH:
		if (!is_taken(WS_COOKIE_CONDITION(cookie), ctx->flags))
			return 0;
		break;
	case WS_AT_INDIRECT:
		if (!leads_out(ctx, WS_COOKIE_JUMP(cookie)))
			return 0;
		break;
	}
	return ws_call_ends(cookie, sp);
}

static __always_inline int counted(u64 cookie)
{
	struct ws_tally *tally;

	note_met(cookie);
	if (!wanted(bpf_get_current_task_btf()))
		return 0;
	tally = tally_of(WS_COOKIE_FUNCTION(cookie));
	if (tally)
		ADD(tally->entered, 1);
	return 0;
}

SEC("uprobe.multi")
int ws_met(struct pt_regs *ctx)
{
	return met(ctx, bpf_get_attach_cookie(ctx));
}

/* For kernels before 6.6, one probe at a time. */
SEC("uprobe")
int ws_met_single(struct pt_regs *ctx)
{
	return met(ctx, bpf_get_attach_cookie(ctx));
}

/* After the return, so that the return address is off the stack. */
SEC("uprobe.multi")
int ws_returned(struct pt_regs *ctx)
{
	return ws_call_ends(bpf_get_attach_cookie(ctx), ctx->sp - 8);
}

SEC("uprobe")
int ws_returned_single(struct pt_regs *ctx)
{
	return ws_call_ends(bpf_get_attach_cookie(ctx), ctx->sp - 8);
}

SEC("uprobe.multi")
int ws_counted(struct pt_regs *ctx)
{
	return counted(bpf_get_attach_cookie(ctx));
}

SEC("uprobe")
int ws_counted_single(struct pt_regs *ctx)
{
	return counted(bpf_get_attach_cookie(ctx));
}

/* Tracepoints of the kernel by name. */
SEC("tp")
int ws_point(void *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);

	switch (WS_COOKIE_SITE(cookie)) {
	case WS_AT_BEGIN:
		return ws_pair_begins(cookie);
	case WS_AT_END:
		return ws_pair_ends(cookie);
	}
	return counted(cookie);
}

/* The function that system call `number` stands for, as part of a cookie; none: negative. */
static __always_inline s64 call_asked(long number)
{
	u32 key = number, *function;

	if (key >= WS_SYSCALLS)
		return -1;
	function = bpf_map_lookup_elem(&calls_of, &key);
	return function ? (s64)*function - 1 : -1;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(ws_call_enters, struct pt_regs *regs, long number)
{
	s64 function = call_asked(number);

	if (function < 0)
		return 0;
	return cfg_count_only ? counted(function) : ws_pair_begins(function | WS_AT_BEGIN << 16);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(ws_call_exits, struct pt_regs *regs, long result)
{
	s64 function = call_asked(regs->orig_ax);

	return function < 0 ? 0 : ws_pair_ends(function | WS_AT_END << 16);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(ws_calls_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct ws_thread *out = bpf_task_storage_get(&threads, prev, 0, 0);
	struct ws_thread *in = bpf_task_storage_get(&threads, next, 0, 0);
	struct ws_cpu *c = this_cpu();
	u64 start, now;
	u32 cpu;

	if (!c)
		return 0;
	if (!out) {
		barrier_var(in); /* or clang merges the two tests into pointer arithmetic */
		if (!in)
			return 0;
	}
	start = time_run(c);
	now = event_time(out ? prev : next);
	cpu = bpf_get_smp_processor_id();
	if (out)
		leave_cpu(ctx, out, c, prev, preempt, prev_state, now, cpu);
	if (in)
		enter_cpu(in, c, next, now, cpu);
	run_timed(c, start);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(ws_calls_wakeup, struct task_struct *p)
{
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);

	if (t)
		wake(t, p, event_time(p));
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(ws_calls_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u8 one = 1;

	if (from == to || !bpf_map_lookup_elem(&targets, &from))
		return 0;
	__sync_fetch_and_add(&forked, 1);
	bpf_map_update_elem(&targets, &to, &one, BPF_ANY);
	return 0;
}

/* A new program has a new stack. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(ws_calls_exec, struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
{
	struct ws_calls *c = bpf_task_storage_get(&open_calls, p, 0, 0);

	if (c)
		drop_left(c, -1);
	return 0;
}
