/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The waker of a wait, and the waker's activities meanwhile.
 *
 * At a wake-up the waker is the current task. The sleeper's record tells whether its wait will be charged
 * to a stack. If so, the waker's stack is taken too, by the same periods and so with the same weight. The
 * waker's last changes of state are sent with it: user space divides the wait among the waker's activities.
 *
 * A wake-up by an interrupt names the interrupted task as the waker. User space detects that by the kernel
 * stack.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_wake);
} wakes SEC(".maps");

/* The waker, with record `w`, is the current task; its kernel stack is `ctx`'s own. */
static __always_inline void tell_wake(void *ctx, struct ws_thread *t, struct ws_thread *w, u64 now)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct ws_kstack *k;
	struct ws_wake *e;
	u32 zero = 0, key = KSTACK_WAKER;

	if (t->at.detail == WS_GIL)
		gil_tell(t, now);
	if (t->at.detail == WS_LOCK && t->waited.monitor.address)
		monitor_tell(t);
	else if (t->at.detail == WS_LOCK && t->waited.lock.limited)
		limited_tell(t);
	e = bpf_map_lookup_elem(&wakes, &zero);
	k = bpf_map_lookup_elem(&kstacks, &key);
	if (!e || !k)
		return;
	e->head.kind = WS_EV_WAKE;
	e->head.size = sizeof(*e);
	e->id = t->id;
	e->begin = t->turn.block_begin;
	e->time = now;
	e->waker = w ? w->id : 0;
	e->pid = waker->tgid;
	e->tid = waker->pid;
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), waker->comm);
	/* Without the hook's own two frames. */
	e->kstack = kernel_hash(k, bpf_get_stack(ctx, k->pc, sizeof(k->pc), 2));
	e->ustack = 0;
	e->flags = WS_S_NO_USER;
	e->steps = 0;
	if (w) {
		e->steps = w->steps;
		__builtin_memcpy(e->step, w->step, sizeof(e->step));
		if (!no_user_stack(waker)) {
			defer(ctx, w, waker);
			e->flags = WS_S_DEFERRED;
			e->ustack = w->stacks.ticket;
		}
	}
	if (bpf_ringbuf_output(&events, e, sizeof(*e), ring_flags()))
		lost(WS_L_RING_WAKE);
}
