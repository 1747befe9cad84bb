/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Awaited answers by epoll instance. One thread sends a request, and another one waits for the answer, in
 * epoll_wait. (A thread that reads the same socket already counts by the socket.) So the answers that
 * are awaited on the sockets of an epoll instance are counted for the instance too. A thread that waits at
 * the instance has a request in flight while an answer is awaited on one of its sockets.
 *
 * A socket in several instances counts for one of them. A socket that joins an instance only after the
 * request was sent counts for none: the request is its sender's alone, as on a socket that no thread polls.
 */
#pragma once

enum { CALL_EPOLL_WAIT = 232, CALL_EPOLL_PWAIT = 281, CALL_EPOLL_PWAIT2 = 441 };

/* By socket cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct ws_socket);
} sockets SEC(".maps");

/* Whether answers were ever awaited at an epoll instance, by bits of its address: most are waited at for requests. */
#define WS_LOOP_BITS 4096
u8 asked_at[WS_LOOP_BITS] = {};

static __always_inline u8 *asked_slot(u64 loop)
{
	return &asked_at[(loop >> 6) & (WS_LOOP_BITS - 1)];
}

/* By the kernel's address of an epoll instance. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct ws_loop);
} loops SEC(".maps");

/* The epoll instance that a socket is in, 0 for none. */
static __always_inline u64 loop_of_socket(struct sock *sk)
{
	struct file *file = (void *)FOLLOW(sock, sk, sk_socket->file, sk_socket, file);
	void *first;

	if (!file || !bpf_core_field_exists(file->f_ep) || !bpf_core_type_exists(struct epitem))
		return 0;
	first = (void *)FOLLOW(file, file, f_ep, f_ep);
	first = first ? (void *)FOLLOW(hlist_head, first, first, first) : NULL;
	if (!first)
		return 0;
	/* A number for the verifier, not a pointer that may not be reckoned with. */
	return (u64)BPF_CORE_READ((struct epitem *)(first - bpf_core_field_offset(struct epitem, fllink)), ep);
}

/*
 * The place at which `p`, which begins to wait for `reason`, waits: an epoll instance's address, a socket's cookie,
 * or 0. It is 0, too, on the socket that the thread talked on last, if that socket is inbound: no answer is awaited
 * there.
 */
static __always_inline u64 place_of_wait(struct ws_thread *t, struct task_struct *p, u8 reason)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	struct ws_call *entry;
	struct file *file;
	struct sock *sk;
	u64 call, cookie;
	u32 key;

	if ((reason != WS_POLL && reason != WS_NETWORK && reason != WS_PIPE) ||
	    p->flags & PF_IN_KERNEL_ONLY)
		return 0;
	key = call = call_of(regs);
	if (call >= WS_SYSCALLS)
		return 0;
	if (reason == WS_POLL) {
		if (call != CALL_EPOLL_WAIT && call != CALL_EPOLL_PWAIT && call != CALL_EPOLL_PWAIT2)
			return 0;
		file = file_of(p, regs->di);
		return file ? FOLLOW(file, file, private_data, private_data) : 0;
	}
	entry = bpf_map_lookup_elem(&syscall_reason, &key);
	if (!entry || entry->argument != WS_FIRST_IS_FD || !has_descriptor(call, regs))
		return 0;
	file = file_of(p, regs->di);
	if (!file || (FOLLOW(file, file, f_inode->i_mode, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	sk = sock_of(file);
	if (!sk)
		return 0;
	cookie = FOLLOW(sock, sk, __sk_common.skc_cookie.counter, __sk_common.skc_cookie.counter);
	return cookie == t->own.talked_on ? 0 : cookie;
}

static __always_inline void loop_asks(u64 key, u64 now)
{
	struct ws_loop *l = bpf_map_lookup_elem(&loops, &key), one = { .awaited = 1, .since = now };

	*asked_slot(key) = 1;
	if (!l) {
		if (bpf_map_update_elem(&loops, &key, &one, BPF_NOEXIST))
			lost(WS_L_SOCKETS);
		return;
	}
	if (l->awaited <= 0)
		l->since = now;
	__sync_fetch_and_add(&l->awaited, 1);
}

static __always_inline void loop_asks_no_more(u64 key, u64 now)
{
	struct ws_loop *l = bpf_map_lookup_elem(&loops, &key);

	if (!l)
		return;
	__sync_fetch_and_add(&l->awaited, -1);
	l->until = now;
}

/* Whether an answer was awaited at that place for most of the time from `begin` to `now`. */
static __always_inline bool awaited_at(u64 place, u64 begin, u64 now)
{
	u64 since, until = now;
	struct ws_socket *s;
	struct ws_loop *l;

	if (!place)
		return false;
	if ((s64)place > 0) {
		s = bpf_map_lookup_elem(&sockets, &place);
		if (!s || s->inbound || !s->since)
			return false;
		since = s->since;
	} else {
		if (!*asked_slot(place))
			return false;
		l = bpf_map_lookup_elem(&loops, &place);
		if (!l)
			return false;
		since = l->since;
		if (l->awaited <= 0 && l->until < now)
			until = l->until;
	}
	since = since > begin ? since : begin;
	return until >= since && until - since >= (now - begin) / 2;
}
