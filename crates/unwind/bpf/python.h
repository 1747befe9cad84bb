/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Python's frames, PHP's and Ruby's, for kernel programs.
 *
 * Include after unwind.h. Defines the maps (py_procs is filled by user space) and, for a struct
 * py_work that the caller owns:
 *
 *   py_prepare(w, stack, tgid, tid, match, sp)  false: no Python here. `match` is the thread's pointer,
 *                                     `sp` its stack pointer
 *   py_called(stack, tgid)            whether a native stack shows a call of the interpreter
 *   py_walk_probe(w)                  current, where nothing may sleep
 *   py_walk_fault(w)                  current, sleepable: pages are brought in
 *   py_walk_remote(w, task)           any task, sleepable
 *   py_finish_walk(w, tid)            remembers where the interpreter keeps the thread
 *   py_lock(tgid, tid, address, timed, here)  what a wait for a lock is to the interpreter; `here`: of current
 *   py_own_lock(tgid, address)        the address by which the GIL is known that is waited for at `address`
 *   py_fork, py_forget                follow fork and exec
 *
 * The result is in w->out. Nothing is read for a thread whose native stack is whole and shows no
 * call of the interpreter.
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

/* Where the interpreter keeps a thread; believed only as long as it says so itself. */
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

/* Processes in py_procs, so that where there is none nobody pays for a look. User space sets it. */
u32 py_processes;

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

static __always_inline bool py_prepare(struct py_work *w, struct uw_stack *stack, u32 tgid,
				       u32 tid, u64 match, u64 sp)
{
	struct py_known *known;
	struct py_proc *proc;

	if (!py_processes)
		return false;
	proc = bpf_map_lookup_elem(&py_procs, &tgid);
	if (!proc)
		return false;
	/* PHP runs in the first thread alone, and its chain is nobody else's. */
	if (proc->kind == PY_KIND_PHP && tid != tgid)
		return false;
	if (stack->end == UW_END_ROOT && !py_shows_eval(proc, stack))
		return false;
	w->proc = *proc;
	known = bpf_map_lookup_elem(&py_threads, &tid);
	w->tstate = known && known->match == match ? known->tstate : 0;
	w->sp = sp;
	py_begin(w, tgid, match);
	return true;
}

static __always_inline void py_finish_walk(struct py_work *w, u32 tid)
{
	struct py_known *old = bpf_map_lookup_elem(&py_threads, &tid);
	struct py_known known = { w->match, w->tstate };

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
 * Ruby: each thread waits for the lock at a place of its own, at which it sleeps too. Who gives the lock waits
 * beside it until it is taken, and everybody for what guards it.
 */
static __always_inline int rb_lock(struct py_proc *proc, u32 tid, u64 address, bool timed)
{
	/* A pthread_cond_t. */
	const u64 bytes = 48;
	/* From what guards the lock, which may lie in front, to its holder, less 8. */
	const u64 guard = 32;
	struct py_known *known = bpf_map_lookup_elem(&py_threads, &tid);
	u64 own, unblock;

	if (proc->gil && address - (proc->gil - guard) < guard + proc->gil_bytes)
		return PY_GIL;
	if (!known || !known->tstate)
		return PY_OTHER_LOCK;
	own = known->tstate;
	if (proc->cframe &&
	    bpf_probe_read_user(&own, sizeof(own), (void *)known->tstate + proc->ts_thread))
		return PY_OTHER_LOCK;
	if (address - (own + proc->ts_wait) >= bytes)
		return PY_OTHER_LOCK;
	if (bpf_probe_read_user(&unblock, sizeof(unblock), (void *)known->tstate + proc->ts_unblock))
		return PY_OTHER_LOCK;
	if (!unblock)
		return PY_GIL;
	/* Without a limit it waits for another thread. */
	return timed ? PY_SLEEP : PY_OTHER_LOCK;
}

static __always_inline int py_lock(u32 tgid, u32 tid, u64 address, bool timed, bool here)
{
	struct py_proc *proc;

	if (!py_processes)
		return PY_OTHER_LOCK;
	proc = bpf_map_lookup_elem(&py_procs, &tgid);
	if (!proc)
		return PY_OTHER_LOCK;
	if (proc->kind == PY_KIND_RUBY)
		return here ? rb_lock(proc, tid, address, timed) : PY_OTHER_LOCK;
	return proc->gil && address - proc->gil < proc->gil_bytes ? PY_GIL : PY_OTHER_LOCK;
}

static __always_inline u64 py_own_lock(u32 tgid, u64 address)
{
	struct py_proc *proc = bpf_map_lookup_elem(&py_procs, &tgid);

	return proc && proc->kind == PY_KIND_RUBY && proc->gil ? proc->gil : address;
}

/* A new process has its parent's interpreter until its own is known. */
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
