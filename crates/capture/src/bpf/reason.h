/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What a thread waits for, told from where it stood when it left the CPU: its task state, its
 * system call and, for reads and writes, the kind of its descriptor.
 *
 * This is the coarse reason, one table look-up at each switch-out. It does not follow kernel
 * stacks, so a wait for a lock inside the kernel counts for the call that ran into it.
 */
#pragma once

/* Kinds of file, as in stat(2). */
enum { S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFREG = 0100000, S_IFDIR = 0040000, S_IFBLK = 0060000 };

static __always_inline u8 reason_by_fd(struct task_struct *p, u64 fd)
{
	struct fdtable *table;
	struct file *file = NULL, **slot;
	unsigned short mode;

	if (!p->files)
		return WS_OTHER;
	table = p->files->fdt;
	if (!table || fd >= table->max_fds)
		return WS_OTHER;
	slot = table->fd;
	bpf_probe_read_kernel(&file, sizeof(file), slot + (u32)fd);
	if (!file)
		return WS_OTHER;
	mode = BPF_CORE_READ(file, f_inode, i_mode);
	switch (mode & S_IFMT) {
	case S_IFSOCK:
		return WS_NETWORK;
	case S_IFREG:
	case S_IFDIR:
	case S_IFBLK:
		return WS_DISK;
	default:
		return WS_PIPE; /* pipe, FIFO, terminal, eventfd and the like */
	}
}

static __always_inline u8 block_reason(struct task_struct *task, u32 state, u8 previous)
{
	struct pt_regs *regs;
	bool io = BPF_CORE_READ_BITFIELD(task, in_iowait);
	u8 *entry, reason;
	u64 nr;
	u32 key;

	if (state & (TASK_STOPPED_BIT | TASK_TRACED_BIT | TASK_FROZEN))
		return WS_STOPPED;
	if (task->flags & PF_KTHREAD)
		return io ? WS_DISK : WS_OTHER;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	nr = regs->orig_ax;
	if (nr >= WS_SYSCALLS) /* not a system call: it came here by an exception */
		return io || (state & TASK_UNINTERRUPTIBLE) ? WS_PAGE_FAULT : WS_OTHER;
	key = nr;
	entry = bpf_map_lookup_elem(&syscall_reason, &key);
	reason = entry ? *entry : WS_OTHER;
	if (reason == WS_RESTART)
		return previous;
	if (reason == WS_BY_FD)
		reason = reason_by_fd(task, regs->di);
	if (io && reason != WS_POLL) /* io_uring marks its idle waits as I/O waits */
		reason = WS_DISK;
	return reason;
}
