/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Whose is an on-CPU sample?
 *
 * A software timer fires late: some microseconds on bare metal, 10 to 30 in a virtual machine,
 * whose host must first take notice. As long as the CPU is busy that does not matter, as what is
 * lost at the end of one stretch is won at the end of the one before. Next to an idle task it
 * does: the interrupt that wakes a thread wakes the CPU too, and a sample that was due just before
 * is delivered together with it, before the thread is on; but one that was due just before the
 * thread left finds the CPU idle. Threads that run for tens of microseconds between two waits
 * would seem to compute up to a third less than they do.
 *
 * So where a task that is not measured lies between, a sample belongs to the thread that was on
 * the CPU when it was *due*. If that thread has left, the sample is charged, at its next
 * switch-in, to the stack with which it left.
 */
#pragma once

extern void *bpf_cast_to_kern_ctx(void *obj) __weak __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __weak __ksym;
extern void bpf_task_release(struct task_struct *p) __weak __ksym;

/* When the sample was due; `now` where the event is not a timer, or the kernel does not tell. */
static __always_inline u64 sample_due(struct bpf_perf_event_data *ctx, u64 now)
{
	struct bpf_perf_event_data_kern *kern;
	u64 due;

	if (!cfg_due || !bpf_ksym_exists(bpf_cast_to_kern_ctx) || !bpf_ksym_exists(bpf_task_from_pid) ||
	    !bpf_core_field_exists(struct hrtimer, node.expires))
		return now;
	kern = bpf_cast_to_kern_ctx(ctx);
	if (kern->event->attr.type != PERF_TYPE_SOFTWARE)
		return now;
	due = kern->event->hw.hrtimer.node.expires;
	return now - due < 1000000 ? due : now;
}

/* The sample is owed to the thread that left this CPU last. */
static __always_inline void owe(struct ws_cpu *c)
{
	struct task_struct *p;
	struct ws_thread *t;

	/* Always so where sample_due() tells; the loader wants it tested here too. */
	if (!cfg_due || !bpf_ksym_exists(bpf_task_from_pid) || !bpf_ksym_exists(bpf_task_release))
		return;
	p = bpf_task_from_pid(c->left_tid);
	if (!p) {
		c->losses[WS_L_OWED]++;
		return;
	}
	t = bpf_task_storage_get(&threads, p, 0, 0);
	if (t && t->id == c->left_id)
		__sync_fetch_and_add(&t->early, 1);
	else
		c->losses[WS_L_OWED]++;
	bpf_task_release(p);
}

/* Whether the sample is to be taken in the current task, whose record is `t`. */
static __always_inline bool sample_is_its(struct ws_cpu *c, struct ws_thread *t, u64 due)
{
	if (t && (s64)(due - c->came) >= 0)
		return true;
	if (c->left && (s64)(due - c->left) < 0) {
		if ((s64)(due - c->left_came) >= 0)
			owe(c);
	} else if (!t) {
		c->fired = due;
	}
	return false;
}

/*
 * Keeps what the above needs, at each switch from or to a measured thread. A task woken on an idle
 * CPU is on it, in the kernel's books and so in ours, from its wake-up: a sample that was due since
 * and found the CPU on its way out of idle is therefore its.
 */
static __always_inline void sampler_switched(struct ws_cpu *c, struct ws_thread *out,
					     struct ws_thread *in, u64 now)
{
	if (!out && in) {
		if (c->fired && (s64)(c->fired - now) >= 0)
			in->early++;
		c->came = now;
	} else if (out && !in) {
		c->left = now;
		c->left_came = c->came;
		c->left_id = out->id;
		c->left_tid = out->tid;
	}
	c->fired = 0;
}
