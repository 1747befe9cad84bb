/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * A thread's books while the scheduler's hooks are given up (--max-total-overhead).
 *
 * The kernel goes on counting on-CPU and run-queue time. At each visit they divide the time since the last one:
 * so much ran, so much waited for a CPU, the rest was blocked for a reason that nobody looked at. All of it is
 * `repaired`. The record then says in which state the thread is now. When the hooks are back, its first event
 * finds a record as after any event that was hidden.
 *
 * There is no other writer meanwhile: no hook but that of exits, and a thread that exits is not visited.
 */
#pragma once

/* The state in which a thread is found; what led to it was not seen. */
static __always_inline void found_in(struct ws_thread *t, struct task_struct *p)
{
	t->block_len = t->woken = t->carried = t->asking = 0;
	t->woken_to = WS_WOKEN;
	t->flags |= WS_F_AUDIT;
	t->detail = 0;
	if (p->on_cpu) {
		t->state = WS_ON_CPU;
		t->cpu = -1;
		t->flags |= WS_F_LATE;
	} else if (!p->__state) {
		t->state = WS_RUNNABLE;
		t->detail = is_throttled(p) ? WS_THROTTLED : WS_PREEMPTED;
	} else {
		t->state = WS_BLOCKED;
		t->detail = t->block_reason = WS_OTHER;
		t->block_begin = t->since;
	}
}

/* Brings the books up to `now`. */
static __always_inline void book_by_counters(struct ws_thread *t, struct task_struct *p, u64 now)
{
	u64 exec = p->se.sum_exec_runtime, delay = p->sched_info.run_delay, length, ran, queued, rest, came;
	u64 lag = exec_at(p, now) - exec, under_way = delay_at(p, now) - delay;
	s64 grown;

	if (t->state == WS_DEAD)
		return;
	/* What the kernel has not counted yet of a thread that runs stays open. */
	now -= clamp(lag, elapsed(t, now));
	length = elapsed(t, now);
	grown = exec - t->exec;
	ran = grown > 0 ? clamp(grown, length) : 0;
	grown = delay + under_way - t->delay - t->rq_since_out;
	queued = grown > 0 ? clamp(grown, length - ran) : 0;
	if (!length || (!ran && !queued && t->state == WS_BLOCKED && p->__state))
		return; /* it has slept all the time, for the reason that is known */
	rest = length - ran - queued;
	came = p->on_cpu && offset_since ? dated(p->sched_info.last_arrival) : 0;
	begin_change(t);
	settle_limbo(t, delay);
	if (came && (s64)(came - t->since) <= 0) {
		/* It has run all the time: the kernel leaves steal and interrupts out. */
		*(cfg_irq_in_clock ? &t->acc.irq : &t->acc.stolen) += rest;
		ran += rest;
		rest = 0;
	}
	t->acc.on_cpu += ran;
	book_runnable(t, WS_WOKEN, queued);
	book_blocked(t, WS_OTHER, rest);
	t->acc.repaired += length;
	t->exec = exec;
	t->delay = delay;
	t->rq_since_out = under_way;
	t->since = now;
	found_in(t, p);
	end_change(t);
}

/* A thread exits, and nobody will see its last switch. */
static __always_inline void ends_unseen(struct ws_thread *t, struct task_struct *p)
{
	if (t->state == WS_DEAD)
		return;
	book_by_counters(t, p, bpf_ktime_get_ns());
	begin_change(t);
	t->state = WS_DEAD;
	end_change(t);
	thread_gone(t, p);
}
