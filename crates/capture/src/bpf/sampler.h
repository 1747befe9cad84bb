/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The thread that an on-CPU sample belongs to.
 *
 * A software timer fires late: some microseconds on bare metal, 10 to 30 µs in a virtual machine, because the host
 * must act first. While the CPU is busy that does not matter: a thread loses the samples due at the end of its own
 * stretch, and gains those due at the end of the stretch before. Next to the idle task it does matter: the interrupt
 * that wakes a thread wakes the CPU too, and a sample that was due just before is delivered with it, after the thread
 * was woken. A sample that was due just before the thread left finds the CPU idle, and the idle task has no samples.
 * Threads that run for tens of microseconds between two waits would seem to compute up to a third less than they do,
 * or half as much again.
 *
 * So a sample belongs to the thread that was on the CPU when the sample was *due*. If it is not delivered
 * by the time that thread leaves, it is charged, at the next switch-in, to the stack with which the thread
 * left. So is a sample that the idle task got after the thread was woken.
 *
 * Nor can such a timer show how long it takes to set one. Setting the timer that is due first on its CPU
 * programs the hardware, for which a virtual machine exits to its host: 8 µs where this was written, a
 * third of the work of a thread that sleeps some thousand times a second. But if a sample is due in these
 * microseconds, its own timer is the first, and the cost does not occur. So nothing is sampled from the
 * moment when a thread sets the timer by which it sleeps until it leaves. This time is measured, and is
 * charged to its stack each time it adds up to a period.
 */
#pragma once

extern void *bpf_cast_to_kern_ctx(void *obj) __weak __ksym;

#define KNOWS_DUE bpf_core_field_exists(struct hrtimer, node.expires)
#define OFFSET_DUE bpf_core_field_offset(struct perf_event, hw.hrtimer.node.expires)
#define OFFSET_PERIOD bpf_core_field_offset(struct perf_event, hw.sample_period)

#define WS_SOON 50000	 /* ns from a wake-up to the switch-in, at most: a sample that is due by then is looked up */
#define WS_LATE 1000000	 /* ns: a sample that comes later than this after it was due proves nothing */

/*
 * Time at which the sample was due. `t`: record of the current task, NULL for none. Returns `now` for cycles, because
 * their interrupts are not delayed. Returns `now` also where the kernel does not tell the due time.
 */
static __always_inline u64 sample_due(struct bpf_perf_event_data *ctx, struct ws_cpu *c,
				      struct ws_thread *t, u64 now)
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
			/* It may belong to a thread woken since: the switch-in of that thread looks it up. */
			c->next = t ? due + kern->event->hw.sample_period : due;
			return due;
		}
	}
	c->losses[WS_L_UNDATED]++;
	return now;
}

/* Longest time from setting a timer until the thread leaves, ns; if longer, it leaves for another reason. */
#define WS_ARMED 100000

/* A timer is being set, in the current task or in an interrupt of it. */
static __always_inline void sampler_armed(struct ws_thread *t, struct task_struct *p)
{
	if (t->at.state == WS_ON_CPU && p->__state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE))
		t->samples.armed = bpf_ktime_get_ns();
}

/* Whether a sample due at `due` falls into the time in which `t` goes to sleep by a timer. */
static __always_inline bool due_armed(struct ws_thread *t, u64 due)
{
	return t->samples.armed && due - t->samples.armed < WS_ARMED;
}

/* Whether the sample is to be taken in the current task `p`, with record `t`. */
static __always_inline bool sample_is_its(struct ws_cpu *c, struct ws_thread *t, struct task_struct *p, u64 due)
{
	return t && (s64)(due - c->came) >= 0 && due != c->charged && !(p->__state && due_armed(t, due));
}

/* `t` has left at `now`: charges the time since it set the timer, if it sleeps by one. */
static __always_inline void charge_armed(struct ws_thread *t, u64 now)
{
	u64 length = now - t->samples.armed, period = set_cpu_period;

	if (t->at.state != WS_BLOCKED || length >= WS_ARMED || length > t->turn.stretch) {
		t->samples.armed = 0;
		return;
	}
	t->stacks.credit_armed += length;
	if (period && t->stacks.credit_armed >= period) {
		t->samples.early += t->stacks.credit_armed / period;
		t->stacks.credit_armed %= period;
	}
}

/*
 * At each switch from or to a measured thread. The kernel, and so the ledger, counts a task woken on an idle CPU as
 * on that CPU from its wake-up.
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
	else if (out->samples.armed)
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
		t->samples.early += !(out && due_armed(out, due));
		c->charged = due;
	}
}
