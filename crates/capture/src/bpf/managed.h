/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Managed frames beside native ones.
 *
 * A user stack of a process with a runtime is sent in three parts: the native stack, the managed stack
 * as it was read right after, and a join. The hash of the join stands for both stacks. User space names
 * the managed frames while the process exists, so new stacks wake it.
 */
#pragma once
#include "user_unwind.h"
#include "publish.h"

/* As `unwinds` in user_unwind.h. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct py_work);
} pythons SEC(".maps");

/* How memory may be read. */
enum { READ_PROBE, READ_FAULT, READ_REMOTE };

/* Sends a managed stack, unless it is known. */
static __always_inline void publish_managed(struct py_stack *s)
{
	u32 n = s->n;

	if (n > PY_MAX_FRAMES)
		n = PY_MAX_FRAMES;
	s->kind = WS_EV_MANAGED;
	s->size = sizeof(*s);
	publish(s->hash, s, offsetof(struct py_stack, words) + n * 16, 1);
}

/* The hash that stands for the user stack in `u` with the managed frames of its thread `p`. */
static __always_inline u64 managed_hash(struct ws_unwind *u, struct py_work *w,
					struct task_struct *p, int how)
{
	u64 native = user_hash(&u->work.out);
	struct py_thread thread = { p->tgid, p->pid, p->thread.fsbase, u->regs.sp };
	struct ws_join join = {
		.head = { WS_EV_JOIN, sizeof(join) }, .native = native,
	};

	struct ws_thread *t;

	if (!w || !py_prepare(w, &u->work.out, &thread))
		return native;
	t = bpf_task_storage_get(&threads, p, 0, 0);
	if (t)
		gil_thread(t, p);
	if (how == READ_PROBE)
		py_walk_probe(w);
	else if (how == READ_FAULT)
		py_walk_fault(w);
	else
		py_walk_remote(w, p);
	py_finish_walk(w, p->pid);
	if (!w->out.n) {
		if (w->out.end >= PY_END_NO_THREAD)
			lost(WS_L_MANAGED);
		return native;
	}
	publish_managed(&w->out);
	join.managed = w->out.hash;
	join.hash = mix(native, join.managed);
	publish(join.hash, &join, sizeof(join), 0);
	return join.hash;
}
