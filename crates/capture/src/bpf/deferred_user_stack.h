/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Threads read their own stacks before they return to user mode; until then samples carry a ticket, which stands
 * for the user stack of this stay in the kernel. There are two mechanisms:
 *
 *   task work (6.18)   the kernel calls back in the thread at its way out: pages that are not in
 *                      memory are brought in.
 *   interrupt          hooks run with interrupts off. The hook of sched_switch also runs before the new
 *                      thread has its address space. A hook writes to a perf ring that is set to wake
 *                      its reader. The kernel may not wake a task there, so it sends an irq_work to this
 *                      CPU. The irq_work runs as soon as interrupts are on again, still in the scheduler
 *                      and in the thread that was switched to. Its hook reads the stack. The ring has no
 *                      reader. Pages that are not in memory cannot be read.
 */
#pragma once
#include "user_unwind.h"
#include "publish.h"
#include "managed.h"
#include "raw.h"
#include "scratch.h"

/* One per thread: the kernel's data to call back in it. Keyed by the record's id. */
struct ws_later {
	struct bpf_task_work work;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct ws_later);
} later SEC(".maps");

/*
 * The kfuncs of Linux 7.0 and of 6.18. The verifier adds the last argument on 7.0; we pass it on 6.18.
 * They are weak, so that older kernels load the rest; libbpf leaves out a kfunc with other arguments.
 * 7.0 also has the second name, but programs may not call it. kernel_features.rs tells which kernels have
 * a kfunc that programs can call.
 */
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw,
					 void *map__map,
					 bpf_task_work_callback_t callback) __weak __ksym;
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map, bpf_task_work_callback_t callback,
					      void *aux__prog) __weak __ksym;

/* The next stay in the kernel gets a new ticket. */
static __always_inline void next_ticket(struct ws_thread *t)
{
	t->stacks.ticket++;
	t->samples.deferred = 0;
}

/* Reads the deferred stack of the current thread; READ_FAULT brings in pages that are not in memory. */
static __always_inline void read_deferred(struct ws_thread *t, struct task_struct *p, int how)
{
	struct ws_slot *s = take_slot();

	if (!s) {
		tell_resolved(t->id, t->stacks.ticket, 0);
		goto out;
	}
	uw_copy_regs(&s->u.regs, (void *)bpf_task_pt_regs(p));
	s->u.work.tls = p->thread.fsbase;
	if (how == READ_FAULT)
		uw_unwind_fault(&s->u.work, p->tgid, &s->u.regs);
	else
		uw_unwind_probe(&s->u.work, p->tgid, &s->u.regs);
	if (!lacks_tables(&s->u, p->tgid))
		tell_resolved(t->id, t->stacks.ticket, managed_hash(&s->u, &s->python, p, how));
	else if (how == READ_FAULT)
		SEND_RAW(&s->u, &s->raw, t->id, t->stacks.ticket, p->tgid, UW_READ_FAULT, 1);
	else
		SEND_RAW(&s->u, &s->raw, t->id, t->stacks.ticket, p->tgid, bpf_probe_read_user, 0);
	give_slot(s);
out:
	next_ticket(t);
}

/* Runs in the thread itself, sleepable, just before it returns to user mode. */
static int read_own_stack(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u64 start = bpf_ktime_get_ns();
	struct ws_cpu *c;

	if (!t || !t->samples.deferred)
		return 0;
	read_deferred(t, p, READ_FAULT);
	c = this_cpu();
	if (c)
		c->cost.later_ns += bpf_ktime_get_ns() - start;
	return 0;
}

/* Schedules it by the name that the kernel has; not 0 if that fails, or the kernel has neither. */
static __always_inline int schedule_own_stack(struct task_struct *p, struct ws_later *l)
{
	if (bpf_ksym_exists(bpf_task_work_schedule_resume))
		return bpf_task_work_schedule_resume(p, &l->work, &later, read_own_stack);
	if (bpf_ksym_exists(bpf_task_work_schedule_resume_impl))
		return bpf_task_work_schedule_resume_impl(p, &l->work, &later, read_own_stack,
							  NULL);
	return -1;
}

/* One event per CPU; its ring overwrites itself (irq_work.rs). */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, u32);
	__type(value, u32);
} irq_works SEC(".maps");

/* Asks for an interrupt of this CPU; not 0 where there will be none. */
static __always_inline long queue_irq_work(void *ctx)
{
	u32 nothing = 0;

	return bpf_perf_event_output(ctx, &irq_works, BPF_F_CURRENT_CPU, &nothing, sizeof(nothing));
}

/*
 * Asks `p` to read its own stack. `p` is the current thread, or the thread that this CPU switches to. The caller's
 * sample carries the ticket. If interrupts are on, the caller sends that sample first: the irq_work comes at once.
 */
static __always_inline void defer(void *ctx, struct ws_thread *t, struct task_struct *p)
{
	struct ws_later *l;
	u64 id = t->id;

	if (t->samples.deferred)
		return;
	if (!cfg_task_work) {
		/* If interrupts are on, the irq_work comes at once. */
		t->samples.deferred = 1;
		barrier();
		if (queue_irq_work(ctx)) {
			t->samples.deferred = 0;
			lost(WS_L_TASK_WORK);
		}
		return;
	}
	l = bpf_map_lookup_elem(&later, &id);
	if (!l) {
		lost(WS_L_DEFER_LOST);
		return;
	}
	if (schedule_own_stack(p, l))
		lost(WS_L_TASK_WORK);
	else
		t->samples.deferred = 1;
}

static __always_inline void stack_record_made(struct ws_thread *t)
{
	struct ws_later none = {};
	u64 id = t->id;

	if (cfg_task_work && bpf_map_update_elem(&later, &id, &none, BPF_NOEXIST))
		lost(WS_L_DEFER_LOST);
}

static __always_inline void stack_thread_gone(struct ws_thread *t)
{
	u64 id = t->id;

	if (cfg_task_work)
		bpf_map_delete_elem(&later, &id);
}

/* The old address space is gone: samples that waited for its stack cannot have it any more. */
static __always_inline void stack_exec(struct ws_thread *t)
{
	if (!t->samples.deferred)
		return;
	tell_resolved(t->id, t->stacks.ticket, 0);
	next_ticket(t);
	lost(WS_L_EXEC_GONE);
}

/* The thread is about to lose its address space: the last moment to read its stack. */
static __always_inline void read_before_exit(struct ws_thread *t, struct task_struct *p)
{
	if (t->samples.deferred && !no_user_stack(p))
		read_deferred(t, p, READ_PROBE);
}

/* The interrupt that was asked for, in the thread that is to read its stack. */
SEC("tp_btf/irq_work_entry")
int BPF_PROG(ws_irq_work, int vector)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_cpu *c;
	u64 start;

	if (!t || !t->samples.deferred || no_user_stack(p))
		return 0;
	start = bpf_ktime_get_ns();
	read_deferred(t, p, READ_PROBE);
	c = this_cpu();
	if (c)
		c->cost.later_ns += bpf_ktime_get_ns() - start;
	return 0;
}

/* The thread leaves the CPU: if no interrupt came, its stack may be another one by now. */
static __always_inline void stack_left(struct ws_thread *t)
{
	if (cfg_task_work || !t->samples.deferred)
		return;
	tell_resolved(t->id, t->stacks.ticket, 0);
	next_ticket(t);
	lost(WS_L_TASK_WORK);
}
