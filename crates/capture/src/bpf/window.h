/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Stacks of threads that cannot read their own (before Linux 6.18): a part of the stack is saved at
 * each switch-out, and unwound at the switch-in that is charged.
 */
#pragma once

/* The saved part of a thread's user stack (window mechanism only), from rsp rounded down to 8. */
#define WS_WINDOW 4096
struct ws_window {
	struct uw_pt_regs regs;
	u64 len;
	u8 bytes[WS_WINDOW];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ws_window);
} windows SEC(".maps");

/* Window mechanism: keeps a part of the stack of a thread that leaves the CPU. */
static __always_inline void save_window(struct task_struct *p)
{
	struct ws_window *w;
	u64 from;

	if (cfg_task_work || no_user_stack(p))
		return;
	w = bpf_task_storage_get(&windows, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		return;
	uw_copy_regs(&w->regs, (void *)bpf_task_pt_regs(p));
	from = w->regs.sp & ~7ull;
	w->len = WS_WINDOW;
	if (bpf_probe_read_user(w->bytes, WS_WINDOW, (void *)from)) {
		/* The stack ends, or is not present, behind this page. */
		w->len = 4096 - (from & 4095);
		if (bpf_probe_read_user(w->bytes, w->len & (WS_WINDOW - 1), (void *)from))
			w->len = 0;
	}
}

/* The same for a thread that slept already when its record was made: from the iterator. */
static __always_inline void save_window_of(struct task_struct *p)
{
	struct ws_thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	struct ws_window *w;
	u64 from, seq;

	if (cfg_task_work || !t || t->state != WS_BLOCKED || no_user_stack(p))
		return;
	seq = t->seq;
	w = bpf_task_storage_get(&windows, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		return;
	uw_copy_regs(&w->regs, (void *)bpf_task_pt_regs(p));
	from = w->regs.sp & ~7ull;
	w->len = WS_WINDOW;
	if (!uw_may_fault(p, from, WS_WINDOW, 1) ||
	    bpf_copy_from_user_task(w->bytes, WS_WINDOW, (void *)from, p, 0)) {
		w->len = 4096 - (from & 4095);
		if (!uw_may_fault(p, from, w->len, 1) ||
		    bpf_copy_from_user_task(w->bytes, w->len & (WS_WINDOW - 1), (void *)from, p, 0))
			w->len = 0;
	}
	if (*(volatile u64 *)&t->seq != seq)
		w->len = 0; /* it moved meanwhile: what is there may be of two moments */
}

static __always_inline u64 unwind_window(struct task_struct *p)
{
	struct ws_window *w = bpf_task_storage_get(&windows, p, 0, 0);
	u32 key = 0;
	struct ws_unwind *u = bpf_map_lookup_elem(&unwinds, &key);

	if (!w || !u)
		return 0;
	bpf_probe_read_kernel(u->work.buf, WS_WINDOW, w->bytes);
	u->work.tls = 0;
	uw_unwind_window(&u->work, p->tgid, &w->regs, UW_MAX_FRAMES, w->len);
	return user_hash(&u->work.out);
}
