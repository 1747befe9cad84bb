/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * A thread's ledger while the scheduler's hooks are given up (--max-total-overhead).
 *
 * The kernel goes on counting on-CPU and run-queue time. At each run of the task iterator these counters divide the
 * time since the last run: time on a CPU, time waiting for a CPU, and the rest, which was blocked for a reason that
 * is not known. All of it is `repaired`. The record then says in which state the thread is now. When the hooks are
 * back, its first event finds a record as after any event that was hidden.
 *
 * There is no other writer meanwhile: no hook but that of exits, and the iterator leaves a thread that exits alone.
 */
#pragma once

/* The state in which a thread is found; the events before were not seen. */
static __always_inline void found_in(struct ws_thread *t, struct task_struct *p)
{
	t->at.block_len = t->wakeup.time = t->wakeup.moved_asleep = t->wait.asking = 0;
	t->wakeup.part = WS_WOKEN;
	t->at.flags |= WS_F_AUDIT;
	t->at.detail = 0;
	if (p->on_cpu) {
		t->at.state = WS_ON_CPU;
		t->at.cpu = -1;
		t->at.flags |= WS_F_LATE;
	} else if (!p->__state) {
		t->at.state = WS_RUNNABLE;
		t->at.detail = is_throttled(p) ? WS_THROTTLED : WS_PREEMPTED;
	} else {
		t->at.state = WS_BLOCKED;
		t->at.detail = t->at.block_reason = WS_OTHER;
		t->turn.block_begin = t->at.since;
	}
}

/* Brings the ledger up to `now`. */
static __always_inline void book_by_counters(struct ws_thread *t, struct task_struct *p, u64 now)
{
	u64 exec = p->se.sum_exec_runtime, delay = p->sched_info.run_delay, length, ran, queued, rest, came;
	u64 lag = exec_at(p, now) - exec, under_way = delay_at(p, now) - delay;
	s64 grown;

	if (t->at.state == WS_DEAD)
		return;
	/* Time of a running thread that the kernel has not counted yet stays open. */
	now -= clamp(lag, elapsed(t, now));
	length = elapsed(t, now);
	grown = exec - t->at.kernel.exec;
	ran = grown > 0 ? clamp(grown, length) : 0;
	grown = delay + under_way - t->at.kernel.delay - t->at.rq_since_out;
	queued = grown > 0 ? clamp(grown, length - ran) : 0;
	if (!length || (!ran && !queued && t->at.state == WS_BLOCKED && p->__state))
		return; /* it has slept all the time, for the reason that is known */
	rest = length - ran - queued;
	came = p->on_cpu && offset_since ? dated(p->sched_info.last_arrival) : 0;
	begin_change(t);
	settle_limbo(t, delay);
	if (came && (s64)(came - t->at.since) <= 0) {
		/* It has run all the time: the kernel leaves steal and interrupts out. */
		*(cfg_irq_in_clock ? &t->acc.irq : &t->acc.stolen) += rest;
		ran += rest;
		rest = 0;
	}
	t->acc.on_cpu += ran;
	book_runnable(t, WS_WOKEN, queued);
	book_blocked(t, WS_OTHER, rest);
	t->acc.repaired += length;
	t->at.kernel.exec = exec;
	t->at.kernel.delay = delay;
	t->at.rq_since_out = under_way;
	t->at.since = now;
	found_in(t, p);
	end_change(t);
}

/* A thread exits, and no hook will see its last switch. */
static __always_inline void ends_unseen(struct ws_thread *t, struct task_struct *p)
{
	if (t->at.state == WS_DEAD)
		return;
	book_by_counters(t, p, bpf_ktime_get_ns());
	begin_change(t);
	t->at.state = WS_DEAD;
	end_change(t);
	thread_gone(t, p);
}
