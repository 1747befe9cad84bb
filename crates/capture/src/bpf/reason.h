/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What a thread waits for, told from where it stood when it left the CPU: its task state, its
 * system call and, for calls on a descriptor, what is behind it. Where that may be wrong or tells
 * nothing, the kernel functions it stands in decide (place.h).
 *
 * A file that includes this defines py_lock(), which tells the locks of interpreters (unwind/bpf/python.h).
 */
#pragma once
#include "place.h"
#include "untrusted_task.h"

/* Kinds of file, as in stat(2). */
enum {
	S_IFMT = 0170000,
	S_IFSOCK = 0140000,
	S_IFREG = 0100000,
	S_IFDIR = 0040000,
	S_IFBLK = 0060000,
	S_IFIFO = 0010000,
};
enum { AF_UNIX = 1, AF_INET6 = 10 };
/*
 * A wait for a file, which is not a reason yet. A thread that waits for a disk sleeps uninterruptibly, or in
 * a function that tells so. Else other threads fill the file (a tracer's pipe, the kernel's log), and the
 * thread waits for new data.
 */
enum { WS_FILE = 39 };
/* Commands of fcntl(2) that wait for a lock. */
enum { F_SETLKW = 7, F_OFD_SETLKW = 38 };

static __always_inline struct file *file_of(struct task_struct *p, u64 fd)
{
	struct files_struct *files = walked(p)->files;
	struct fdtable *table;
	struct file *file = NULL, **slot;

	if (!files)
		return NULL;
	table = files->fdt;
	if (!table || fd >= table->max_fds)
		return NULL;
	slot = table->fd;
	bpf_probe_read_kernel(&file, sizeof(file), slot + (u32)fd);
	return file;
}

static __always_inline struct sock *sock_of(struct file *file)
{
	struct socket *socket = (void *)FOLLOW(file, file, private_data, private_data);

	return socket ? (void *)FOLLOW(socket, socket, sk, sk) : NULL;
}

static __always_inline u16 family_of(struct sock *sk)
{
	return FOLLOW(sock, sk, __sk_common.skc_family, __sk_common.skc_family);
}

/* The function that reads from a file: it is the same for all files of one kind. */
static __always_inline u64 file_reader(struct file *file)
{
	u64 reader = FOLLOW(file, file, f_op->read_iter, f_op, read_iter);

	return reader ?: FOLLOW(file, file, f_op->read, f_op, read);
}

static __always_inline u8 reason_by_file(struct file *file)
{
	struct sock *sk;

	switch (FOLLOW(file, file, f_inode->i_mode, f_inode, i_mode) & S_IFMT) {
	case S_IFSOCK:
		sk = sock_of(file);
		return sk && family_of(sk) == AF_UNIX ? WS_PIPE : WS_NETWORK;
	case S_IFREG:
		return WS_FILE;
	case S_IFDIR:
	case S_IFBLK:
		return WS_DISK;
	case 0: /* eventfd, timerfd, signalfd and the like: all without a kind */
		return set_timerfd_read && file_reader(file) == set_timerfd_read ? WS_TIMER : WS_PIPE;
	default:
		return WS_PIPE; /* pipe, FIFO, terminal */
	}
}

static __always_inline u8 reason_by_fd(struct task_struct *p, u64 fd, u8 otherwise)
{
	struct file *file = file_of(p, fd);

	return file ? reason_by_file(file) : otherwise;
}

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

/* Only what ends by itself is a sleep. */
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

/* What a wait is for by now: of a sleep that is long enough, user space has seen the stack meanwhile. */
static __always_inline u32 told_since(struct task_struct *task, u32 reason)
{
	if (reason != WS_LOCK || !sleeps_known || (task->flags & PF_IN_KERNEL_ONLY))
		return reason;
	return is_sleep(task, (struct pt_regs *)bpf_task_pt_regs(task)) ? WS_TIMER : reason;
}

/*
 * The number of the system call that a thread is in, of which arguments mean what they do in 64-bit
 * programs; WS_SYSCALLS where it is in none. Calls of 32-bit programs have numbers of their own: only
 * the kernel's stack tells what they wait for.
 */
#define WS_CALL_OF_32_BIT (WS_SYSCALLS + 1)
static __always_inline u64 call_of(struct pt_regs *regs)
{
	if (*(volatile u16 *)&regs->cs == 0x23)
		return WS_CALL_OF_32_BIT;
	return regs->orig_ax < WS_SYSCALLS ? regs->orig_ax : WS_SYSCALLS;
}

/* Whether a wait of this kind sleeps interruptibly and its call says all. */
static __always_inline bool call_says_all(u8 reason)
{
	switch (reason) {
	case WS_LOCK:
	case WS_GIL:
	case WS_NETWORK:
	case WS_PIPE:
	case WS_TIMER:
	case WS_POLL:
	case WS_CHILD:
		return true;
	}
	return false;
}

#include "ring.h"

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

/* By its number and arguments; WS_REASONS where they tell nothing. `here`: `task` itself runs. */
static __always_inline u8 reason_by_call(struct task_struct *task, struct pt_regs *regs, u8 previous,
					 bool here)
{
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
		switch (py_lock(task->tgid, task->pid, regs->di, regs->r10 != 0, here)) {
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
	struct ws_noted kept = { .begin = t->block_begin };
	u64 id = t->id;

	if (bpf_probe_read_user_str(kept.path, sizeof(kept.path), (void *)from) > 0)
		bpf_map_update_elem(&noted, &id, &kept, BPF_ANY);
}

/*
 * Keeps what lies in the memory of `task`, to be asked while it runs, at the beginning of its wait:
 * later another process's memory is at hand. A list of a single descriptor to poll, and paths.
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

	t->polled = -1;
	if (task->flags & PF_IN_KERNEL_ONLY || call >= WS_SYSCALLS)
		return;
	entry = bpf_map_lookup_elem(&syscall_reason, &key);
	switch (entry ? entry->argument : WS_NO_ARGUMENT) {
	case WS_POLL_LIST:
		if ((u32)regs->si == 1 && !bpf_probe_read_user(&one, sizeof(one), (void *)regs->di))
			t->polled = one.fd;
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
			reason = reason_by_call(task, regs, previous, ctx != NULL);
		else if (call == WS_SYSCALLS && (io || hard)) /* not a system call: it came here by an exception */
			reason = WS_PAGE_FAULT;
		if (!hard && call_says_all(reason))
			return reason;
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
