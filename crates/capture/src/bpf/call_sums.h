/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Calls that have ended, added up: their lengths, and the ledgers of calls by length.
 *
 * Programs at user-space probes may be preempted (not moved to another CPU), so that sums per CPU are
 * added to atomically.
 */
#pragma once
#include "calls.h"

/* How much longer than it is a call seems, by kind of entry and exit, ns: measured by user space. */
u64 set_bias[2][16];
u64 set_slow = -1; /* calls of at least this length are reported one by one, ns */

#define ADD(place, n) __sync_fetch_and_add(&(place), (n))

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_tally);
} tallies SEC(".maps");

/* Function × octave. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_fine);
} fine SEC(".maps");

/* Function × octave × part. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_coarse);
} coarse SEC(".maps");

/* A call that has not ended. */
struct ws_open {
	u64 begin;
	u64 sp;      /* at the entry: where its return address is */
	u64 charged; /* the thread's, at the entry */
	u32 function;
	u32 entry;   /* 1: its instruction is single-stepped */
	u64 books[WS_BOOKS];
};

/* Global, so that the verifier does not follow each of its ways on. */
__noinline u32 ws_octave_of(u64 ns)
{
	u32 high = 0;

	if (ns >> 42)
		return WS_OCTAVES - 1;
	for (int step = 32; step; step >>= 1) {
		if (ns >> step >> high)
			high += step;
	}
	return high < 6 ? 0 : high - 5;
}

static __always_inline void raise(u64 *most, u64 to)
{
	u64 old = *(volatile u64 *)most;

	for (int try = 0; try < 8 && old < to; try++) {
		u64 found = __sync_val_compare_and_swap(most, old, to);

		if (found == old)
			break;
		old = found;
	}
}

static __always_inline struct ws_tally *tally_of(u32 function)
{
	return bpf_map_lookup_elem(&tallies, &function);
}

struct ws_ending {
	u64 now, charged;
	u64 books[WS_BOOKS];
	u32 site;
};

/* Adds a call that has ended. Global: verified once. */
__noinline int ws_add_call(struct ws_open *o, struct ws_ending *e)
{
	u64 wall, probes, grown, octave, part, longest;
	struct ws_coarse *sums;
	struct ws_tally *tally;
	struct ws_slow *slow;
	struct ws_fine *lengths;
	u32 key;

	if (!o || !e)
		return 0;
	tally = tally_of(o->function);
	if (!tally)
		return 0;
	wall = (s64)(e->now - o->begin) > 0 ? e->now - o->begin : 0;
	probes = e->charged - o->charged + set_bias[o->entry & 1][e->site & 15];
	/* Probes take CPU time, so no more of it than there was. */
	grown = (s64)(e->books[0] - o->books[0]) > 0 ? e->books[0] - o->books[0] : 0;
	probes = clamp(probes, clamp(grown, wall));
	wall -= probes;
	octave = ws_octave_of(wall);
	part = octave ? (wall >> (octave - 1)) & (WS_PARTS_FINE - 1) : wall & (WS_PARTS_FINE - 1);
	if (wall >> 42)
		part = WS_PARTS_FINE - 1;

	ADD(tally->ended, 1);
	ADD(tally->wall, wall);
	if (e->site == WS_AT_JUMP || e->site == WS_AT_BRANCH || e->site == WS_AT_INDIRECT)
		ADD(tally->by_jump, 1);
	if (e->site == WS_AT_CATCH)
		ADD(tally->by_catch, 1);
	raise(&tally->longest, wall);

	key = o->function * WS_OCTAVES + octave;
	lengths = bpf_map_lookup_elem(&fine, &key);
	if (lengths)
		ADD(lengths->count[part & (WS_PARTS_FINE - 1)], 1);
	key = key * WS_PARTS_COARSE + part / (WS_PARTS_FINE / WS_PARTS_COARSE);
	sums = bpf_map_lookup_elem(&coarse, &key);
	if (sums) {
		ADD(sums->count, 1);
		ADD(sums->wall, wall);
	}
	for (int i = 0; i < WS_BOOKS; i++) {
		grown = e->books[i] - o->books[i];
		if ((s64)grown < 0)
			grown = 0; /* booked elsewhere since, from the kernel's own counters */
		if (!i)
			grown -= probes;
		o->books[i] = grown;
		if (sums && grown)
			ADD(sums->books[i], grown);
	}
	longest = set_slow;
	if (wall < longest)
		return 0;
	slow = bpf_ringbuf_reserve(&events, sizeof(*slow), 0);
	if (!slow) {
		lost(WS_L_RING_SAMPLE);
		return 0;
	}
	slow->head.kind = WS_EV_SLOW;
	slow->head.size = sizeof(*slow);
	slow->begin = o->begin;
	slow->end = e->now;
	slow->wall = wall;
	__builtin_memcpy(slow->books, o->books, sizeof(slow->books));
	slow->function = o->function;
	slow->pid = bpf_get_current_pid_tgid() >> 32;
	slow->tid = (u32)bpf_get_current_pid_tgid();
	slow->pad0 = 0;
	bpf_get_current_comm(slow->comm, sizeof(slow->comm));
	bpf_ringbuf_submit(slow, ring_flags());
	return 0;
}
