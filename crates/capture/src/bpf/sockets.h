/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Requests in flight on every stream socket that measured threads use. If the process made the connection,
 * a request is in flight from a message of the process to the next answer. If it accepted the connection, a
 * request is in flight from a message of the client to the answer of the process.
 *
 * The tracepoints sock_send_length and sock_recv_length (6.3) report messages, in the thread that sends or
 * receives. An open request belongs to that thread. At a switch-out this tells whether the thread has a
 * request in flight. User space puts connections that exist at the start into the map, with the facts that the kernel
 * has of them; their open requests belong to the process.
 *
 * If one thread takes requests and others answer them (a reactor with a pool of workers), the requests
 * belong to the process, because the first thread is free for the next one. They count for a thread that
 * answers such requests while it sleeps. A client's own request never makes its sleep a delay: only a server
 * that sleeps keeps its client waiting.
 *
 * A connection with eight or more unanswered messages over more than three seconds is no dialogue but, say,
 * a log: it has no request in flight. Nor has a pair of sockets that the process made itself, until an
 * answer comes on it: a byte that needs no answer wakes an event loop.
 */
#pragma once

#include "in_flight.h"
#include "publish.h"
#include "deferred_user_stack.h"

enum { AF_INET = 2 };
enum { SOCK_STREAM_TYPE = 1, SOCK_SEQPACKET_TYPE = 5 };
enum { IPPROTO_TCP_NUMBER = 6 };
enum { TCP_SYN_SENT_STATE = 2, TCP_CLOSE_STATE = 7 };
enum { NOT_NOW = -11, INTERRUPTED = -4, RESTARTED = -512 };

#define WS_ONE_WAY_MESSAGES 8
#define WS_ONE_WAY_NS 3000000000ull
/* A thread takes requests for others once others answered this many of its requests in a row. */
#define WS_PASSES_ON 4
/* At most one stack of a sender in this time from each thread, */
#define WS_ASK_STACK_NS 20000000ull
/* and so many in so long on each CPU. */
#define WS_ASKS 20
#define WS_ASKS_NS 100000000ull

enum ws_talk_kind { WS_CONNECTS, WS_SENDS, WS_RECEIVES };

/* A call on a stream socket in the current thread: it connects, or has sent or received, or failed to. */
struct ws_talk {
	void *ctx;
	struct ws_thread *t;
	struct sock *sk;
	int ret;
	enum ws_talk_kind kind;
};

static __always_inline void tell_answer(struct ws_socket *s, u64 id, u64 ns)
{
	struct ws_answer a = {
		.head = { WS_EV_ANSWER, sizeof(a) }, .id = id, .cookie = s->cookie, .ns = ns,
	};

	if (bpf_ringbuf_output(&events, &a, sizeof(a), ring_flags()))
		lost(WS_L_RING_SAMPLE);
}

/* The request in flight is over. `t`: the thread that answered it, if one did. */
static __always_inline void request_ends(struct ws_socket *s, struct ws_thread *t, u64 now)
{
	struct ws_requests *r;
	u64 ns;

	if (!s->since)
		return;
	ns = now > s->since ? now - s->since : 0;
	s->in_flight += ns;
	s->since = 0;
	request_counts_no_more(t, s->owner, s->inbound ? WS_OWED : WS_AWAITED, now);
	if (s->loop)
		loop_asks_no_more(s->loop, now);
	s->loop = 0;
	if (t && s->inbound && s->reader) {
		if (s->reader == t->tid) {
			r = said_elsewhere(t->tid) ? requests_of(t->tid) : NULL;
			if (r)
				r->passes_on = 0;
		} else {
			t->wait.answers = 1;
			r = requests_of(s->reader);
			if (r && r->passes_on < WS_PASSES_ON)
				r->passes_on++;
			elsewhere[s->reader & (WS_ELSEWHERE - 1)] = 1;
		}
	}
	if (s->sampled)
		tell_answer(s, s->asker, ns);
	s->sampled = 0;
}

/* Samples the sender of a request: the current thread, which is about to wait and reads its own stack. */
static __always_inline void sample_asker(const struct ws_talk *k, struct ws_socket *s, u64 now)
{
	struct ws_thread *t = k->t;
	struct ws_cpu *c = this_cpu();
	struct ws_sample e = {};

	if (!c || now - t->stacks.asked < WS_ASK_STACK_NS)
		return;
	if (now - c->asks.since > WS_ASKS_NS) {
		c->asks.since = now;
		c->asks.n = 0;
	}
	if (c->asks.n >= WS_ASKS)
		return;
	c->asks.n++;
	t->stacks.asked = now;
	e.id = t->id;
	e.pid = t->pid;
	e.tid = t->tid;
	e.state = WS_ASKED;
	e.flags = WS_S_DEFERRED;
	e.ustack = t->stacks.ticket;
	e.begin = s->cookie;
	send_sample(&e);
	defer(k->ctx, t, bpf_get_current_task_btf());
	s->asker = t->id;
	s->sampled = 1;
}

/* Whether this process made both ends of a pair: threads wake their event loop with such a pair. A child may
 * have inherited the other end; then it answers. */
static __always_inline bool is_own_pair(struct ws_socket *s)
{
	return s->family == AF_UNIX && !s->path[0] && s->peer_pid == s->pid;
}

/*
 * The kind of the call tells whether the socket is inbound, as a constant for the compiler: a thread that
 * receives is never sampled as a sender, so the program for received messages need not contain the code that
 * reads stacks.
 */
static __always_inline void request_begins(const struct ws_talk *k, struct ws_socket *s, u64 now)
{
	bool inbound = k->kind == WS_RECEIVES;
	struct ws_thread *t = k->t;
	struct ws_requests *r;

	if (!s->answered && is_own_pair(s))
		return;
	if (!s->unanswered++)
		s->first = now;
	if (!s->answered && s->unanswered >= WS_ONE_WAY_MESSAGES && now - s->first > WS_ONE_WAY_NS) {
		request_ends(s, NULL, now);
		return;
	}
	if (s->since)
		return;
	s->since = now;
	s->requests++;
	if (!inbound)
		s->pid = t->pid; /* the process may have inherited the socket from its parent */
	s->owner = s->reader = t->tid;
	if (inbound) {
		r = said_elsewhere(t->tid) ? requests_of(t->tid) : NULL;
		if (r && r->passes_on >= WS_PASSES_ON)
			s->owner = t->pid | WS_OF_PROCESS | WS_PASSED_ON;
	}
	request_counts(t, s->owner, inbound ? WS_OWED : WS_AWAITED);
	if (inbound)
		return;
	s->loop = loop_of_socket(k->sk);
	if (s->loop)
		loop_asks(s->loop, now);
	sample_asker(k, s, now);
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

/* A connection that is seen for the first time. One that the process makes is seen when it is made. */
static __always_inline struct ws_socket *meet(const struct ws_talk *k, u64 cookie)
{
	struct ws_socket s = {};
	struct sock *sk = k->sk;
	struct pid *pid;
	struct sock *peer;

	s.cookie = cookie;
	s.pid = k->t->pid;
	s.family = sk->__sk_common.skc_family;
	if (s.family == AF_UNIX) {
		peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
		if (unix_name(sk, s.path))
			s.inbound = 1; /* an accepted socket has its listener's name */
		else if (!peer || !unix_name(peer, s.path))
			s.inbound = k->kind == WS_RECEIVES; /* a pair: the end that sends first is the client */
		pid = BPF_CORE_READ(sk, sk_peer_pid);
		if (pid)
			s.peer_pid = BPF_CORE_READ(pid, numbers[0].nr);
	} else {
		s.inbound = k->kind != WS_CONNECTS;
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

static __always_inline u64 cookie_of(struct sock *sk)
{
	return sk->__sk_common.skc_cookie.counter ?: bpf_get_socket_cookie(sk);
}

static __always_inline void converse(const struct ws_talk *k)
{
	struct sock *sk = k->sk;
	struct ws_thread *t = k->t;
	u64 cookie = cookie_of(sk), now;
	struct ws_socket *s;

	talks(t);
	s = bpf_map_lookup_elem(&sockets, &cookie);
	if (!s) {
		/* Data left to be read from a closed connection is no request. */
		if (k->ret <= 0 || (sk->__sk_common.skc_family != AF_UNIX &&
				    sk->__sk_common.skc_state == TCP_CLOSE_STATE))
			return;
		s = meet(k, cookie);
		if (!s)
			return;
	}
	if (s->inbound)
		t->own.talked_on = cookie;
	now = bpf_ktime_get_ns();
	if (k->ret > 0 && (k->kind == WS_SENDS) != s->inbound) {
		request_begins(k, s, now);
		return;
	}
	if (k->ret == 0 && k->kind == WS_SENDS)
		return;
	/* An answer; or the end of the connection, or its failure. */
	request_ends(s, t, now);
	if (k->ret > 0) {
		s->answered = 1;
		s->unanswered = 0;
	}
}

static __always_inline int talked(void *ctx, struct sock *sk, int ret, enum ws_talk_kind kind)
{
	struct ws_talk talk = { .ctx = ctx, .sk = sk, .ret = ret, .kind = kind };
	struct ws_cpu *c = this_cpu();
	u64 start;

	if (!c)
		return 0;
	c->met.runs++;
	/* First the record: the way into the programs is timed here, with this look-up (`hook_entry.rs`). */
	talk.t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	if (!talk.t || (ret < 0 && (ret == NOT_NOW || ret == INTERRUPTED || ret == RESTARTED)))
		return 0;
	if (!is_dialogue(sk))
		return 0;
	start = time_run(c, WS_AT_MESSAGE);
	converse(&talk);
	run_timed(c, start);
	return 0;
}

/* A connection is made, or is gone. */
static __always_inline int socket_state(struct sock *sk, int state)
{
	struct ws_talk talk = { .sk = sk, .kind = WS_CONNECTS };
	struct ws_socket *s;
	struct ws_socket_event e = {};
	u64 cookie;

	if (state != TCP_SYN_SENT_STATE && state != TCP_CLOSE_STATE)
		return 0;
	if (state == TCP_SYN_SENT_STATE) {
		talk.t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
		if (talk.t && is_dialogue(sk)) {
			talks(talk.t);
			meet(&talk, bpf_get_socket_cookie(sk));
		}
		return 0;
	}
	cookie = bpf_get_socket_cookie(sk);
	s = bpf_map_lookup_elem(&sockets, &cookie);
	if (!s)
		return 0;
	request_ends(s, NULL, bpf_ktime_get_ns());
	e.head.kind = WS_EV_SOCKET;
	e.head.size = sizeof(e);
	e.s = *s;
	if (bpf_ringbuf_output(&events, &e, sizeof(e), ring_flags()))
		lost(WS_L_RING_SAMPLE);
	bpf_map_delete_elem(&sockets, &cookie);
	return 0;
}
