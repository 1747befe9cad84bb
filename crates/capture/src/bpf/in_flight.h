/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Open requests by thread: whether a thread that waits has one in flight. Requests are counted as sockets.h
 * sees them begin and end; epoll.h adds the answers that are awaited at an epoll instance.
 */
#pragma once

#include "epoll.h"

/* Bits of a key of in_flight: the process, not a thread; and its requests that threads pass on. */
#define WS_OF_PROCESS (1u << 31)
#define WS_PASSED_ON (1u << 30)

/*
 * Open requests by thread, or by process where the thread is not known. Those that a thread begins and ends
 * itself are counted in its record alone, so that no map lookup is needed. The map has an entry for each
 * thread that talks, with the requests that other threads ended. The sum of record and map is the number of
 * open requests.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct ws_requests);
} in_flight SEC(".maps");

u32 set_old_requests = 0; /* user space put open requests of processes into the map */

/* Whether the map may say more of a thread than its record, by the last bits of its id. */
#define WS_ELSEWHERE 8192
u8 elsewhere[WS_ELSEWHERE] = {};

static __always_inline bool said_elsewhere(u32 tid)
{
	return elsewhere[tid & (WS_ELSEWHERE - 1)];
}

static __always_inline struct ws_requests *requests_of(u32 key)
{
	return bpf_map_lookup_elem(&in_flight, &key);
}

/* The thread talks from now on. */
static __always_inline void talks(struct ws_thread *t)
{
	struct ws_requests none = {};
	u32 tid = t->tid;

	if (t->wait.talks)
		return;
	t->wait.talks = 1;
	if (bpf_map_update_elem(&in_flight, &tid, &none, BPF_NOEXIST))
		lost(WS_L_SOCKETS);
}

/* Side of a request: the process owes the answer to a client, or awaits the answer of a server. */
enum ws_side { WS_AWAITED, WS_OWED };

/* The current thread, `t`, opens a request, which counts for `key`: the thread itself or its process. */
static __always_inline void request_counts(struct ws_thread *t, u32 key, enum ws_side side)
{
	struct ws_requests *r, one = {};

	if (key == t->tid) {
		t->own.owed += side == WS_OWED;
		t->own.awaited += side == WS_AWAITED;
		return;
	}
	r = requests_of(key);
	if (r) {
		__sync_fetch_and_add(side == WS_OWED ? &r->owed : &r->awaited, 1);
		return;
	}
	one.owed = side == WS_OWED;
	one.awaited = side == WS_AWAITED;
	if (bpf_map_update_elem(&in_flight, &key, &one, BPF_NOEXIST))
		lost(WS_L_SOCKETS);
}

/* `t`: the current thread, if it is the one that ended the request; else NULL. */
static __always_inline void request_counts_no_more(struct ws_thread *t, u32 key, enum ws_side side,
						   u64 now)
{
	struct ws_requests *r;

	if (t && key == t->tid) {
		/* An earlier thread with this id may have left the request. */
		t->own.owed -= side == WS_OWED && t->own.owed;
		t->own.awaited -= side == WS_AWAITED && t->own.awaited;
		t->own.until = now;
		return;
	}
	r = requests_of(key);
	if (!r)
		return;
	__sync_fetch_and_add(side == WS_OWED ? &r->owed : &r->awaited, -1);
	r->until = now;
	elsewhere[key & (WS_ELSEWHERE - 1)] = 1;
}

/* Whether, and up to when, requests of a process are in flight for a wait of `reason`: all ones while one is. */
static __always_inline u64 process_until(u32 key, u32 reason)
{
	struct ws_requests *r = requests_of(key);

	if (!r)
		return 0;
	return r->owed || (reason != WS_TIMER && r->awaited) ? ~0ull : r->until;
}

/* Whether, and up to when, requests of a thread are in flight for a wait of `reason`: all ones while one is. */
static __always_inline u64 thread_until(struct ws_thread *t, u32 reason)
{
	struct ws_requests *r = said_elsewhere(t->tid) ? requests_of(t->tid) : NULL;
	s32 owed = t->own.owed, awaited = t->own.awaited;
	u64 until = t->own.until;

	if (r) {
		owed += r->owed;
		awaited += r->awaited;
		until = r->until > until ? r->until : until;
	}
	return owed > 0 || (reason != WS_TIMER && awaited > 0) ? ~0ull : until;
}

/* `until`, or later: adds the process's requests that belong to no thread, from before the recording or passed on. */
__noinline u64 ws_process_until(u32 pid, u32 reason, u32 answers, u64 until)
{
	u64 more;

	/* The thread of an old request is not known: only waits that may be for one count. */
	if (set_old_requests &&
	    (reason == WS_NETWORK || reason == WS_POLL || reason == WS_PIPE)) {
		more = process_until(pid | WS_OF_PROCESS, reason);
		until = more > until ? more : until;
	}
	if (reason == WS_TIMER && answers) {
		more = process_until(pid | WS_OF_PROCESS | WS_PASSED_ON, reason);
		until = more > until ? more : until;
	}
	return until;
}

/*
 * Whether a thread that waits for `reason`, or its process by old requests, has a request in flight: all
 * ones if it has, else up to when it had.
 */
static __always_inline u64 in_flight_until(struct ws_thread *t, u8 reason)
{
	u64 until = thread_until(t, reason);

	if (until == ~0ull || !(set_old_requests || t->wait.answers))
		return until;
	return ws_process_until(t->pid, reason, t->wait.answers, until);
}

/* Whether an answer is awaited by a thread, or by its process since before. */
static __always_inline bool awaits(struct ws_thread *t)
{
	u32 key = t->pid | WS_OF_PROCESS;
	s32 awaited = t->own.awaited;
	struct ws_requests *r;

	if (said_elsewhere(t->tid)) {
		r = requests_of(t->tid);
		awaited += r ? r->awaited : 0;
	}
	if (awaited > 0 || !set_old_requests)
		return awaited > 0;
	r = requests_of(key);
	return r && r->awaited;
}

/* Whether a request is in flight for `t`, which begins to wait for `reason` at `t->wait.at`, and whether it awaits an
 * answer. Global, as the next one: verified once. */
__noinline u32 ws_has_in_flight(struct ws_thread *t, u32 reason)
{
	if (!t)
		return 0;
	if ((t->wait.talks || set_old_requests) && in_flight_until(t, reason) == ~0ull)
		return WS_ASKING | (awaits(t) ? WS_AWAITS : 0);
	return awaited_at(t->wait.at, t->turn.block_begin, t->turn.block_begin) ? WS_ASKING | WS_AWAITS : 0;
}

/* `p` begins to wait for `reason`: whether a request is in flight for it, and whether it awaits an answer. */
static __always_inline u8 has_in_flight(struct ws_thread *t, struct task_struct *p, u8 reason)
{
	if (unlikely(set_given_up)) {
		t->wait.at = 0;
		return 0;
	}
	t->wait.at = place_of_wait(t, p, reason);
	return ws_has_in_flight(t, reason);
}

/* WS_ASKING and WS_AWAITS of the wait that ends now, 0 unless a request was in flight for half of it or more. Other
 * threads may have answered or asked meanwhile. */
__noinline u32 ws_was_in_flight(struct ws_thread *t, u64 now)
{
	u64 until;

	if (!t)
		return 0;
	if (t->wait.asking) {
		until = in_flight_until(t, t->at.block_reason);
		if (until >= now || (until > t->turn.block_begin &&
				     until - t->turn.block_begin >= (now - t->turn.block_begin) / 2))
			return t->wait.asking;
	}
	return awaited_at(t->wait.at, t->turn.block_begin, now) ? WS_ASKING | WS_AWAITS : 0;
}

static __always_inline u8 was_in_flight(struct ws_thread *t, u64 now)
{
	return unlikely(set_given_up) ? 0 : ws_was_in_flight(t, now);
}

static __always_inline void forget_in_flight(struct ws_thread *t)
{
	u32 tid = t->tid;

	if (t->wait.talks)
		bpf_map_delete_elem(&in_flight, &tid);
	t->wait.talks = 0;
	t->own.owed = t->own.awaited = 0;
}
