/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Who owes whom a reply: on every stream socket that measured threads talk on, whether a request is
 * in flight. On a connection that was made by the process, from its message to the next answer; on
 * one that it accepted, from the message it got to its own answer.
 *
 * Messages are told by sock_send_length and sock_recv_length (6.3), in the thread that sends or
 * receives. An open request belongs to that thread, which answers the question at a switch-out:
 * has this thread a request in flight? Connections that exist at the start are put into the map by
 * user space, with what the kernel knows of them; their open requests belong to the process.
 *
 * A connection on which eight messages in ten seconds and more were never answered is no dialogue
 * (a log, say), and has nothing in flight.
 */
#pragma once

enum { AF_INET = 2 };
enum { SOCK_STREAM_TYPE = 1, SOCK_SEQPACKET_TYPE = 5 };
enum { IPPROTO_TCP_NUMBER = 6 };
enum { TCP_SYN_SENT_STATE = 2, TCP_CLOSE_STATE = 7 };
enum { NOT_NOW = -11, INTERRUPTED = -4, RESTARTED = -512 };

#define WS_ONE_WAY_MESSAGES 8
#define WS_ONE_WAY_NS 10000000000ull
/* At most one stack of a sender in this time from each thread, */
#define WS_ASK_STACK_NS 20000000ull
/* and so many in so long on each CPU. */
#define WS_ASKS 20
#define WS_ASKS_NS 100000000ull
/* Set in a key of in_flight: the process, not a thread. */
#define WS_OF_PROCESS (1u << 31)

/* By socket cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct ws_socket);
} sockets SEC(".maps");

/* Open requests by thread, or by process where the thread is not known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u32);
} in_flight SEC(".maps");

u32 set_old_requests = 0; /* user space put open requests of processes into the map */

static __always_inline void count_in_flight(u32 key, u32 by)
{
	u32 *n = bpf_map_lookup_elem(&in_flight, &key);

	if (n)
		__sync_fetch_and_add(n, by);
	else if (by == 1 && bpf_map_update_elem(&in_flight, &key, &by, BPF_NOEXIST))
		lost(WS_L_SOCKETS);
}

/* Whether the thread, or its process by old requests, has a request in flight. */
__noinline int ws_has_in_flight(u32 tid, u32 pid)
{
	u32 *n = bpf_map_lookup_elem(&in_flight, &tid);

	if (n && *n)
		return 1;
	if (!set_old_requests)
		return 0;
	pid |= WS_OF_PROCESS;
	n = bpf_map_lookup_elem(&in_flight, &pid);
	return n && *n;
}

static __always_inline bool has_in_flight(struct ws_thread *t)
{
	return (t->talks || set_old_requests) && ws_has_in_flight(t->tid, t->pid);
}

static __always_inline void forget_in_flight(struct ws_thread *t)
{
	u32 tid = t->tid;

	if (t->talks)
		bpf_map_delete_elem(&in_flight, &tid);
}

static __always_inline void tell_answer(struct ws_socket *s, u64 id, u64 ns)
{
	struct ws_answer a = {
		.head = { WS_EV_ANSWER, sizeof(a) }, .id = id, .cookie = s->cookie, .ns = ns,
	};

	if (bpf_ringbuf_output(&events, &a, sizeof(a), ring_flags()))
		lost(WS_L_RING_SAMPLE);
}

/* The request in flight is over. */
static __always_inline void request_ends(struct ws_socket *s, u64 now)
{
	u64 ns;

	if (!s->since)
		return;
	ns = now > s->since ? now - s->since : 0;
	s->in_flight += ns;
	s->since = 0;
	count_in_flight(s->owner, -1);
	if (s->sampled)
		tell_answer(s, s->asker, ns);
	s->sampled = 0;
}

/* The thread that is about to wait reads its own stack: it is the one that asked. */
static __always_inline void sample_asker(struct ws_socket *s, struct ws_thread *t,
					 struct task_struct *p, u64 now)
{
	struct ws_cpu *c = this_cpu();
	struct ws_sample e = {};

	if (!c || !cfg_task_work || now - t->asked < WS_ASK_STACK_NS)
		return;
	if (now - c->asks_since > WS_ASKS_NS) {
		c->asks_since = now;
		c->asks = 0;
	}
	if (c->asks >= WS_ASKS)
		return;
	c->asks++;
	t->asked = now;
	defer(t, p);
	e.id = t->id;
	e.pid = t->pid;
	e.tid = t->tid;
	e.state = WS_ASKED;
	e.flags = WS_S_DEFERRED;
	e.ustack = t->ticket;
	e.begin = s->cookie;
	send_sample(&e);
	s->asker = t->id;
	s->sampled = 1;
}

static __always_inline void request_begins(struct ws_socket *s, struct ws_thread *t,
					   struct task_struct *p, u64 now)
{
	if (!s->unanswered++)
		s->first = now;
	if (!s->answered && s->unanswered >= WS_ONE_WAY_MESSAGES && now - s->first > WS_ONE_WAY_NS) {
		request_ends(s, now);
		return;
	}
	if (s->since)
		return;
	s->since = now;
	s->requests++;
	s->owner = t->tid;
	count_in_flight(t->tid, 1);
	if (!s->inbound)
		sample_asker(s, t, p, now);
}

/* A unix socket's name, where it is bound to a path. */
static __always_inline bool unix_name(struct sock *sk, char *path)
{
	struct unix_address *address = BPF_CORE_READ((struct unix_sock *)sk, addr);

	if (!address)
		return false;
	bpf_probe_read_kernel(path, WS_PATH - 1, (char *)address + bpf_core_field_offset(address->name) + 2);
	return true;
}

/* First sight of a connection. Connections that we make are met when they are made. */
static __always_inline struct ws_socket *meet(struct sock *sk, u64 cookie, struct ws_thread *t,
					      bool sent, bool made)
{
	struct ws_socket s = {};
	struct pid *pid;
	struct sock *peer;

	s.cookie = cookie;
	s.pid = t->pid;
	s.family = sk->__sk_common.skc_family;
	if (s.family == AF_UNIX) {
		peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
		if (unix_name(sk, s.path))
			s.inbound = 1; /* an accepted socket has its listener's name */
		else if (!peer || !unix_name(peer, s.path))
			s.inbound = !sent; /* a pair: who speaks first, asks */
		pid = BPF_CORE_READ(sk, sk_peer_pid);
		if (pid)
			s.peer_pid = BPF_CORE_READ(pid, numbers[0].nr);
	} else {
		s.inbound = !made;
		s.peer_port = __builtin_bswap16(sk->__sk_common.skc_dport);
		s.local_port = sk->__sk_common.skc_num;
		if (s.family == AF_INET)
			bpf_probe_read_kernel(s.peer, 4, &sk->__sk_common.skc_daddr);
		else if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr))
			bpf_probe_read_kernel(s.peer, 16, &sk->__sk_common.skc_v6_daddr);
	}
	if (bpf_map_update_elem(&sockets, &cookie, &s, BPF_NOEXIST)) {
		lost(WS_L_SOCKETS);
		return NULL;
	}
	return bpf_map_lookup_elem(&sockets, &cookie);
}

static __always_inline bool is_dialogue(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family, type = sk->sk_type;

	if (family == AF_UNIX)
		return type == SOCK_STREAM_TYPE || type == SOCK_SEQPACKET_TYPE;
	return (family == AF_INET || family == AF_INET6) && sk->sk_protocol == IPPROTO_TCP_NUMBER;
}

static __always_inline int talked(struct sock *sk, int ret, bool sent)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_socket *s;
	u64 cookie, now;

	if (!t || !is_dialogue(sk))
		return 0;
	if (ret < 0 && (ret == NOT_NOW || ret == INTERRUPTED || ret == RESTARTED))
		return 0;
	t->talks = 1;
	cookie = bpf_get_socket_cookie(sk);
	s = bpf_map_lookup_elem(&sockets, &cookie);
	if (!s) {
		if (ret <= 0)
			return 0;
		s = meet(sk, cookie, t, sent, false);
		if (!s)
			return 0;
	}
	now = bpf_ktime_get_ns();
	if (ret > 0 && sent != s->inbound) {
		request_begins(s, t, p, now);
		return 0;
	}
	if (ret == 0 && sent)
		return 0;
	/* An answer; or the end of the connection, or its failure. */
	request_ends(s, now);
	if (ret > 0) {
		s->answered = 1;
		s->unanswered = 0;
	}
	return 0;
}

/* A connection is made, or is gone. */
static __always_inline int socket_state(struct sock *sk, int state)
{
	struct ws_thread *t;
	struct ws_socket *s;
	struct ws_socket_event e = {};
	u64 cookie;

	if (state != TCP_SYN_SENT_STATE && state != TCP_CLOSE_STATE)
		return 0;
	if (state == TCP_SYN_SENT_STATE) {
		t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
		if (t && is_dialogue(sk)) {
			t->talks = 1;
			meet(sk, bpf_get_socket_cookie(sk), t, true, true);
		}
		return 0;
	}
	cookie = bpf_get_socket_cookie(sk);
	s = bpf_map_lookup_elem(&sockets, &cookie);
	if (!s)
		return 0;
	request_ends(s, bpf_ktime_get_ns());
	e.head.kind = WS_EV_SOCKET;
	e.head.size = sizeof(e);
	e.s = *s;
	if (bpf_ringbuf_output(&events, &e, sizeof(e), ring_flags()))
		lost(WS_L_RING_SAMPLE);
	bpf_map_delete_elem(&sockets, &cookie);
	return 0;
}
