/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Histograms of the lengths of intervals: each interval is counted exactly, in log-linear buckets.
 *
 * The histograms over all threads are fine (32 parts an octave): by block reason, part of runnable time, and on the
 * CPU, in arrays of each CPU. Those of a thread are coarse (4 parts an octave), by state: a thread's buckets must
 * stay small. `wallscope_model::histogram` has the same division.
 *
 * An interval is counted at the switch-in that follows it: until then its length may change, and
 * so one look-up serves the stretch on the CPU, the block and the wait for a CPU of a turn.
 */
#pragma once

#define WS_LENGTH_UNIT 4 /* lengths are counted in units of 16 ns */
#define WS_FINE_BITS 5 /* bits of sub-division, over all threads */
#define WS_COARSE_BITS 2 /* and by thread */
#define WS_BUCKETS 1056
#define WS_COARSE_BUCKETS (WS_BUCKETS >> (WS_FINE_BITS - WS_COARSE_BITS))

/* Histograms over all threads: on the CPU, parts of runnable time, block reasons. */
enum { WS_CLASS_ON_CPU, WS_CLASS_RUNNABLE, WS_CLASS_BLOCKED = WS_CLASS_RUNNABLE + WS_PARTS };
#define WS_CLASSES (WS_CLASS_BLOCKED + WS_REASONS)

struct ws_histogram {
	u64 max;
	u32 count[WS_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WS_CLASSES);
	__type(key, u32);
	__type(value, struct ws_histogram);
} histograms SEC(".maps");

/* Histograms of a thread: on the CPU, runnable, blocked. */
enum { WS_OWN_ON_CPU, WS_OWN_RUNNABLE, WS_OWN_BLOCKED, WS_OWN };

struct ws_own_histogram {
	u64 max[WS_OWN];
	u32 count[WS_OWN * WS_COARSE_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ws_own_histogram);
} own_histograms SEC(".maps");

/* A dying thread's histograms on their way out. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_histogram_event);
} histogram_events SEC(".maps");

static __always_inline u32 bucket_of(u64 ns)
{
	u64 units = ns >> WS_LENGTH_UNIT, rest = units;
	u32 octave = 0, bucket;

	if (units < 1 << WS_FINE_BITS)
		return units;
	/* The place of the highest bit; there is no instruction for it. */
	if (rest >> 32) { rest >>= 32; octave += 32; }
	if (rest >> 16) { rest >>= 16; octave += 16; }
	if (rest >> 8) { rest >>= 8; octave += 8; }
	if (rest >> 4) { rest >>= 4; octave += 4; }
	if (rest >> 2) { rest >>= 2; octave += 2; }
	octave += rest >> 1;
	bucket = (octave - WS_FINE_BITS + 1) << WS_FINE_BITS |
		 ((units >> (octave - WS_FINE_BITS)) & ((1 << WS_FINE_BITS) - 1));
	return bucket < WS_BUCKETS ? bucket : WS_BUCKETS - 1;
}

static __always_inline void count_length(struct ws_own_histogram *own, u32 state, u32 class, u64 ns)
{
	struct ws_histogram *all = bpf_map_lookup_elem(&histograms, &class);
	u32 bucket = bucket_of(ns);

	if (all && bucket < WS_BUCKETS) {
		all->count[bucket]++;
		if (ns > all->max)
			all->max = ns;
	}
	if (!own || state >= WS_OWN)
		return;
	if (ns > own->max[state])
		own->max[state] = ns;
	bucket = (bucket >> (WS_FINE_BITS - WS_COARSE_BITS)) + state * WS_COARSE_BUCKETS;
	if (bucket < WS_OWN * WS_COARSE_BUCKETS)
		own->count[bucket]++;
}

/* Made with the thread's record, never under a run-queue lock. */
static __always_inline void histogram_made(struct task_struct *p)
{
	if (cfg_by_thread && !bpf_task_storage_get(&own_histograms, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
		lost(WS_L_NO_HISTOGRAM);
}

/*
 * The intervals of the turn that ends with this switch-in, or with the thread. A global function:
 * verified once by itself and not along every path of its callers.
 */
__noinline int count_lengths(struct ws_thread *t, struct ws_own_histogram *own, u64 waited, u32 part)
{
	if (!t)
		return 0;
	if (t->turn.stretch)
		count_length(own, WS_OWN_ON_CPU, WS_CLASS_ON_CPU, t->turn.stretch);
	if (t->at.block_len && t->at.block_reason < WS_REASONS)
		count_length(own, WS_OWN_BLOCKED, WS_CLASS_BLOCKED + t->at.block_reason, t->at.block_len);
	if (waited && part < WS_PARTS)
		count_length(own, WS_OWN_RUNNABLE, WS_CLASS_RUNNABLE + part, waited);
	t->turn.stretch = 0;
	return 0;
}

static __always_inline void count_turn(struct ws_thread *t, struct task_struct *p, u64 waited,
				       u32 part)
{
	struct ws_own_histogram *own = NULL;

	if (cfg_by_thread)
		own = bpf_task_storage_get(&own_histograms, p, 0, 0);
	count_lengths(t, own, waited, part);
}

struct ws_histogram_packing {
	struct ws_own_histogram *own;
	struct ws_histogram_event *e; /* counts in `n`: there the verifier does not follow it */
};

static long pack_bucket(u32 i, struct ws_histogram_packing *to)
{
	u32 n = to->e->n, count;

	if (i >= WS_OWN * WS_COARSE_BUCKETS || n >= WS_MAX_BUCKETS_SENT)
		return 1;
	count = to->own->count[i];
	if (!count)
		return 0;
	to->e->bucket[n].index = i;
	to->e->bucket[n].count = count;
	to->e->n = n + 1;
	return 0;
}

/*
 * Packs a thread's histograms without their empty buckets, and the `block` of the turn under way. Returns the size,
 * 0 if there is nothing to report.
 */
__noinline u64 pack_histogram(struct ws_histogram_event *e, struct ws_thread *t, struct ws_own_histogram *own, u64 block)
{
	struct ws_histogram_packing packing = { own, e };
	u32 n;

	if (!e || !t || !own)
		return 0;
	e->n = 0;
	bpf_loop(WS_OWN * WS_COARSE_BUCKETS, pack_bucket, &packing, 0);
	n = e->n;
	if (n > WS_MAX_BUCKETS_SENT)
		return 0;
	e->id = t->id;
	e->stretch = t->turn.stretch;
	e->block = block;
	e->block_reason = t->at.block_reason;
	for (u32 i = 0; i < WS_OWN; i++)
		e->max[i] = own->max[i];
	e->head.kind = WS_EV_HISTOGRAM;
	e->head.size = offsetof(struct ws_histogram_event, bucket) + n * sizeof(e->bucket[0]);
	return n || e->stretch || e->block ? e->head.size : 0;
}

/* The thread is gone: counts its last stretch, and sends its histograms. */
static __always_inline void histogram_gone(struct ws_thread *t, struct task_struct *p)
{
	u32 key = 0;
	u64 size;
	struct ws_histogram_event *e = bpf_map_lookup_elem(&histogram_events, &key);

	count_turn(t, p, 0, 0);
	if (!cfg_by_thread || !e)
		return;
	size = pack_histogram(e, t, bpf_task_storage_get(&own_histograms, p, 0, 0), 0);
	if (!size)
		return;
	barrier_var(size); /* or the two tests become one, of a copy */
	if (size <= sizeof(*e) && bpf_ringbuf_output(&events, e, size, ring_flags()))
		lost(WS_L_RING_HISTOGRAM);
}
