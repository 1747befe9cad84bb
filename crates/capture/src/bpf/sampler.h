/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Whose is an on-CPU sample?
 *
 * A software timer fires late: some microseconds on bare metal, 10 to 30 in a virtual machine,
 * whose host must first take notice. As long as the CPU is busy that does not matter, as what is
 * lost at the end of one stretch is won at the end of the one before. Next to an idle task it
 * does: the interrupt that wakes a thread wakes the CPU too, and a sample that was due just before
 * is delivered together with it, after the thread was woken; but one that was due just before the
 * thread left finds the CPU idle, and of the idle task there are no samples. Threads that run for
 * tens of microseconds between two waits would seem to compute up to a third less than they do, or
 * half as much again.
 *
 * So a sample belongs to the thread that was on the CPU when it was *due*. What is due and not
 * delivered as that thread leaves is charged, at its next switch-in, to the stack with which it
 * left; so is what came beside the idle task since the thread was woken.
 *
 * And no such timer can show how long it takes to set one. To set the timer that is due first on its
 * CPU is to tell the hardware, for which a virtual machine leaves to its host: 8 µs where this was
 * written, a third of what a thread does that sleeps some thousand times a second. But where a sample
 * is due in these microseconds, it is the first itself, and they do not pass. So from when a thread
 * sets the timer by which it sleeps, until it leaves, nothing is sampled: this time is measured, and
 * charged to its stack whenever it has come to a period.
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

/* From the setting of a timer until its thread has left is less than this, in ns; or it did not leave for that. */
#define WS_ARMED 100000

/* A timer is being set, in the current task or in an interrupt of it. */
static __always_inline void sampler_armed(struct ws_thread *t, struct task_struct *p)
{
	if (t->state == WS_ON_CPU && p->__state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE))
		t->armed = bpf_ktime_get_ns();
}

/* Whether what is due at `due` is due while `t` goes to sleep by a timer. */
static __always_inline bool due_armed(struct ws_thread *t, u64 due)
{
	return t->armed && due - t->armed < WS_ARMED;
}

/* Whether the sample is to be taken in the current task `p`, whose record is `t`. */
static __always_inline bool sample_is_its(struct ws_cpu *c, struct ws_thread *t, struct task_struct *p, u64 due)
{
	return t && (s64)(due - c->came) >= 0 && due != c->charged && !(p->__state && due_armed(t, due));
}

/* `t` has left at `now`: how it came to that is charged, if it sleeps by a timer. */
static __always_inline void charge_armed(struct ws_thread *t, u64 now)
{
	u64 length = now - t->armed, period = set_cpu_period;

	if (t->state != WS_BLOCKED || length >= WS_ARMED || length > t->stretch) {
		t->armed = 0;
		return;
	}
	t->credit_armed += length;
	if (period && t->credit_armed >= period) {
		t->early += t->credit_armed / period;
		t->credit_armed %= period;
	}
}

/*
 * At each switch from or to a measured thread. A task woken on an idle CPU is on it, in the kernel's
 * books and so in ours, from its wake-up.
 */
static __always_inline void sampler_switched(struct ws_cpu *c, struct ws_thread *out,
					     struct ws_thread *in, u64 now)
{
	struct ws_thread *t = out ?: in;
	void *timer = (void *)c->timer;
	u64 due, period;
	bool missed;

	if (!out)
		c->came = now;
	else if (out->armed)
		charge_armed(out, now);
	if (!KNOWS_DUE || !timer || !unlikely((s64)(c->next - now) < WS_SOON) || !t ||
	    bpf_probe_read_kernel(&due, sizeof(due), timer + OFFSET_DUE) ||
	    bpf_probe_read_kernel(&period, sizeof(period), timer + OFFSET_PERIOD))
		return;
	c->next = due;
	/* For a thread that leaves, the sample that is due next; for one that comes, the last sample. */
	if (!out)
		due -= period;
	missed = out ? (s64)(now - due) > 0 && now - due < WS_LATE : (s64)(due - now) < WS_LATE;
	if (missed && (s64)(due - c->came) >= 0 && due != c->charged) {
		t->early += !(out && due_armed(out, due));
		c->charged = due;
	}
}
