/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Births, changes and ends of threads, and copies of their ledgers. */
#pragma once

static __always_inline void tell_thread(struct ws_thread *t, struct task_struct *p, u64 now, u32 how)
{
	struct ws_thread_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lost(WS_L_RING_THREAD);
		return;
	}
	e->head.kind = WS_EV_THREAD;
	e->head.size = sizeof(*e);
	e->id = t->id;
	e->time = now;
	e->pid = p->tgid;
	e->tid = p->pid;
	e->parent = BPF_CORE_READ(p, real_parent, tgid);
	e->how = how;
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), p->comm);
	/* It may run code that no thread ran before, and not for long. */
	set_managed_every = WS_MANAGED_SOON;
	/* A new program's tables are wanted at once; for a new thread there is time. */
	bpf_ringbuf_submit(e, how == WS_EXEC ? BPF_RB_FORCE_WAKEUP : ring_flags());
}

/*
 * Makes the record of a task: at fork (it does not run yet), or when it is found running, queued
 * or asleep. In the latter case events on other CPUs may come between: the record starts in
 * WS_NONE, so that the first event decides, and only a record still in WS_NONE is given the state
 * that was read after it had been made.
 */
static __always_inline void thread_born(struct task_struct *p, u32 how)
{
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 now = bpf_ktime_get_ns();

	if (!t) {
		lost(WS_L_NO_RECORD);
		return;
	}
	t->id = __sync_fetch_and_add(&next_id, 1);
	t->pid = p->tgid;
	t->tid = p->pid;
	t->at.kernel.exec = t->birth.exec = exec_at(p, now);
	t->at.kernel.delay = p->sched_info.run_delay;
	t->birth.delay = delay_at(p, now);
	t->birth.switches = p->nvcsw + p->nivcsw;
	t->birth.utime = p->utime;
	t->birth.stime = p->stime;
	t->at.cpu = -1;
	t->at.block_reason = WS_OTHER;
	t->at.flags = p->flags & PF_KTHREAD ? WS_F_KTHREAD : 0;
	draw_phases(t, set_period, 0, 0);
	t->stacks.credit_armed = ((u64)bpf_get_prandom_u32() * set_cpu_period) >> 32;
	t->stacks.ticket = t->id << 24;
	t->stacks.ahead = 1; /* of no block: between changes `seq` is even */
	stack_record_made(t);
	if (!cfg_ledger_only)
		histogram_made(p);
	now = bpf_ktime_get_ns();
	t->birth.time = t->at.since = now;
	if (how == WS_BORN) {
		t->at.flags |= WS_F_AUDIT;
		t->at.detail = WS_WOKEN;
		t->at.state = WS_RUNNABLE;
	} else {
		u32 state;
		u8 guess, detail;

		barrier();
		state = p->__state;
		if (p->on_cpu) {
			guess = WS_ON_CPU;
			detail = 0;
		} else if (state == 0) {
			guess = WS_RUNNABLE;
			detail = is_throttled(p) ? WS_THROTTLED : WS_PREEMPTED;
		} else {
			guess = WS_BLOCKED;
			detail = block_reason(NULL, p, state, WS_OTHER);
			t->turn.block_begin = now;
			if (!cfg_ledger_only)
				t->wait.asking = has_in_flight(t, p, detail);
			t->at.block_reason = detail;
			t->wait.polled = -1; /* its memory is not at hand */
		}
		if (t->at.state == WS_NONE) {
			t->at.flags |= guess == WS_ON_CPU ? WS_F_LATE : WS_F_AUDIT;
			t->at.detail = detail;
			if (guess == WS_BLOCKED)
				lock_begins(t, p);
			t->at.state = guess;
		}
	}
	tell_thread(t, p, now, how);
}

static __always_inline void thread_exec(struct ws_thread *t, struct task_struct *p)
{
	uw_forget(p->tgid);
	py_forget(p->tgid);
	gil_forget(p->tgid);
	vm_forget(p->tgid);
	stack_exec(t);
	if (t->tid != p->pid)
		forget_in_flight(t); /* it becomes its process's first thread */
	t->pid = p->tgid;
	t->tid = p->pid;
	tell_thread(t, p, bpf_ktime_get_ns(), WS_EXEC);
}

static __always_inline void fill_dump(struct ws_dump *d, struct ws_thread *t, struct task_struct *p,
				      u64 now)
{
	u64 came, exec, woken;
	u8 asking;

	/* Copies come first: the verifier goes through them once for each path that leads to them. */
	d->head.size = sizeof(*d);
	d->id = t->id;
	d->now = now;
	d->birth = t->birth.time;
	d->since = t->at.since;
	d->pid = t->pid;
	d->tid = t->tid;
	d->state = t->at.state;
	d->detail = t->at.detail;
	d->block_reason = t->at.block_reason;
	d->cpu = t->at.cpu;
	d->stretch = t->turn.stretch;
	d->block = t->at.state == WS_RUNNABLE ? t->at.block_len : 0;
	__builtin_memcpy(&d->acc, &t->acc, sizeof(d->acc));
	woken = waits_since(t, p);
	exec = t->at.state == WS_DEAD ? t->at.kernel.exec : exec_at(p, now);
	d->kernel_exec = exec - t->birth.exec;
	d->kernel_run_delay = delay_at(p, now) - t->birth.delay;
	d->kernel_switches = p->nvcsw + p->nivcsw - t->birth.switches;
	d->utime = p->utime - t->birth.utime;
	d->stime = p->stime - t->birth.stime;
	bpf_probe_read_kernel(d->comm, sizeof(d->comm), p->comm);
	if (t->at.state == WS_BLOCKED)
		d->detail = told_since(p, t->at.detail);
	asking = t->at.state == WS_BLOCKED ? was_in_flight(t, woken ?: now) : t->wait.asking;
	d->flags = t->at.flags | (cfg_irq_in_clock ? WS_F_IRQ_OUT : 0) | (asking ? WS_F_ASKING : 0);
	if (t->at.state == WS_ON_CPU) {
		u64 length = elapsed(t, now);
		u64 out = left_out(t, p, length - clamp(exec - t->at.kernel.exec, length), t->at.cpu);

		*(cfg_irq_in_clock ? &d->acc.irq : &d->acc.stolen) += out;
	}
	if (woken) {
		u64 length = elapsed(t, woken);

		if (t->at.detail < WS_REASONS)
			SUM_OF(d->acc.blocked, t->at.detail) += length;
		d->since = woken;
		d->state = WS_RUNNABLE;
		d->detail = t->wakeup.part;
		d->block = t->at.block_len + length;
	}
	came = p->on_cpu ? unseen_arrival(t, p, now) : 0;
	if (came) {
		u64 queued = unseen_queueing(t, p, came), length = elapsed(t, came);

		if (t->at.state == WS_BLOCKED && t->at.detail < WS_REASONS)
			SUM_OF(d->acc.blocked, t->at.detail) += length - queued;
		else if (t->at.state == WS_RUNNABLE && t->at.detail < WS_PARTS)
			SUM_OF(d->acc.runnable, t->at.detail) += length;
		SUM_OF(d->acc.runnable, WS_WOKEN) += queued;
		d->since = came;
		d->state = WS_ON_CPU;
		d->detail = 0;
		d->block = 0;
	}
}

/* The last switch-out of a dead thread: its ledger is final. */
static __always_inline void thread_gone(struct ws_thread *t, struct task_struct *p)
{
	struct ws_dump *d;

	if (t->tid == t->pid)
		vm_forget(t->pid);
	if (!cfg_ledger_only) {
		tell_turn(t, t->at.since, 0, (struct ws_queued){});
		histogram_gone(t, p);
		forget_in_flight(t);
	}
	d = bpf_ringbuf_reserve(&events, sizeof(*d), 0);
	if (!d) {
		lost(WS_L_RING_EXIT);
		return;
	}
	lock_flush(t);
	d->head.kind = WS_EV_EXIT;
	fill_dump(d, t, p, t->at.since);
	bpf_ringbuf_submit(d, ring_flags());
	stack_thread_gone(t);
}

/* A copy of a thread's ledger in progress. */
struct ws_copy {
	struct ws_dump *d;
	struct ws_thread *t;
	struct task_struct *p;
	u64 seq; /* the thread's, as read before its ledger was copied */
	bool whole;
};

/* A callback and no loop: the verifier goes through it once. */
static long copy_books(u32 i, struct ws_copy *c)
{
	c->seq = *(volatile u64 *)&c->t->seq;
	barrier();
	fill_dump(c->d, c->t, c->p, bpf_ktime_get_ns());
	barrier();
	c->whole = !(c->seq & 1) && c->seq == *(volatile u64 *)&c->t->seq;
	return c->whole;
}

/* Copies a thread's ledger to the reader of the iterator, whole or not at all. */
static __always_inline void report_task(struct seq_file *seq, struct ws_thread *t, struct task_struct *p)
{
	u32 key = 0;
	struct ws_iter_scratch *v = bpf_map_lookup_elem(&iter_scratch, &key);
	struct ws_copy c = { .t = t, .p = p };

	if (!v || t->at.state == WS_DEAD)
		return;
	read_blocked_stack(v, t, p);
	if (set_iter == ITER_DUMP && t->seq == t->dumped && !p->on_cpu)
		return; /* nothing happened: user space can tell by itself */
	c.d = &v->d;
	bpf_loop(10, copy_books, &c, 0);
	if (!c.whole)
		lost(WS_L_TORN);
	v->d.head.kind = WS_EV_EXIT;
	t->dumped = c.seq;
	if (set_iter == ITER_END) {
		if (t->at.state == WS_BLOCKED)
			lock_ends(t, (v->d.state == WS_BLOCKED ? v->d.now : v->d.since) - t->at.since);
		lock_flush(t);
	}
	bpf_seq_write(seq, &v->d, sizeof(v->d));
	if (set_iter == ITER_END) {
		u64 size;

		if (cfg_ledger_only)
			return;
		size = pack_histogram(&v->s, t, bpf_task_storage_get(&own_histograms, p, 0, 0),
				  t->at.state == WS_RUNNABLE ? t->at.block_len : v->d.block);

		if (!size)
			return;
		barrier_var(size); /* or the two tests become one, of a copy */
		if (size <= sizeof(v->s))
			bpf_seq_write(seq, &v->s, size);
	}
}
