// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * Calls of single functions: their number, the length of each, and the states that its time was spent in.
 *
 *   entry and exit probes   a stack of open calls per thread, matched by the stack pointer
 *   sched_switch, wakeups   the ledger of each thread that has called (ledger.h): what its sums grew
 *                           by between entry and exit is the call's own ledger
 *   fork                    children of targets are targets
 *
 * It is an object of its own, so that it adds nothing to the programs that a recording loads. A thread gets its
 * record at its first call, in its own context, so threads that never call cost one pointer test a switch. This
 * file has the programs that are attached; call_open.h matches ends to beginnings, call_sums.h adds up, call_jump.h
 * recognises tail calls.
 *
 * Not done here: stacks, names, quantiles.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#include "maps.h"

/* Interpreters' own locks are not distinguished from others here. */
enum { PY_OTHER_LOCK, PY_GIL, PY_SLEEP };
struct py_wait {
	u32 tgid, tid;
	u64 address;
	bool timed, here;
};
static __always_inline int py_lock(const struct py_wait *wait)
{
	return PY_OTHER_LOCK;
}
static __always_inline u64 py_own_lock(u32 tgid, u64 address)
{
	return address;
}

/* Turns are neither reported one by one nor counted by length. */
static __always_inline void tell_turn(struct ws_thread *t, u64 time, u64 block,
				      struct ws_queued queued)
{
}

static __always_inline void count_turn(struct ws_thread *t, struct task_struct *p, u64 waited,
				       u32 part)
{
}

#include "reason.h"
#include "ledger.h"

/* Requests in flight are not followed here. */
static __always_inline u8 has_in_flight(struct ws_thread *t, struct task_struct *p, u8 reason)
{
	return 0;
}

static __always_inline u8 was_in_flight(struct ws_thread *t, u64 now)
{
	return 0;
}

const volatile u32 cfg_count_only = 0; /* system calls: no lengths */
u64 forked; /* children of targets born since */
u64 execed; /* times that targets named by user space began another program since */

#include "call_open.h"
#include "call_jump.h"

/* In `targets`: a child of one. Those that user space names have another value. */
#define WS_TARGET_BORN 2

/* System call number to function + 1; 0: not asked for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WS_SYSCALLS);
	__type(key, u32);
	__type(value, u32);
} calls_of SEC(".maps");

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
	struct task_struct *p = bpf_get_current_task_btf();

	note_met(p, NULL, cookie);
	entered(p, NULL, cookie);
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
	struct ws_switch s = { prev, next, prev_state, preempt };
	struct ws_cpu *c = this_cpu();
	struct ws_hook h = { ctx, c };
	u64 start, waited;

	if (!c)
		return 0;
	if (!out) {
		barrier_var(in); /* or clang merges the two tests into pointer arithmetic */
		if (!in)
			return 0;
	}
	start = time_run(c, WS_AT_EVENT);
	h.now = event_time(c, out ? prev : next);
	h.cpu = bpf_get_smp_processor_id();
	if (out) {
		come_unseen(&h, out, prev, &waited);
		leave_cpu(&h, out, &s);
	}
	if (in)
		enter_cpu(&h, in, next);
	run_timed(c, start);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(ws_calls_wakeup, struct task_struct *p)
{
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_cpu *c = this_cpu();

	if (!t || !c)
		return 0;
	if (t->at.state == WS_BLOCKED)
		waits_for(t, told_by_request(p, t->at.detail, RING_WAKER));
	wake(t, p, event_time(c, p), is_throttled(p) ? WS_THROTTLED : WS_WOKEN);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(ws_calls_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u8 born = WS_TARGET_BORN;

	if (from == to || !bpf_map_lookup_elem(&targets, &from))
		return 0;
	__sync_fetch_and_add(&forked, 1);
	bpf_map_update_elem(&targets, &to, &born, BPF_ANY);
	return 0;
}

/* A new program has a new stack. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(ws_calls_exec, struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
{
	struct ws_calls *c = bpf_task_storage_get(&open_calls, p, 0, 0);
	u32 tgid = p->tgid;
	u8 *how = bpf_map_lookup_elem(&targets, &tgid);

	if (how && *how != WS_TARGET_BORN)
		__sync_fetch_and_add(&execed, 1);
	if (c)
		drop_left(c, -1, -1);
	return 0;
}
