/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The ledger of one thread: every interval between two events is added to exactly one place.
 *
 * Double entry. The kernel counts on-CPU time (se.sum_exec_runtime) and run-queue time (sched_info.run_delay) by
 * itself, and keeps when a task was queued and when it got its CPU. If the events that we saw do not fit together,
 * one was hidden from us: some kernels hide events in chosen tasks from programs (a switch from such a
 * task, or a wake-up by it). The time of a single hidden event is taken from the kernel, see unseen_arrival(). If
 * that cannot be, or if a stretch on the CPU is longer than the kernel's own figure by more than interrupts, steal
 * and the difference of the two clocks explain, the kernel's figures divide the stretch. Every such nanosecond is
 * added to `repaired`.
 *
 * The scheduler's own locks order the switches of a task: its switch-out and switch-in never overlap, so plain
 * stores do. The waker's hook (sched_waking) may run while the task is still leaving its CPU, so leave_cpu()
 * clears the waker before it sets WS_BLOCKED. `seq` lets the iterator on another CPU notice a change.
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
 * The time of a scheduler event as the kernel dates it: by the clock of the run queue, read when the kernel began
 * to switch or to enqueue, some hundred nanoseconds before our hook. If our own clock dated it at the hook, each
 * run-queue wait would come out longer than in the kernel's counters.
 *
 * That clock has another origin than CLOCK_MONOTONIC and may drift against it. The smallest difference seen in the
 * last one or two tenths of a second is the offset; races between CPUs do not matter, as each leaves a difference
 * that was true. A hypervisor may take the CPU away between the kernel's reading and our hook, for many
 * milliseconds. The kernel will count that as steal of the next stretch, so the kernel's reading counts, unless it
 * is quite out of the question.
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
 * The kernel's on-CPU figure of a task up to now. The kernel has updated that of a running task at the last tick at
 * the latest. The time since then is added, as the kernel will.
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
 * Time that the kernel's clock of tasks left out of a stretch on `cpu`. `most`: the part of the stretch in which the
 * task did not run by that clock. If the switch-in was not seen, the figure at its time is not known, and `most` is the
 * only bound. Otherwise the figure's growth may be too large: the kernel leaves out no more steal than the time that
 * has passed by its own reading.
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

/*
 * `seq` is odd during a change. A waker may change a record while its thread is still leaving its CPU, and one of two
 * such additions may be lost: so begin and end set the parity.
 */
static __always_inline void begin_change(struct ws_thread *t)
{
	t->seq = (t->seq + 1) | 1;
	barrier();
}

static __always_inline void end_change(struct ws_thread *t)
{
	barrier();
	t->seq = (t->seq | 1) + 1;
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
 * An index of one of the sums, tested before. Older verifiers (6.1) lose the result of a test of a value
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

	/* If tasks are throttled one by one (6.18), others of the group may be queued, and wait like any thread. */
	if (bpf_core_field_exists(p->throttled))
		return p->throttled;
	queue = walked(p)->se.cfs_rq;
	return queue && bpf_core_field_exists(queue->throttle_count) && queue->throttle_count > 0;
}

/*
 * Total time for which a queue has been throttled; ~0 where the kernel does not say. The kernel dates the begin of the
 * present throttling by the run queue's clock, so that clock gives its length.
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
 * Throttled part of a wait of `length` that began with the quota used up. No event tells when the quota is renewed;
 * from then on the thread waits for a CPU like any other.
 */
static __always_inline u64 throttled_part(struct ws_thread *t, u64 length)
{
	u64 now = throttled_ever(t->waited.throttled.queue), before = t->waited.throttled.before;

	t->waited.throttled.queue = 0;
	return now == ~0ull || before == ~0ull || now <= before ? length : clamp(now - before, length);
}

/*
 * Closes a stretch on the CPU that ends with the hook's event. Returns its end by the kernel's accounting, which is
 * before the hook: a CPU that goes idle may look for other work for some time.
 */
static __always_inline u64 close_on_cpu(struct ws_hook *h, struct ws_thread *t,
					 struct task_struct *p, struct ws_figures figures)
{
	u64 now = h->now, length = elapsed(t, now), ran = figures.exec - t->at.kernel.exec, irq = 0, excluded;
	struct ws_cpu *c = h->c;
	s64 unaccounted;

	excluded = left_out(t, p, length - clamp(ran, length), h->cpu);
	if (t->at.cpu == h->cpu && !cfg_irq_in_clock)
		irq = clamp(c->irq_ns - t->turn.irq0, length);
	t->at.flags &= ~WS_F_LATE;
	unaccounted = (s64)(length - ran - excluded);
	if (t->at.flags & WS_F_AUDIT) {
		if (unlikely(unaccounted > tolerance(length))) {
			/* It left the CPU and came back unseen. The kernel's run_delay tells the queued part. */
			u64 queued = figures.delay - t->at.kernel.delay;

			queued = queued > t->at.rq_since_out ? clamp(queued - t->at.rq_since_out, unaccounted) : 0;
			book_runnable(t, WS_PREEMPTED, queued);
			book_blocked(t, WS_OTHER, unaccounted - queued);
			t->acc.repaired += unaccounted;
			length -= unaccounted;
			c->losses[WS_L_HOLE_BOTH]++;
		} else if (unaccounted > 0) {
			length -= unaccounted;
			now -= unaccounted;
		} else if (unlikely(-unaccounted > tolerance(length))) {
			/* It ran in a stretch that was booked as off-CPU. */
			u64 move = clamp(-unaccounted, t->at.block_len);
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
 * Books an interval of `length` ns with a switch-in that no hook saw. `grown`: by how much the kernel's on-CPU and
 * run-queue figures grew since the last switch-out. The rest was spent in the state that was seen. (For a runnable
 * thread the ledger books this rest as preempted, and the turn has all of its waiting as one wait.)
 */
static __always_inline void book_unseen_switch_in(struct ws_thread *t, struct task_struct *p, u64 length,
				   struct ws_figures grown)
{
	u64 block = t->at.block_len, waited, ran, queued;
	u32 part = t->at.state == WS_RUNNABLE ? t->at.detail : WS_WOKEN;

	ran = clamp(grown.exec, length);
	queued = clamp(grown.delay, length - ran);
	/* The turn is reported as if the switch-in had been seen. */
	waited = queued;
	if (t->at.state == WS_BLOCKED)
		block += length - ran - queued;
	else
		waited = length - ran;
	tell_turn(t, t->at.since + length - ran, block, (struct ws_queued){ waited, part });
	count_turn(t, p, waited, part);
	t->turn.stretch = ran;
	t->acc.on_cpu += ran;
	book_runnable(t, part, queued);
	if (t->at.state == WS_BLOCKED)
		book_blocked(t, t->at.detail, length - ran - queued);
	else
		book_runnable(t, WS_PREEMPTED, length - ran - queued);
	t->acc.repaired += t->at.state == WS_BLOCKED ? ran + queued : ran;
}

/* Books the time that an unseen switch-out left open: now the kernel's queue figure is complete. */
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
 * Books the wait for a CPU after a wake-up that no hook saw. Until now it is booked as blocked; the kernel's run_delay,
 * complete at the switch-in, tells its length.
 *
 * A thread that moved to another CPU asleep is left out: from 6.12 on a sleeper may stay on its queue for a while,
 * and if it moves then, the kernel counts the rest of its sleep as queued. That much is left out of the audit.
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
	if (t->wakeup.moved_asleep) {
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
 * Time of a switch-in that no hook saw, of a thread that is on the CPU; else 0. The kernel's record of the last
 * arrival is believed if the kernel's run-queue figure fits it.
 */
static __always_inline u64 unseen_arrival(struct ws_thread *t, struct task_struct *p, u64 now)
{
	u64 came = dated(p->sched_info.last_arrival), queued = p->sched_info.run_delay - t->at.kernel.delay;
	s64 length = came - t->at.since, excess;

	if (t->at.state != WS_RUNNABLE && t->at.state != WS_BLOCKED)
		return 0;
	if (!(t->at.flags & WS_F_AUDIT) || !t->at.since || length < 0 || (s64)(now - came) < 0)
		return 0;
	excess = queued - t->at.rq_since_out - length;
	if (excess > tolerance(length) || (t->at.state == WS_RUNNABLE && -excess > tolerance(length)))
		return 0;
	return came;
}

/* The part of a block that was a wait for a CPU, if an unseen arrival ends the block. */
static __always_inline u64 unseen_queueing(struct ws_thread *t, struct task_struct *p, u64 came)
{
	u64 queued = p->sched_info.run_delay - t->at.kernel.delay;

	if (t->at.state != WS_BLOCKED || t->wakeup.moved_asleep || queued <= t->at.rq_since_out)
		return 0;
	return clamp(queued - t->at.rq_since_out, elapsed(t, came));
}

/*
 * Books the time before an arrival that no hook saw. Returns the time of the arrival, 0 if there is none that can
 * be dated; `waited` becomes the runnable time that it ended.
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
		book_unseen_switch_in(t, p, elapsed(t, now), (struct ws_figures){ exec - t->at.kernel.exec, queued });
		c->losses[WS_L_HOLE_IN]++;
	}
	settle_wakeup(t, c, delay);
	t->at.block_len = 0;
	t->at.flags |= WS_F_AUDIT;
	t->at.kernel.exec = exec;
	t->at.kernel.delay = delay;
	t->at.rq_since_out = 0;
	t->wakeup.moved_asleep = 0;
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
 * Time at which a sleeper was put into its run queue; 0 if it was not. The kernel notes it under the same lock as the
 * switch and by the same clock, and starts its own run-queue figure then. So no hook is needed there. If the thread
 * changed its queue, the note is of the last queue, and the figure holds the time in the others. If the kernel moved
 * the sleeper to another CPU (`moved_asleep`), note and figure may both be older than the wake-up. Then the waker's
 * hook dates it.
 */
static __always_inline u64 queued_since(struct ws_thread *t, struct task_struct *p)
{
	u64 queued = p->sched_info.last_queued;
	s64 before = p->sched_info.run_delay - t->at.kernel.delay - t->at.rq_since_out;

	if (t->wakeup.moved_asleep)
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
