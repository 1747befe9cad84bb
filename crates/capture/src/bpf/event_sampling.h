/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Stacks at events that the user names: page faults, tracepoints, hardware counters.
 *
 * The kernel reports software events and tracepoints one by one, and they are counted one by one, by thread. A
 * stack is taken at some occurrences, and stands for its thread's occurrences since the stack before. The gaps
 * between stacks are random, so that no pattern of events falls into step with them. They become longer if stacks
 * would cost more than their budget. Hardware counters come with their own period.
 *
 * Programs of this kind do not nest on a CPU (the kernel leaves the inner one out), nor with the
 * on-CPU timer, so they share its work areas.
 */
#pragma once

#define WS_EVENTS 16
/* Flag in a program's cookie, beside the event's number: the program runs once per period of a counter. */
#define WS_BY_PERIOD (1ull << 32)

u64 set_event_budget = 0; /* ns that stacks may cost on a CPU, per event and WS_EVENT_WINDOW */
u64 set_event_gap = 0;    /* occurrences per stack, as the user sets it; 0: as many stacks as the budget allows */
#define WS_EVENT_WINDOW 100000000ull

struct ws_hits_key {
	u64 id; /* the thread's record */
	u64 event;
};
struct ws_hits {
	u64 hits;
	u64 since; /* the last stack */
	u64 gap;   /* to the next one */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ws_hits_key);
	__type(value, struct ws_hits);
} event_hits SEC(".maps");

/* How far apart the stacks at an event are on this CPU. */
struct ws_thinning {
	u64 window; /* when the stretch began in which `spent` was spent */
	u64 spent;
	u64 gap;    /* mean occurrences per stack; 0 is 1 */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WS_EVENTS);
	__type(key, u32);
	__type(value, struct ws_thinning);
} thinnings SEC(".maps");

/* The distance to the next stack: random, `mean` in the mean. */
static __always_inline u64 next_gap(u64 mean)
{
	return mean > 1 ? 1 + bpf_get_prandom_u32() % (2 * mean - 1) : 1;
}

/* A stack has cost `ns`: doubles the occurrences per stack whenever the budget is used up. */
static __always_inline void thin_out(struct ws_thinning *n, u64 now, u64 ns)
{
	if (now - n->window > WS_EVENT_WINDOW) {
		if (n->gap > 1 && n->spent < set_event_budget / 4)
			n->gap /= 2;
		n->window = now;
		n->spent = 0;
	}
	n->spent += ns;
	if (n->spent > set_event_budget && n->gap < 1 << 20) {
		n->gap = n->gap ? n->gap * 2 : 2;
		n->spent = 0;
	}
}

/* The event that `cookie` names has happened `n` times in the current thread. `mode`: WS_S_USER_MODE, or 0. */
static __always_inline int hit(void *ctx, u64 cookie, u64 n, u32 mode)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_hits_key key = { .event = (u32)cookie };
	struct ws_hits first = {}, *h;
	struct ws_sample s = {};
	struct ws_thinning *thin;
	struct ws_cpu *c = this_cpu();
	u32 event = cookie;
	u64 start;

	if (!t || !c)
		return 0;
	thin = bpf_map_lookup_elem(&thinnings, &event);
	if (!thin)
		return 0;
	start = time_run(c, WS_AT_EVENT);
	key.id = t->id;
	h = bpf_map_lookup_elem(&event_hits, &key);
	if (!h) {
		first.gap = next_gap(set_event_gap ? set_event_gap : thin->gap);
		bpf_map_update_elem(&event_hits, &key, &first, BPF_NOEXIST);
		h = bpf_map_lookup_elem(&event_hits, &key);
		if (!h) {
			c->losses[WS_L_HITS_FULL]++;
			return 0;
		}
	}
	h->hits += n;
	h->since += n;
	if (!(cookie & WS_BY_PERIOD) && h->since < h->gap) {
		run_timed(c, start);
		return 0;
	}
	start = bpf_ktime_get_ns();
	s.state = WS_HIT;
	s.detail = event;
	s.ns = h->since;
	s.flags = mode;
	sample_here(&s, t, p, ctx);
	h->since = 0;
	n = bpf_ktime_get_ns() - start;
	c->cost.hits_ns += n;
	thin_out(thin, start, n);
	h->gap = next_gap(set_event_gap ? set_event_gap : thin->gap);
	return 0;
}

SEC("perf_event")
int ws_event(struct bpf_perf_event_data *ctx)
{
	return hit(ctx, bpf_get_attach_cookie(ctx), ctx->sample_period,
		   ctx->regs.cs & 3 ? WS_S_USER_MODE : 0);
}

SEC("tp")
int ws_event_point(void *ctx)
{
	return hit(ctx, bpf_get_attach_cookie(ctx), 1, 0);
}
