/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Room for one unwinding of a user stack, and the threads that have none. */
#pragma once
#include "unwind.h"
#include "python.h"
#include "untrusted_task.h"

/* One unwinding at work: the registers it starts from, and the unwinder's own state. */
struct ws_unwind {
	struct uw_pt_regs regs;
	struct uw_work work;
};

/* The timer's, which nothing preempts. All others take slots: one more for each CPU is much memory where
 * there are many. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_unwind);
} unwinds SEC(".maps");

static __always_inline bool no_user_stack(struct task_struct *p)
{
	return (p->flags & PF_IN_KERNEL_ONLY) || !walked(p)->mm;
}
