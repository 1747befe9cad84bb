/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Open requests by thread: whether a thread that waits has one in flight. Requests are counted as sockets.h
 * sees them begin and end; epoll.h adds the answers that are awaited at an epoll instance.
 */
#pragma once

#include "epoll.h"

/* Set in a key of in_flight: the process, not a thread; and its requests that go from hand to hand. */
#define WS_OF_PROCESS (1u << 31)
#define WS_PASSED_ON (1u << 30)

/* Open requests by thread, or by process where the thread is not known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct ws_requests);
} in_flight SEC(".maps");

u32 set_old_requests = 0; /* user space put open requests of processes into the map */

static __always_inline struct ws_requests *requests_of(u32 key)
{
	return bpf_map_lookup_elem(&in_flight, &key);
}

static __always_inline void request_counts(u32 key, bool owed)
{
	struct ws_requests *r = requests_of(key), one = {};

	if (r) {
		__sync_fetch_and_add(owed ? &r->owed : &r->awaited, 1);
		return;
	}
	one.owed = owed;
	one.awaited = !owed;
	if (bpf_map_update_elem(&in_flight, &key, &one, BPF_NOEXIST))
		lost(WS_L_SOCKETS);
}

static __always_inline void request_counts_no_more(u32 key, bool owed, u64 now)
{
	struct ws_requests *r = requests_of(key);

	if (!r)
		return;
	__sync_fetch_and_add(owed ? &r->owed : &r->awaited, -1);
	r->until = now;
}

/* Whether, and up to when, requests of this key were in flight: all ones while one is. */
static __always_inline u64 in_flight_until(u32 key, bool asleep)
{
	struct ws_requests *r = requests_of(key);

	if (!r)
		return 0;
	return r->owed || (!asleep && r->awaited) ? ~0ull : r->until;
}

/*
 * Whether a thread that waits for `reason`, or its process by old requests, has a request in flight: all
 * ones if it has, else up to when it had.
 */
__noinline u64 ws_in_flight_until(u32 tid, u32 pid, u32 reason, u32 answers)
{
	bool asleep = reason == WS_TIMER;
	u64 until = in_flight_until(tid, asleep), more;

	/* Whose an old request is is not known: only waits that may be for one count. */
	if (set_old_requests &&
	    (reason == WS_NETWORK || reason == WS_POLL || reason == WS_PIPE)) {
		more = in_flight_until(pid | WS_OF_PROCESS, asleep);
		until = more > until ? more : until;
	}
	if (asleep && answers) {
		more = in_flight_until(pid | WS_OF_PROCESS | WS_PASSED_ON, asleep);
		until = more > until ? more : until;
	}
	return until;
}

/* Whether an answer is awaited by a thread, or by its process since before. */
__noinline int ws_awaits(u32 tid, u32 pid)
{
	struct ws_requests *r = requests_of(tid);

	if (r && r->awaited)
		return 1;
	r = set_old_requests ? requests_of(pid | WS_OF_PROCESS) : NULL;
	return r && r->awaited;
}

/* The thread, `p`, begins to wait for `reason`: is a request in flight, and whose? */
static __always_inline u8 has_in_flight(struct ws_thread *t, struct task_struct *p, u8 reason)
{
	t->waits_at = place_of_wait(p, reason);
	if ((t->talks || set_old_requests) &&
	    ws_in_flight_until(t->tid, t->pid, reason, t->answers) == ~0ull)
		return WS_ASKING | (ws_awaits(t->tid, t->pid) ? WS_AWAITS : 0);
	return awaited_at(t->waits_at, t->block_begin, t->block_begin) ? WS_ASKING | WS_AWAITS : 0;
}

/* Its wait ends now: was one in flight for most of it? Others may have answered, or asked meanwhile. */
static __always_inline u8 was_in_flight(struct ws_thread *t, u64 now)
{
	u64 until;

	if (t->asking) {
		until = ws_in_flight_until(t->tid, t->pid, t->block_reason, t->answers);
		if (until >= now || (until > t->block_begin &&
				     until - t->block_begin >= (now - t->block_begin) / 2))
			return t->asking;
	}
	return awaited_at(t->waits_at, t->block_begin, now) ? WS_ASKING | WS_AWAITS : 0;
}

static __always_inline void forget_in_flight(struct ws_thread *t)
{
	u32 tid = t->tid;

	if (t->talks)
		bpf_map_delete_elem(&in_flight, &tid);
}
