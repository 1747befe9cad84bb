/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The system call that a thread is in, and the file behind a descriptor: facts from which the reason of its
 * wait follows (reason.h, ring.h).
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

/*
 * The number of the system call that a thread is in, if its arguments have their meaning in 64-bit programs;
 * WS_SYSCALLS if it is in none. Calls of 32-bit programs have numbers of their own: only the kernel's stack tells
 * the reason of their waits.
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
