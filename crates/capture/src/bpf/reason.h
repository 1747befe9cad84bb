/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The reason of a wait, by the state in which the thread left the CPU: its task state, its system call and, for
 * calls on a descriptor, the object behind it. If that may be wrong or tells nothing, the kernel functions on its
 * stack decide (place.h).
 *
 * A file that includes this defines py_lock(), which recognises the locks of interpreters (unwind/bpf/python.h).
 */
#pragma once
#include "ring.h"

/* Commands of fcntl(2) that wait for a lock. */
enum { F_SETLKW = 7, F_OFD_SETLKW = 38 };

/* Futexes that Java threads sleep on: a wait for a condition like any other, but for its place. User
 * space learns them from stacks. */
struct ws_sleep {
	u64 address; /* rounded down to 8: the C library alternates between two words */
	u32 pid, pad0;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ws_sleep);
	__type(value, u8);
} sleeps SEC(".maps");

/* Number of entries: with 0 no thread pays for a lookup. User space sets it. */
u32 sleeps_known;

/* Whether the task waits at a futex of a sleep, with a time limit. A wait without a limit is no sleep. */
static __always_inline bool is_sleep(struct task_struct *task, struct pt_regs *regs)
{
	struct ws_sleep key = { .address = regs->di & ~7ull, .pid = task->tgid };

	return sleeps_known && regs->r10 && bpf_map_lookup_elem(&sleeps, &key);
}

/* The futex that a thread waits for with a time limit. */
static __always_inline u64 limited_futex(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	return regs->r10 ? regs->di : 0;
}

/* Block reason by the facts known now: user space has read the stack of a long sleep meanwhile, and added its futex. */
static __always_inline u32 told_since(struct task_struct *task, u32 reason)
{
	if (reason != WS_LOCK || !sleeps_known || (task->flags & PF_IN_KERNEL_ONLY))
		return reason;
	return is_sleep(task, (struct pt_regs *)bpf_task_pt_regs(task)) ? WS_TIMER : reason;
}

/* poll(2): its timeout is a number, -1 for none. That of ppoll is a pointer. */
enum { CALL_POLL = 7 };

/* Whether poll or ppoll has no descriptors but a timeout: then it is a sleep. */
static __always_inline bool polls_nothing(struct pt_regs *regs)
{
	return !regs->si && (regs->orig_ax == CALL_POLL ? (s32)regs->dx >= 0 : regs->dx != 0);
}

/* Whether select or pselect6 has no descriptors but a timeout: then it is a sleep. */
static __always_inline bool selects_nothing(struct pt_regs *regs)
{
	return !regs->di && regs->r8;
}

/* The reason by the call's number and arguments; WS_OTHER where they tell nothing. WS_FILE and WS_BY_PLACE are left
 * to the caller. `ctx`: as in block_reason(). */
static __always_inline u8 reason_by_call(void *ctx, struct task_struct *task, struct pt_regs *regs,
					 u8 previous)
{
	struct py_wait wait = { task->tgid, task->pid, regs->di, regs->r10 != 0, ctx != NULL };
	u32 key = regs->orig_ax;
	struct ws_call *entry = bpf_map_lookup_elem(&syscall_reason, &key);
	u8 reason = entry ? entry->reason : WS_OTHER;

	switch (reason) {
	case WS_RESTART:
		return previous;
	case WS_BY_FCNTL:
		if ((u32)regs->si == F_SETLKW || (u32)regs->si == F_OFD_SETLKW)
			return WS_LOCK;
		return WS_DISK;
	case WS_LOCK:
		if (is_sleep(task, regs))
			return WS_TIMER;
		switch (py_lock(&wait)) {
		case PY_GIL:
			return WS_GIL;
		case PY_SLEEP:
			return WS_TIMER;
		}
		return WS_LOCK;
	case WS_BY_FD:
		return reason_by_fd(task, regs->di, WS_OTHER);
	case WS_BY_SOCKET:
		return reason_by_fd(task, regs->di, WS_NETWORK);
	case WS_BY_POLL:
		return polls_nothing(regs) ? WS_TIMER : WS_POLL;
	case WS_BY_SELECT:
		return selects_nothing(regs) ? WS_TIMER : WS_POLL;
	}
	return reason;
}

/* Paths that threads wait with, by record. */
struct ws_noted {
	u64 begin; /* of the wait */
	u64 path[WS_NAME / 8];
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct ws_noted);
} noted SEC(".maps");

/* Keeps the path at `from` in the memory of the current task. */
static __always_inline void note_path(struct ws_thread *t, u64 from)
{
	struct ws_noted kept = { .begin = t->turn.block_begin };
	u64 id = t->id;

	if (bpf_probe_read_user_str(kept.path, sizeof(kept.path), (void *)from) > 0)
		bpf_map_update_elem(&noted, &id, &kept, BPF_ANY);
}

/*
 * Keeps arguments that lie in the memory of `task`, while it runs, at the beginning of its wait: later another
 * process's memory is at hand. These are a list of a single descriptor to poll, and paths.
 */
static __always_inline void note_argument(struct ws_thread *t, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 call = call_of(regs);
	struct ws_call *entry;
	u32 key = call;
	struct {
		s32 fd;
		u32 events;
	} one;

	t->wait.polled = -1;
	if (task->flags & PF_IN_KERNEL_ONLY || call >= WS_SYSCALLS)
		return;
	entry = bpf_map_lookup_elem(&syscall_reason, &key);
	switch (entry ? entry->argument : WS_NO_ARGUMENT) {
	case WS_POLL_LIST:
		if ((u32)regs->si == 1 && !bpf_probe_read_user(&one, sizeof(one), (void *)regs->di))
			t->wait.polled = one.fd;
		return;
	case WS_FIRST_IS_PATH:
		note_path(t, regs->di);
		return;
	case WS_SECOND_IS_PATH:
		note_path(t, regs->si);
		return;
	}
}

/* `ctx`: of the hook in which `task` itself runs, else NULL. */
static __always_inline u8 block_reason(void *ctx, struct task_struct *task, u32 state, u8 previous)
{
	bool io = BPF_CORE_READ_BITFIELD(task, in_iowait), kernel = task->flags & PF_IN_KERNEL_ONLY;
	bool hard = state & TASK_UNINTERRUPTIBLE;
	u8 reason = WS_OTHER;
	struct pt_regs *regs;
	u32 place;
	u64 call;

	if (unlikely(state & (TASK_STOPPED_BIT | TASK_TRACED_BIT | TASK_FROZEN)))
		return WS_STOPPED;
	if (bpf_core_field_exists(task->frozen) && unlikely(BPF_CORE_READ_BITFIELD(task, frozen))) {
		/* Frozen, or as good as: the kernel marks waits for a vfork so as well. */
		place = reason_by_place(ctx, task);
		return place == WS_CHILD ? WS_CHILD : WS_STOPPED;
	}
	if (kernel) {
		/* Parked: the usual way for a kernel thread to be. A worker of io_uring makes the calls of a
		 * program, which wait interruptibly. */
		if (!hard && task->flags & PF_KTHREAD)
			return WS_OTHER;
	} else {
		regs = (struct pt_regs *)bpf_task_pt_regs(task);
		call = call_of(regs);
		if (call == CALL_IO_URING_ENTER && !hard)
			return reason_at_ring(task, regs);
		if (call < WS_SYSCALLS)
			reason = reason_by_call(ctx, task, regs, previous);
		else if (call == WS_SYSCALLS && (io || hard)) /* not a system call: it came here by an exception */
			reason = WS_PAGE_FAULT;
		if (!hard && call_says_all(reason)) {
			may_watch_ring(task, reason);
			return reason;
		}
	}
	place = reason_by_place(ctx, task);
	if (place < WS_REASONS)
		return place;
	if (reason == WS_BY_PLACE)
		return WS_PIPE;
	if (reason == WS_FILE)
		reason = set_places && !hard && !io ? WS_PIPE : WS_DISK;
	if (reason == WS_PAGE_FAULT)
		return reason;
	if (io)
		return WS_DISK;
	/* It sleeps where its call would not, and nothing tells why. */
	return set_places && hard && call_says_all(reason) ? WS_OTHER : reason;
}
