/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Reads Python, PHP and Ruby frames in kernel programs.
 *
 * Include after unwind.h. It defines the maps; user space fills py_procs. For a struct py_work that
 * the caller owns, it offers:
 *
 *   py_prepare(w, stack, thread)      false: no interpreter here
 *   py_called(stack, tgid)            whether a native stack contains the eval loop
 *   py_walk_probe(w)                  current task, in code that may not sleep
 *   py_walk_fault(w)                  current task, sleepable: faults pages in
 *   py_walk_remote(w, task)           any task, sleepable
 *   py_finish_walk(w, tid)            remembers the thread's state for the next walk
 *   py_lock(wait)                     meaning of a futex wait
 *   py_own_lock(tgid, address)        canonical address of the GIL waited for at `address`
 *   py_fork, py_forget                follow fork and exec
 *
 * The result is in w->out. If a native stack is complete and does not contain the eval loop, no
 * interpreter memory is read.
 */
#ifndef WALLSCOPE_PYTHON_H
#define WALLSCOPE_PYTHON_H

#include "python_abi.h"
#include "python_core.h"

#ifndef PY_MAX_PROCS
#define PY_MAX_PROCS 4096
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PY_MAX_PROCS);
	__uint(map_flags, UW_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct py_proc);
} py_procs SEC(".maps");

/* The thread state found by an earlier walk; it is checked before each use. */
struct py_known {
	u64 match;
	u64 tstate;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct py_known);
} py_threads SEC(".maps");

/* Number of entries in py_procs, set by user space. It is usually 0, and the lookup is skipped. */
u32 py_processes;

/* A thread as interpreters know it. */
struct py_thread {
	u32 tgid, tid;
	u64 match; /* its own pointer */
	u64 sp;    /* its stack pointer */
};

/* A wait for a futex. */
struct py_wait {
	u32 tgid, tid;
	u64 address;
	bool timed; /* with a time limit */
	bool here;  /* of the current task */
};

struct py_find {
	struct uw_stack *stack;
	struct py_proc *proc;
	u32 found;
};

static long py_find_eval(u32 i, struct py_find *f)
{
	f->found = py_is_eval(f->proc, f->stack->frames[i & (UW_MAX_FRAMES - 1)]);
	return f->found;
}

static __always_inline bool py_shows_eval(struct py_proc *proc, struct uw_stack *stack)
{
	struct py_find find = { .stack = stack, .proc = proc };
	u32 n = stack->n;

	bpf_loop(n < UW_MAX_FRAMES ? n : UW_MAX_FRAMES, py_find_eval, &find, 0);
	return find.found;
}

static __always_inline bool py_called(struct uw_stack *stack, u32 tgid)
{
	struct py_proc *proc;

	if (!py_processes)
		return false;
	proc = bpf_map_lookup_elem(&py_procs, &tgid);
	return proc && py_shows_eval(proc, stack);
}

static __always_inline bool py_prepare(struct py_work *w, struct uw_stack *stack,
				       const struct py_thread *thread)
{
	u32 tgid = thread->tgid, tid = thread->tid;
	struct py_known *known;
	struct py_proc *proc;

	if (!py_processes)
		return false;
	proc = bpf_map_lookup_elem(&py_procs, &tgid);
	if (!proc)
		return false;
	/* PHP runs in the first thread only. */
	if (proc->kind == PY_KIND_PHP && tid != tgid)
		return false;
	if (stack->end == UW_END_ROOT && !py_shows_eval(proc, stack))
		return false;
	w->proc = *proc;
	known = bpf_map_lookup_elem(&py_threads, &tid);
	w->search.tstate = known && known->match == thread->match ? known->tstate : 0;
	w->search.sp = thread->sp;
	py_begin(w, tgid, thread->match);
	return true;
}

static __always_inline void py_finish_walk(struct py_work *w, u32 tid)
{
	struct py_known *old = bpf_map_lookup_elem(&py_threads, &tid);
	struct py_known known = { w->search.match, w->search.tstate };

	if (w->out.n && (!old || old->match != known.match || old->tstate != known.tstate))
		bpf_map_update_elem(&py_threads, &tid, &known, 0);
}

struct py_loop {
	struct py_work *w;
	struct task_struct *task;
};

#define PY_LOOP(NAME, READ)                                                          \
	static long NAME(u32 i, struct py_loop *l)                                   \
	{                                                                            \
		struct py_work *w = l->w;                                            \
		if (py_advance(w) == PY_DONE)                                        \
			return 1;                                                    \
		u32 need = UW_FRESH(w->need);                                        \
		if (need < 1 || need > PY_BYTES) {                                   \
			w->out.end = PY_END_GARBAGE;                                 \
			return 1;                                                    \
		}                                                                    \
		return READ(w->buf, need, w->want) ? py_unread(w) : 0;               \
	}

PY_LOOP(py_loop_probe, UW_READ_PROBE)
PY_LOOP(py_loop_fault, UW_READ_FAULT)
PY_LOOP(py_loop_remote, UW_READ_REMOTE)

#define PY_RUN(LOOP, w, task)                                                        \
	do {                                                                         \
		struct py_loop l_ = { w, task };                                     \
		bpf_loop(PY_STEPS, LOOP, &l_, 0);                                    \
		if (!(w)->out.end)                                                   \
			(w)->out.end = PY_END_GARBAGE;                               \
	} while (0)

static __always_inline void py_walk_probe(struct py_work *w)
{
	PY_RUN(py_loop_probe, w, NULL);
}

static __always_inline void py_walk_fault(struct py_work *w)
{
	PY_RUN(py_loop_fault, w, NULL);
}

static __always_inline void py_walk_remote(struct py_work *w, struct task_struct *task)
{
	PY_RUN(py_loop_remote, w, task);
}

enum { PY_OTHER_LOCK, PY_GIL, PY_SLEEP };

/*
 * Ruby: each thread waits for the GVL on its own condition variable, on which it also sleeps. The
 * thread that passes the GVL on waits beside it until it is taken. All of them wait for the GVL's
 * mutex.
 */
static __always_inline int rb_lock(struct py_proc *proc, const struct py_wait *wait)
{
	/* sizeof(pthread_cond_t) */
	const u64 bytes = 48;
	/* Distance from the GVL's mutex, which may come first, to 8 before its holder. */
	const u64 guard = 32;
	u32 tid = wait->tid;
	struct py_known *known = bpf_map_lookup_elem(&py_threads, &tid);
	u64 address = wait->address, own, unblock;

	if (proc->gil && address - (proc->gil - guard) < guard + proc->gil_bytes)
		return PY_GIL;
	if (!known || !known->tstate)
		return PY_OTHER_LOCK;
	own = known->tstate;
	if (proc->cframe &&
	    bpf_probe_read_user(&own, sizeof(own), (void *)known->tstate + proc->ts.thread))
		return PY_OTHER_LOCK;
	if (address - (own + proc->gvl.wait) >= bytes)
		return PY_OTHER_LOCK;
	if (bpf_probe_read_user(&unblock, sizeof(unblock), (void *)known->tstate + proc->gvl.unblock))
		return PY_OTHER_LOCK;
	if (!unblock)
		return PY_GIL;
	/* Without a time limit, the thread waits for another thread. */
	return wait->timed ? PY_SLEEP : PY_OTHER_LOCK;
}

static __always_inline int py_lock(const struct py_wait *wait)
{
	struct py_proc *proc;
	u32 tgid = wait->tgid;

	if (!py_processes)
		return PY_OTHER_LOCK;
	proc = bpf_map_lookup_elem(&py_procs, &tgid);
	if (!proc)
		return PY_OTHER_LOCK;
	if (proc->kind == PY_KIND_RUBY)
		return wait->here ? rb_lock(proc, wait) : PY_OTHER_LOCK;
	return proc->gil && wait->address - proc->gil < proc->gil_bytes ? PY_GIL : PY_OTHER_LOCK;
}

static __always_inline u64 py_own_lock(u32 tgid, u64 address)
{
	struct py_proc *proc = bpf_map_lookup_elem(&py_procs, &tgid);

	return proc && proc->kind == PY_KIND_RUBY && proc->gil ? proc->gil : address;
}

/* Gives a new process its parent's interpreter until its own is known. */
static __always_inline void py_fork(u32 parent, u32 child)
{
	struct py_proc *p, copy;

	if (!py_processes || parent == child)
		return;
	p = bpf_map_lookup_elem(&py_procs, &parent);
	if (!p)
		return;
	copy = *p;
	bpf_map_update_elem(&py_procs, &child, &copy, 0);
}

static __always_inline void py_forget(u32 tgid)
{
	if (py_processes)
		bpf_map_delete_elem(&py_procs, &tgid);
}

#endif
