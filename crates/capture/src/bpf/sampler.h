/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Whose is an on-CPU sample?
 *
 * A software timer fires late: some microseconds on bare metal, 10 to 30 in a virtual machine,
 * whose host must first take notice. As long as the CPU is busy that does not matter, as what is
 * lost at the end of one stretch is won at the end of the one before. Next to an idle task it
 * does: the interrupt that wakes a thread wakes the CPU too, and a sample that was due just before
 * is delivered together with it, after the thread was woken; but one that was due just before the
 * thread left finds the CPU idle, and on some CPUs the kernel gives no samples of the idle task at
 * all. Threads that run for tens of microseconds between two waits would seem to compute up to a
 * third less than they do, or half as much again.
 *
 * So a sample belongs to the thread that was on the CPU when it was *due*. What is due and not
 * delivered as that thread leaves is charged, at its next switch-in, to the stack with which it
 * left; so is what was delivered to the idle task since the thread was woken.
 */
#pragma once

extern void *bpf_cast_to_kern_ctx(void *obj) __weak __ksym;

#define KNOWS_DUE bpf_core_field_exists(struct hrtimer, node.expires)
#define OFFSET_DUE bpf_core_field_offset(struct perf_event, hw.hrtimer.node.expires)
#define OFFSET_PERIOD bpf_core_field_offset(struct perf_event, hw.sample_period)

#define WS_SOON 50000	 /* ns from a wake-up to the switch-in, at most: what is due by then is looked up */
#define WS_LATE 1000000	 /* ns: of what comes later than this after it was due, nothing is concluded */

/*
 * When the sample was due; `now` for cycles, whose interrupts wait for nothing, and where the kernel
 * does not tell.
 */
static __always_inline u64 sample_due(struct bpf_perf_event_data *ctx, struct ws_cpu *c,
				      bool measured, u64 now)
{
	struct bpf_perf_event_data_kern *kern;
	u64 due;

	if (!set_clock)
		return now;
	if (cfg_due && bpf_ksym_exists(bpf_cast_to_kern_ctx) && KNOWS_DUE) {
		kern = bpf_cast_to_kern_ctx(ctx);
		due = kern->event->hw.hrtimer.node.expires;
		if (now - due < WS_LATE) {
			c->timer = (u64)kern->event;
			/* Who was woken since may be its owner: it is looked up when that one comes. */
			c->next = measured ? due + kern->event->hw.sample_period : due;
			return due;
		}
	}
	c->losses[WS_L_UNDATED]++;
	return now;
}

/* Whether the sample is to be taken in the current task, whose record is `t`. */
static __always_inline bool sample_is_its(struct ws_cpu *c, struct ws_thread *t, u64 due)
{
	return t && (s64)(due - c->came) >= 0 && due != c->charged;
}

/*
 * At each switch from or to a measured thread. A task woken on an idle CPU is on it, in the kernel's
 * books and so in ours, from its wake-up.
 */
static __always_inline void sampler_switched(struct ws_cpu *c, struct ws_thread *out,
					     struct ws_thread *in, u64 now)
{
	struct ws_thread *whose = out ?: in;
	void *timer = (void *)c->timer;
	u64 due, period;
	bool missed;

	if (!out)
		c->came = now;
	if (!KNOWS_DUE || !timer || (s64)(c->next - now) >= WS_SOON || !whose ||
	    bpf_probe_read_kernel(&due, sizeof(due), timer + OFFSET_DUE) ||
	    bpf_probe_read_kernel(&period, sizeof(period), timer + OFFSET_PERIOD))
		return;
	c->next = due;
	/* Of who leaves: what is due and still to come. Of who comes: the last one that came. */
	if (!out)
		due -= period;
	missed = out ? (s64)(now - due) > 0 && now - due < WS_LATE : (s64)(due - now) < WS_LATE;
	if (missed && (s64)(due - c->came) >= 0 && due != c->charged) {
		whose->early++;
		c->charged = due;
	}
}
