// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * The kernel side of wallscope: hooks of the scheduler, a timer, and a task iterator.
 *
 *   sched_switch, wakeups   the exact ledger (ledger.h), and the moment at which a stretch of
 *                           blocked or runnable time is charged to a stack (stack.h)
 *   perf_event timer        on-CPU stacks
 *   events by name          stacks where the user wants them (event_sampling.h)
 *   fork, exec, exit        threads come, change and go
 *   irq, softirq, timer     interrupt time, where the kernel does not count it by itself
 *   sockets                 requests in flight on stream sockets (sockets.h)
 *   task iterator           makes the first records, copies the ledgers, reads threads that stay
 *                           blocked
 *
 * Not done here: names, time slices, scaling, chains. Totals never depend on stacks: a lost stack
 * loses a name, not time.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#include "maps.h"
#include "unwind.h"
#include "python.h"
#include "reason.h"
#include "histogram.h"
#include "timeline.h"
#include "ledger.h"
#include "gil.h"
#include "monitor.h"
#include "timed_lock.h"
#include "pause.h"
#include "stack.h"
#include "waker.h"
#include "sampler.h"
#include "sockets.h"
#include "thread.h"
#include "by_counters.h"
#include "event_sampling.h"

static __always_inline struct ws_thread *record_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

/* What kind of wait for a CPU a switch-in ends. */
static __always_inline u32 part_of(struct ws_thread *t)
{
	return t->at.state == WS_RUNNABLE ? t->at.detail : t->wakeup.part;
}

/* `in` gets the CPU at `now`, having waited for it; see enter_cpu(). */
static __always_inline void arrived(struct ws_thread *in, struct task_struct *p, u64 now,
				    struct ws_queued queued)
{
	if (cfg_ledger_only)
		return;
	tell_turn(in, in->at.since, in->at.block_len, queued);
	count_turn(in, p, queued.length, queued.part);
	if (in->at.block_len && in->at.block_reason == WS_GIL)
		gil_comes(in, now);
	if (unlikely(in->wait.stop >= WS_EXECUTES))
		vm_thread_comes(in, now);
}

/*
 * `t` is on this CPU; if no hook saw it come, that is made good. Its wait is charged to no stack: the thread may
 * long since have gone on.
 */
static __always_inline void made_good(struct ws_hook *h, struct ws_thread *t, struct task_struct *p)
{
	u32 part = part_of(t);
	u64 waited = 0, came = come_unseen(h, t, p, &waited), period = set_period;

	if (!unlikely(came))
		return;
	arrived(t, p, came, (struct ws_queued){ waited, part });
	if (period) {
		if (phases_are_old(t))
			draw_phases(t, period, t->at.block_len, waited);
		take_charge(&t->credit.blocked, t->at.block_len, period);
		take_charge(&t->credit.runnable, waited, period);
	}
	h->c->measured = 1;
	h->c->came = came;
}

/* `out` leaves the CPU, `in` comes. One of them may be NULL. */
static __always_inline void switched(struct ws_hook *h, struct ws_switch *s, struct ws_thread *out,
				     struct ws_thread *in)
{
	struct task_struct *prev = s->prev, *next = s->next;

	h->now = event_time(h->c, out ? prev : next);
	h->cpu = bpf_get_smp_processor_id();
	if (out) {
		made_good(h, out, prev);
		leave_cpu(h, out, s);
		if (unlikely(out->at.state == WS_DEAD))
			thread_gone(out, prev);
		else
			stack_left(out);
	}
	if (out && !cfg_ledger_only) {
		if (unlikely(py_processes) && out->at.state == WS_BLOCKED)
			gil_look(out, prev, h->now);
		if (unlikely(java_known) && out->at.state == WS_BLOCKED && out->at.detail == WS_LOCK)
			monitor_waits(out, prev);
		if (unlikely(out->wait.stop == WS_IDLES) && out->at.state == WS_BLOCKED)
			ws_pause_over(prev->tgid, WS_IDLES, 0, h->now);
		if (out->at.state == WS_BLOCKED && out->at.detail == WS_LOCK)
			limited_waits(out, prev);
	}
	if (!cfg_ledger_only) {
		sampler_switched(h->c, out, in, h->now);
		if (out && out->samples.armed)
			out->samples.armed = 0;
	}
	if (in) {
		struct ws_queued queued = { .part = part_of(in) };

		queued.length = enter_cpu(h, in, next);
		arrived(in, next, h->now, queued);
		if (!cfg_ledger_only)
			charge_off_cpu(h, in, next, queued);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(ws_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct ws_switch s = { prev, next, prev_state, preempt };
	struct ws_thread *out = record_of(prev), *in = record_of(next);
	struct ws_cpu *c = this_cpu();
	struct ws_hook h = { ctx, c };
	u64 start;

	if (!c)
		return 0;
	c->met.runs++;
	c->measured = in != NULL;
	c->irq_depth = 0;
	if (!out) {
		barrier_var(in); /* or clang merges the two tests into pointer arithmetic */
		if (!in) {
			if (!offset_since)
				event_time(c, next);
			return 0;
		}
	}
	/* Each side is work of its own: the other thread may not be measured. */
	if (out && in)
		c->met.worked[WS_AT_SWITCH]++;
	start = time_run(c, WS_AT_SWITCH);
	switched(&h, &s, out, in);
	run_timed(c, start);
	return 0;
}

/* In the waker, before the sleeper is queued (perhaps by another CPU, which then is no witness). */
static __always_inline void waking(void *ctx, struct ws_cpu *c, struct ws_thread *t, struct task_struct *p)
{
	u64 now, start, period = set_period;
	struct ws_thread *w;

	now = bpf_ktime_get_ns();
	t->wakeup.time = now;
	t->wakeup.part = is_throttled(p) ? WS_THROTTLED : WS_WOKEN;
	if (cfg_ledger_only)
		return;
	waits_for(t, told_by_request(p, told_since(p, t->at.detail), RING_WAKER));
	if (unlikely(t->wait.stop == WS_IDLES))
		ws_asked(p->tgid);
	else if (unlikely(t->wait.stop) && t->wait.stop != WS_EXECUTES)
		ws_pause_over(p->tgid, t->wait.stop, t->turn.block_begin, now);
	w = record_of(bpf_get_current_task_btf());
	t->wakeup.waker = w ? w->id : 0;
	note_waker(t);
	if (unlikely(period && t->credit.blocked + elapsed(t, now) >= period)) {
		start = bpf_ktime_get_ns();
		tell_wake(ctx, t, w, now);
		c->cost.taken_ns += bpf_ktime_get_ns() - start;
	}
}

SEC("tp_btf/sched_waking")
int BPF_PROG(ws_waking, struct task_struct *p)
{
	struct ws_thread *t = record_of(p);
	struct ws_cpu *c = this_cpu();
	u64 start;

	if (!c)
		return 0;
	c->met.runs++;
	if (!t || t->at.state != WS_BLOCKED)
		return 0;
	start = time_run(c, WS_AT_WAKING);
	waking(ctx, c, t, p);
	run_timed(c, start);
	return 0;
}

/* The page that a thread lacks is one of a file; in `mapping` the kernel tells which. */
SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(ws_fault, struct address_space *mapping)
{
	struct ws_thread *t = record_of(bpf_get_current_task_btf());

	if (t) {
		t->waited.fault.file = (u64)mapping->host;
		t->waited.fault.seq = t->seq;
	}
	return 0;
}

/* A task is given to another CPU: usually as it wakes, sometimes in its sleep. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(ws_migrate, struct task_struct *p)
{
	struct ws_thread *t = record_of(p);
	struct ws_cpu *c = this_cpu();

	if (c)
		c->met.runs++;
	if (t && t->at.state == WS_BLOCKED && (p->__state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)))
		t->wakeup.moved_asleep = 1;
	return 0;
}

SEC("perf_event")
int ws_on_cpu(struct bpf_perf_event_data *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = record_of(p);
	struct ws_cpu *c = this_cpu();
	u64 start;

	if (!c)
		return 0;
	start = bpf_ktime_get_ns();
	if (t) {
		struct ws_hook h = { ctx, c, start, bpf_get_smp_processor_id() };

		made_good(&h, t, p);
	}
	if (sample_is_its(c, t, p, sample_due(ctx, c, t, start)))
		sample_on_cpu(t, p, ctx);
	c->cost.timer_ns += bpf_ktime_get_ns() - start;
	return 0;
}

/* A timer of high resolution is being set. */
SEC("tp_btf/hrtimer_start")
int BPF_PROG(ws_timer_set)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t;
	struct ws_cpu *c;
	u64 start;

	c = this_cpu();
	if (!c)
		return 0;
	c->met.runs++;
	if (!p->__state)
		return 0;
	t = record_of(p);
	if (!t)
		return 0;
	start = time_run(c, WS_AT_TIMER);
	sampler_armed(t, p);
	run_timed(c, start);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(ws_fork, struct task_struct *parent, struct task_struct *child)
{
	if (!record_of(parent) && !cfg_all)
		return 0;
	if (child->tgid == cfg_self)
		return 0;
	if (child->tgid != parent->tgid) {
		uw_fork(parent->tgid, child->tgid);
		py_fork(parent->tgid, child->tgid);
	}
	thread_born(child, WS_BORN);
	return 0;
}

/* The kernel itself makes the workers of io_uring: no thread forks them. */
SEC("tp_btf/task_newtask")
int BPF_PROG(ws_newtask, struct task_struct *p, u64 clone_flags)
{
	if (!(p->flags & PF_IO_WORKER) || p->tgid == cfg_self)
		return 0;
	if (record_of(bpf_get_current_task_btf()) || cfg_all)
		thread_born(p, WS_BORN);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(ws_exec, struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
{
	struct ws_thread *t = record_of(p);

	if (t)
		thread_exec(t, p);
	return 0;
}

/* Room was found for a mapping. No hook reports unmapped memory, but a library may take the place of another,
 * with other code at the same addresses. */
SEC("tp_btf/vm_unmapped_area")
int BPF_PROG(ws_room, unsigned long at, struct vm_unmapped_area_info *info)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (record_of(p))
		uw_is_free(p->tgid, at, at + info->length);
	return 0;
}

/* In a dying thread, while it still has its address space (6.16 and later; before, just after). */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(ws_exit, struct task_struct *p)
{
	struct ws_thread *t = record_of(p);

	if (!t)
		return 0;
	read_before_exit(t, p);
	if (unlikely(set_given_up == WS_NO_HOOKS))
		ends_unseen(t, p);
	return 0;
}

/* A task moves to another cgroup: it may come into the measured ones, or leave them. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(ws_cgroup_attach, struct cgroup *dst, const char *path, struct task_struct *p,
	     bool threadgroup)
{
	u64 id = dst->kn->id;

	if (p->tgid != cfg_self && bpf_map_lookup_elem(&cgroups, &id) && !record_of(p))
		thread_born(p, WS_FOUND);
	return 0;
}

static __always_inline struct kernfs_node *kernfs_parent(struct kernfs_node *node)
{
	struct kernfs_node___before_6_15 *old = (void *)node;

	if (bpf_core_field_exists(node->__parent))
		return BPF_CORE_READ(node, __parent);
	return (void *)BPF_CORE_READ(old, parent);
}

/* A cgroup made below a measured one is measured too. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(ws_cgroup_mkdir, struct cgroup *made, const char *path)
{
	struct kernfs_node *parent = kernfs_parent(made->kn);
	u64 id;
	u8 one = 1;

	if (!parent)
		return 0;
	id = BPF_CORE_READ(parent, id);
	if (bpf_map_lookup_elem(&cgroups, &id)) {
		id = made->kn->id;
		bpf_map_update_elem(&cgroups, &id, &one, BPF_ANY);
	}
	return 0;
}

/* An interrupt begins, or ends; only the outermost counts. */
static __always_inline int irq_edge(bool begins)
{
	struct ws_cpu *c = this_cpu();
	u64 start;

	if (!c)
		return 0;
	c->met.runs++;
	start = ++c->edges % WS_EDGES_TIMED ? 0 : bpf_ktime_get_ns();
	if (c->measured && begins && c->irq_depth++ == 0)
		c->irq_begin = bpf_ktime_get_ns();
	else if (c->measured && !begins && c->irq_depth && --c->irq_depth == 0)
		c->irq_ns += bpf_ktime_get_ns() - c->irq_begin;
	if (start)
		c->cost.edges_ns += (bpf_ktime_get_ns() - start) * WS_EDGES_TIMED;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(ws_irq_entry)
{
	return irq_edge(true);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(ws_irq_exit)
{
	return irq_edge(false);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(ws_softirq_entry)
{
	return irq_edge(true);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(ws_softirq_exit)
{
	return irq_edge(false);
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(ws_timer_entry)
{
	return irq_edge(true);
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(ws_timer_exit)
{
	return irq_edge(false);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(ws_sent, struct sock *sk, int ret, int flags)
{
	return talked(ctx, sk, ret, WS_SENDS);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(ws_received, struct sock *sk, int ret, int flags)
{
	return talked(ctx, sk, ret, WS_RECEIVES);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(ws_sock_state, struct sock *sk, const int from, const int to)
{
	return socket_state(sk, to);
}

SEC("iter.s/task")
int ws_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct ws_thread *t;
	u32 tgid;

	if (!p)
		return 0;
	t = record_of(p);
	if (set_iter == ITER_BEGIN) {
		tgid = p->tgid;
		/* A leader that has ended stays in the list as long as its threads live, and does nothing. */
		if (!t && tgid != cfg_self && p->pid && !p->exit_state &&
		    (cfg_all || bpf_map_lookup_elem(&targets, &tgid)))
			thread_born(p, WS_FOUND);
		return 0;
	}
	if (t && unlikely(set_given_up == WS_NO_HOOKS))
		book_by_counters(t, p, bpf_ktime_get_ns());
	if (t)
		report_task(ctx->meta->seq, t, p);
	return 0;
}
