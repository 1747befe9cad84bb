/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The ledger of one thread: every interval between two events is added to exactly one place.
 *
 * Double entry. The kernel counts on-CPU time (se.sum_exec_runtime) and run-queue time
 * (sched_info.run_delay) by itself, and keeps when a task was queued and when it got its CPU. Where
 * the events that we saw do not fit together, one was hidden from us (some kernels show programs
 * nothing of what happens in chosen tasks: a switch from such a task, or a wake-up by it); if it was
 * a single one, its time is taken from the kernel, see unseen_arrival(). Where that cannot be, or
 * where a stretch on the CPU is longer than the kernel's own figure by more than interrupts, steal
 * and the difference of the two clocks explain, the kernel's figures divide the stretch. Every
 * such nanosecond is added to `repaired`.
 *
 * Writers of one record are ordered by the scheduler's own locks (out, wake-up and in of a task
 * never overlap), so plain stores do; `seq` lets the iterator on another CPU notice a change.
 */
#pragma once
#include "lock.h"
#include "safepoint.h"
#include "untrusted_task.h"

/* The event that a hook handles: the hook's context, and the CPU and the time of the event. */
struct ws_hook {
	void *ctx;
	struct ws_cpu *c;
	u64 now;
	u32 cpu;
};

/* A switch as the kernel tells it. */
struct ws_switch {
	struct task_struct *prev, *next;
	u32 state; /* of `prev` */
	bool preempted;
};

static __always_inline struct rq *queue_of(struct task_struct *p)
{
	struct cfs_rq *queue = walked(p)->se.cfs_rq;

	return queue && bpf_core_field_exists(queue->rq) ? queue->rq : NULL;
}

/* A time of the run queues' clock as one of CLOCK_MONOTONIC: see below. */
static __always_inline u64 dated(u64 time)
{
	return time + ((s64)(offset_before - offset_now) < 0 ? offset_before : offset_now);
}

/*
 * The time of a scheduler event as the kernel dates it: by the clock of the run queue, read when
 * the kernel began to switch or to enqueue, some hundred nanoseconds before our hook. Dated by our
 * own clock at the hook, each run-queue wait would come out longer than in the kernel's books.
 *
 * That clock has another origin than CLOCK_MONOTONIC and may drift against it. The smallest
 * difference seen in the last one or two tenths of a second is the offset; races between CPUs do
 * not matter, as each leaves a difference that was true. A hypervisor may take the CPU away between
 * the kernel's reading and our hook, for many milliseconds: the kernel will count that as steal of
 * what comes next, so it is the kernel's reading that counts, if it is not quite out of the question.
 */
static __always_inline u64 event_time(struct ws_cpu *c, struct task_struct *p)
{
	u64 now, difference, time, clock;
	struct rq *rq = queue_of(p);

	if (!rq)
		return bpf_ktime_get_ns();
	clock = rq->clock;
	/* A few hundred comparisons in the tenth of a second find the smallest difference as well as all. */
	if (!unlikely(!offset_since || clock - c->compared >= WS_COMPARE_NS))
		return dated(clock);
	c->compared = clock;
	now = bpf_ktime_get_ns();
	difference = now - clock;
	if (now - offset_since > 100000000) {
		offset_before = offset_since ? offset_now : difference;
		offset_now = difference;
		offset_since = now;
	} else if ((s64)(difference - offset_now) < 0) {
		offset_now = difference;
	}
	time = dated(clock);
	return now - time < 100000000 ? time : now;
}

/*
 * Time that the kernel's clock of tasks has left out on the task's CPU since boot: steal, and
 * interrupts where the kernel is so built.
 */
static __always_inline u64 excluded_ns(struct task_struct *p)
{
	struct rq *rq = queue_of(p);
	u64 sum = 0;

	if (!rq)
		return 0;
	if (bpf_core_field_exists(rq->prev_steal_time_rq))
		sum += rq->prev_steal_time_rq;
	if (cfg_irq_in_clock && bpf_core_field_exists(rq->prev_irq_time))
		sum += rq->prev_irq_time;
	return sum;
}

static __always_inline u64 clamp(u64 value, u64 most)
{
	return value < most ? value : most;
}

/*
 * The kernel's on-CPU figure of a task up to now. That of a running task is as of the kernel's last
 * look at it, a tick ago at most; what has passed since is added, as the kernel will.
 */
static __always_inline u64 exec_at(struct task_struct *p, u64 now)
{
	u64 exec = p->se.sum_exec_runtime;
	struct rq *rq = queue_of(p);
	s64 since;

	if (!p->on_cpu || !rq || !offset_since)
		return exec;
	since = rq->clock_task - p->se.exec_start + (now - dated(rq->clock));
	return since > 0 ? exec + since : exec;
}

/*
 * The kernel's run-queue figure of a task up to now, with the wait under way of one that is queued (and
 * not asleep there: see settle_wakeup()).
 */
static __always_inline u64 delay_at(struct task_struct *p, u64 now)
{
	u64 delay = p->sched_info.run_delay, queued = p->sched_info.last_queued;

	if (!queued || !offset_since || p->on_cpu || p->__state || (s64)(now - dated(queued)) < 0)
		return delay;
	return delay + (now - dated(queued));
}

/*
 * Time that the kernel's clock of tasks left out of a stretch on `cpu`, at most `most`: the part in which the task did
 * not run by that clock. Of an arrival that nobody saw it was not noted; elsewhere it may be less than was noted: the
 * kernel leaves out no more steal than time has passed by its reading.
 */
static __always_inline u64 left_out(struct ws_thread *t, struct task_struct *p, u64 most, u32 cpu)
{
	if (t->at.flags & WS_F_LATE)
		return clamp(excluded_ns(p), most);
	return t->at.cpu == cpu ? clamp(excluded_ns(p) - t->turn.excl0, most) : 0;
}

/* How far the kernel's figure may differ before an event must have been hidden. */
static __always_inline s64 tolerance(u64 length)
{
	return 10000 + (length >> 12);
}

/*
 * Length of the open interval. Clocks of two CPUs may differ by a hair: time never runs back. An event on
 * another CPU may find a record that is being made and has no beginning yet: nothing is open then.
 */
static __always_inline u64 elapsed(struct ws_thread *t, u64 now)
{
	if (!t->at.since)
		return 0;
	return (s64)(now - t->at.since) > 0 ? now - t->at.since : 0;
}

static __always_inline void move_on(struct ws_thread *t, u64 now)
{
	if ((s64)(now - t->at.since) > 0)
		t->at.since = now;
}

static __always_inline void begin_change(struct ws_thread *t)
{
	t->seq++;
	barrier();
}

static __always_inline void end_change(struct ws_thread *t)
{
	barrier();
	t->seq++;
}

/* Remembers the state that the thread is in from now on; see waker.h. */
static __always_inline void step(struct ws_thread *t, u64 now, u32 waker)
{
	struct ws_step *s = &t->step[t->steps & (WS_STEPS - 1)];

	if (cfg_ledger_only)
		return;
	s->time = now;
	s->waker = waker;
	s->state = t->at.state;
	s->detail = t->at.detail;
	t->steps++;
}

/* The wait under way, the last of the changes, turns out to be for `reason`. */
static __always_inline void waits_for(struct ws_thread *t, u32 reason)
{
	if (reason == t->at.detail)
		return;
	begin_change(t);
	t->at.detail = t->at.block_reason = reason;
	t->step[(t->steps - 1) & (WS_STEPS - 1)].detail = reason;
	end_change(t);
}

/*
 * An index of one of the sums, tested before. Older verifiers (6.1) lose what a test told about a value
 * that had to leave its register, so the bound stands where they see it.
 */
#define SUM_OF(array, index)                                                                   \
	(*({                                                                                      \
		u64 index_ = (index);                                                            \
		barrier_var(index_);                                                             \
		&(array)[index_ & 15];                                                           \
	}))

static __always_inline void book_runnable(struct ws_thread *t, u32 part, u64 ns)
{
	if (part < WS_PARTS)
		SUM_OF(t->acc.runnable, part) += ns;
	t->at.rq_since_out += ns;
}

static __always_inline void book_blocked(struct ws_thread *t, u32 reason, u64 ns)
{
	if (reason < WS_REASONS)
		SUM_OF(t->acc.blocked, reason) += ns;
}

static __always_inline bool is_throttled(struct task_struct *p)
{
	struct cfs_rq *queue;

	/* Where tasks are throttled one by one (6.18), others of the group may still be queued, and wait as anybody does. */
	if (bpf_core_field_exists(p->throttled))
		return p->throttled;
	queue = walked(p)->se.cfs_rq;
	return queue && bpf_core_field_exists(queue->throttle_count) && queue->throttle_count > 0;
}

/*
 * How long a queue has been throttled, ever; ~0 where the kernel does not say. Since when it is so now it dates by
 * its run queue's clock.
 */
static __always_inline u64 throttled_ever(u64 address)
{
	struct cfs_rq *queue = (struct cfs_rq *)address;
	u64 since, ever;

	if (!queue || !bpf_core_field_exists(queue->throttled_clock_self_time))
		return ~0ull;
	ever = BPF_CORE_READ(queue, throttled_clock_self_time);
	since = BPF_CORE_READ(queue, throttled_clock_self);
	return since ? ever + BPF_CORE_READ(queue, rq, clock) - since : ever;
}

/* The thread leaves the CPU because its quota is used up. */
static __always_inline void throttle_begins(struct ws_thread *t, struct task_struct *p)
{
	t->waited.throttled.queue = (u64)walked(p)->se.cfs_rq;
	t->waited.throttled.before = throttled_ever(t->waited.throttled.queue);
}

/*
 * Of a wait of `length` that began with a quota used up, the part up to when there was a new one: after that it
 * waits as anybody does, which no event tells.
 */
static __always_inline u64 throttled_part(struct ws_thread *t, u64 length)
{
	u64 now = throttled_ever(t->waited.throttled.queue), before = t->waited.throttled.before;

	t->waited.throttled.queue = 0;
	return now == ~0ull || before == ~0ull || now <= before ? length : clamp(now - before, length);
}

/*
 * Closes a stretch on the CPU that ends with the hook's event. Returns when it ended in the kernel's
 * books: before it looks for the next task, which may take some time on a CPU that goes idle.
 */
static __always_inline u64 close_on_cpu(struct ws_hook *h, struct ws_thread *t,
					 struct task_struct *p, struct ws_figures figures)
{
	u64 now = h->now, length = elapsed(t, now), ran = figures.exec - t->at.kernel.exec, irq = 0, excluded;
	struct ws_cpu *c = h->c;
	s64 over;

	excluded = left_out(t, p, length - clamp(ran, length), h->cpu);
	if (t->at.cpu == h->cpu && !cfg_irq_in_clock)
		irq = clamp(c->irq_ns - t->turn.irq0, length);
	t->at.flags &= ~WS_F_LATE;
	over = (s64)(length - ran - excluded);
	if (t->at.flags & WS_F_AUDIT) {
		if (unlikely(over > tolerance(length))) {
			/* It was off the CPU in between, unseen. The queue's share is known. */
			u64 queued = figures.delay - t->at.kernel.delay;

			queued = queued > t->at.rq_since_out ? clamp(queued - t->at.rq_since_out, over) : 0;
			book_runnable(t, WS_PREEMPTED, queued);
			book_blocked(t, WS_OTHER, over - queued);
			t->acc.repaired += over;
			length -= over;
			c->losses[WS_L_HOLE_BOTH]++;
		} else if (over > 0) {
			length -= over;
			now -= over;
		} else if (unlikely(-over > tolerance(length))) {
			/* It ran in a stretch that was booked as off-CPU. */
			u64 move = clamp(-over, t->at.block_len);
			u32 reason = t->at.block_reason;

			if (reason < WS_REASONS && SUM_OF(t->acc.blocked, reason) >= move) {
				SUM_OF(t->acc.blocked, reason) -= move;
				t->acc.on_cpu += move;
				t->acc.repaired += move;
				c->losses[WS_L_HOLE_BOTH]++;
			}
		}
	}
	t->acc.on_cpu += length;
	t->turn.stretch = length;
	if (cfg_irq_in_clock) {
		t->acc.irq += excluded; /* steal, where both exist, is told apart in user space */
	} else {
		t->acc.irq += irq;
		t->acc.stolen += excluded;
	}
	return now;
}

/*
 * Divides a stretch in which the thread was seen in `state`, but in which by the kernel's figures it also
 * ran and queued.
 */
static __always_inline void divide(struct ws_thread *t, struct task_struct *p, u64 length,
				   struct ws_figures grown)
{
	u64 block = t->at.block_len, waited, ran, queued;
	u32 part = t->at.state == WS_RUNNABLE ? t->at.detail : WS_WOKEN;

	ran = clamp(grown.exec, length);
	queued = clamp(grown.delay, length - ran);
	/* The turn is told and counted as if the switch-in had been seen, where it must have been. */
	waited = queued;
	if (t->at.state == WS_BLOCKED)
		block += length - ran - queued;
	else
		waited = length - ran;
	tell_turn(t, t->at.since + length - ran, block, (struct ws_queued){ waited, part });
	shape_turn(t, p, waited, part);
	t->turn.stretch = ran;
	t->acc.on_cpu += ran;
	book_runnable(t, part, queued);
	if (t->at.state == WS_BLOCKED)
		book_blocked(t, t->at.detail, length - ran - queued);
	else
		book_runnable(t, WS_PREEMPTED, length - ran - queued);
	t->acc.repaired += t->at.state == WS_BLOCKED ? ran + queued : ran;
}

/* What was left open by a switch-out that nobody saw: now the kernel's queue figure is complete. */
static __always_inline void settle_limbo(struct ws_thread *t, u64 delay)
{
	u64 open = t->acc.limbo, queued = delay - t->at.kernel.delay;

	if (!unlikely(open))
		return;
	queued = queued > t->at.rq_since_out ? clamp(queued - t->at.rq_since_out, open) : 0;
	book_runnable(t, WS_PREEMPTED, queued);
	book_blocked(t, WS_OTHER, open - queued);
	t->acc.limbo = 0;
}

/*
 * A wake-up that nobody saw leaves the wait for the CPU booked as part of the block: the kernel's
 * queue figure, complete now, tells how much that was.
 *
 * Not where the thread was carried: from 6.12 on a sleeper may stay on its queue for a while, and
 * if it is moved to another CPU then, the kernel counts the rest of its sleep as queued. That much
 * is left out of the audit.
 */
static __always_inline void settle_wakeup(struct ws_thread *t, struct ws_cpu *c, u64 delay)
{
	u64 queued = delay - t->at.kernel.delay, missing;
	u32 reason = t->at.block_reason;

	if (!(t->at.flags & WS_F_AUDIT) || queued <= t->at.rq_since_out)
		return;
	missing = queued - t->at.rq_since_out;
	if (!unlikely(missing >= 20000 && missing <= t->at.block_len))
		return;
	if (t->wakeup.carried) {
		t->birth.delay += missing;
		c->losses[WS_L_CARRIED]++;
		return;
	}
	if (reason >= WS_REASONS || SUM_OF(t->acc.blocked, reason) < missing)
		return;
	SUM_OF(t->acc.blocked, reason) -= missing;
	book_runnable(t, WS_WOKEN, missing);
	t->acc.repaired += missing;
	c->losses[WS_L_HOLE_WAKE]++;
}

static __always_inline u8 has_in_flight(struct ws_thread *t, struct task_struct *p, u8 reason);
static __always_inline u8 was_in_flight(struct ws_thread *t, u64 now);

static __always_inline u64 enter_cpu(struct ws_hook *h, struct ws_thread *t, struct task_struct *p);
static __always_inline void wake(struct ws_thread *t, struct task_struct *p, u64 now, u32 part);

/*
 * When a thread that is on the CPU came there, if nobody saw that, else 0. The kernel's record of its
 * last arrival is believed if with it the kernel's queue figure comes out too.
 */
static __always_inline u64 unseen_arrival(struct ws_thread *t, struct task_struct *p, u64 now)
{
	u64 came = dated(p->sched_info.last_arrival), queued = p->sched_info.run_delay - t->at.kernel.delay;
	s64 length = came - t->at.since, over;

	if (t->at.state != WS_RUNNABLE && t->at.state != WS_BLOCKED)
		return 0;
	if (!(t->at.flags & WS_F_AUDIT) || !t->at.since || length < 0 || (s64)(now - came) < 0)
		return 0;
	over = queued - t->at.rq_since_out - length;
	if (over > tolerance(length) || (t->at.state == WS_RUNNABLE && -over > tolerance(length)))
		return 0;
	return came;
}

/* How much of a block that ends at an unseen arrival its wait for the CPU was. */
static __always_inline u64 unseen_queueing(struct ws_thread *t, struct task_struct *p, u64 came)
{
	u64 queued = p->sched_info.run_delay - t->at.kernel.delay;

	if (t->at.state != WS_BLOCKED || t->wakeup.carried || queued <= t->at.rq_since_out)
		return 0;
	return clamp(queued - t->at.rq_since_out, elapsed(t, came));
}

/*
 * Books what led to an arrival that nobody saw. Returns when it was, 0 if there is none that can be
 * dated; `waited` becomes the runnable time that it ended.
 */
static __always_inline u64 come_unseen(struct ws_hook *h, struct ws_thread *t, struct task_struct *p,
				       u64 *waited)
{
	u64 came = unseen_arrival(t, p, h->now);
	struct ws_hook arrival = *h;

	if (!unlikely(came))
		return 0;
	if (t->at.state == WS_BLOCKED)
		wake(t, p, came - unseen_queueing(t, p, came), t->wakeup.part);
	arrival.now = came;
	*waited = enter_cpu(&arrival, t, p);
	t->at.flags |= WS_F_LATE;
	h->c->losses[WS_L_LATE_IN]++;
	return came;
}

/* The thread, which is `prev` of the switch, leaves the CPU. */
static __always_inline void leave_cpu(struct ws_hook *h, struct ws_thread *t, struct ws_switch *s)
{
	struct task_struct *p = s->prev;
	u64 exec = p->se.sum_exec_runtime, delay = p->sched_info.run_delay, now = h->now;
	struct ws_cpu *c = h->c;
	u32 state = s->state;

	begin_change(t);
	settle_limbo(t, delay);
	if (t->at.state == WS_ON_CPU) {
		now = close_on_cpu(h, t, p, (struct ws_figures){ exec, delay });
	} else if (t->at.state == WS_NONE) {
		t->acc.on_cpu += elapsed(t, now);
	} else {
		u64 queued = delay - t->at.kernel.delay;

		queued = queued > t->at.rq_since_out ? queued - t->at.rq_since_out : 0;
		divide(t, p, elapsed(t, now), (struct ws_figures){ exec - t->at.kernel.exec, queued });
		c->losses[WS_L_HOLE_IN]++;
	}
	settle_wakeup(t, c, delay);
	t->at.block_len = 0;
	t->at.flags |= WS_F_AUDIT;
	t->at.kernel.exec = exec;
	t->at.kernel.delay = delay;
	t->at.rq_since_out = 0;
	t->wakeup.carried = 0;
	move_on(t, now);
	if (s->preempted || state == 0) {
		t->acc.involuntary++;
		t->at.state = WS_RUNNABLE;
		t->at.detail = is_throttled(p) ? WS_THROTTLED : WS_PREEMPTED;
		if (t->at.detail == WS_THROTTLED)
			throttle_begins(t, p);
	} else {
		t->acc.voluntary++;
		if (unlikely(state & (EXIT_DEAD | EXIT_ZOMBIE | TASK_DEAD))) {
			t->at.state = WS_DEAD;
		} else {
			bool often = unlikely(set_given_up >= WS_FEW_REASONS) &&
				     now - t->turn.block_begin < WS_OFTEN;

			t->wakeup.waker = 0; /* before the next line, from which on a waker notes itself */
			t->at.state = WS_BLOCKED;
			t->at.detail = often ? WS_OTHER : block_reason(h->ctx, p, state, t->at.block_reason);
			t->wait.stop = WS_NO_STOP;
			if (unlikely(vms_known) && t->at.detail == WS_LOCK && collector_stops(t, p))
				t->at.detail = WS_GC;
			t->at.block_reason = t->at.detail;
			t->turn.block_begin = now;
			if (!cfg_ledger_only && !often) {
				note_argument(t, p);
				lock_begins(t, p);
				t->wait.asking = has_in_flight(t, p, t->at.detail);
			}
		}
	}
	step(t, now, 0);
	end_change(t);
}

/* The thread is woken at `now`, and waits for a CPU as `part` of runnable time. */
static __always_inline void wake(struct ws_thread *t, struct task_struct *p, u64 now, u32 part)
{
	u64 length = elapsed(t, now);

	if (t->at.state == WS_BLOCKED) {
		begin_change(t);
		book_blocked(t, t->at.detail, length);
		if (!cfg_ledger_only)
			lock_ends(t, length);
		t->at.block_len += length;
		t->credit.blocked += length;
		if (!cfg_ledger_only)
			t->wait.asking = was_in_flight(t, now);
		move_on(t, now);
		t->at.state = WS_RUNNABLE;
		t->at.detail = part;
		step(t, now, t->wakeup.waker);
		end_change(t);
	} else if (t->at.state == WS_ON_CPU && !p->on_cpu) {
		/* Its leaving was hidden: it ran as long as the kernel says, the rest is open. */
		u64 ran = clamp(p->se.sum_exec_runtime - t->at.kernel.exec, length);

		begin_change(t);
		t->acc.on_cpu += ran;
		t->acc.limbo += length - ran;
		t->acc.repaired += length - ran;
		t->at.kernel.exec = p->se.sum_exec_runtime;
		move_on(t, now);
		t->at.state = WS_RUNNABLE;
		t->at.detail = WS_WOKEN;
		end_change(t);
		lost(WS_L_HOLE_OUT);
	}
}

/*
 * When a sleeper was put into its run queue, 0: it was not. The kernel notes that under the same lock as the
 * switch, by the same clock, and its own figure of waiting for a CPU begins then; so no hook is needed there.
 * Where the thread changed its queue, the note is of the last one, and the time in the others is in the figure.
 * Of a thread that was carried both may be older than its wake-up: then the waker's hook dates it.
 */
static __always_inline u64 queued_since(struct ws_thread *t, struct task_struct *p)
{
	u64 queued = p->sched_info.last_queued;
	s64 before = p->sched_info.run_delay - t->at.kernel.delay - t->at.rq_since_out;

	if (t->wakeup.carried)
		queued = t->wakeup.time;
	else if (queued)
		queued = dated(queued) - (before > 0 ? before : 0);
	/* Between two comparisons of the clocks it may come out before the wait by a hair. */
	return queued && (s64)(queued - t->at.since) < 0 ? t->at.since : queued;
}

/* When a thread that waits in a run queue was put into it, 0: it sleeps, or its record knows. */
static __always_inline u64 waits_since(struct ws_thread *t, struct task_struct *p)
{
	if (t->at.state != WS_BLOCKED || p->on_cpu || p->__state)
		return 0;
	return queued_since(t, p);
}

/* The thread gets the CPU; returns the runnable time that this ends. */
static __always_inline u64 enter_cpu(struct ws_hook *h, struct ws_thread *t, struct task_struct *p)
{
	u64 now = h->now, length, waited = 0, queued;
	struct ws_cpu *c = h->c;

	if (t->at.state == WS_BLOCKED) {
		queued = queued_since(t, p);
		if (queued) {
			if (cfg_wakings && !t->wakeup.time && set_given_up < WS_NO_STACKS) {
				c->losses[WS_L_LATE_WAKE]++;
				waits_for(t, told_by_request(p, t->at.detail, 0));
			}
			wake(t, p, (s64)(now - queued) >= 0 ? queued : now, t->wakeup.part);
		}
	}
	t->wakeup.time = 0;
	t->wakeup.part = WS_WOKEN;
	length = elapsed(t, now);
	begin_change(t);
	if (t->at.state == WS_RUNNABLE) {
		waited = length;
		if (unlikely(t->at.detail == WS_THROTTLED) && t->waited.throttled.queue) {
			waited = throttled_part(t, length);
			book_runnable(t, WS_PREEMPTED, length - waited);
		}
		book_runnable(t, t->at.detail, waited);
		t->credit.runnable += length;
		waited = length;
	} else if (t->at.state == WS_BLOCKED) {
		/* The kernel may switch a sleeper back in without a wake-up. */
		book_blocked(t, t->at.detail, length);
		if (!cfg_ledger_only)
			lock_ends(t, length);
		t->at.block_len += length;
		t->credit.blocked += length;
	} else if (unlikely(t->at.state == WS_ON_CPU)) {
		u64 ran = clamp(p->se.sum_exec_runtime - t->at.kernel.exec, length);

		t->acc.on_cpu += ran;
		t->acc.limbo += length - ran;
		t->acc.repaired += length - ran;
		t->at.kernel.exec = p->se.sum_exec_runtime;
		c->losses[WS_L_HOLE_OUT]++;
	} else {
		t->acc.limbo += length;
	}
	move_on(t, now);
	t->at.state = WS_ON_CPU;
	t->at.cpu = h->cpu;
	t->turn.irq0 = c->irq_ns;
	t->turn.excl0 = excluded_ns(p);
	t->at.detail = 0;
	step(t, now, 0);
	end_change(t);
	return waited;
}
