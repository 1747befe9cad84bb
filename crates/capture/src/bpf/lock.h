/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Exact waits by lock: each wait of each thread is added to the lock that it was for.
 *
 * A thread mostly meets the same lock again, so its sums stay in its record and go to the map when
 * it waits for another one, when it ends, and when the recording does.
 */
#pragma once

static __always_inline void lock_flush(struct ws_thread *t)
{
	struct ws_lock_key key = {
		.id = t->id,
		.address = t->waited.lock.address,
		.call = t->waited.lock.call,
	};
	struct ws_lock_sum *sum, first;

	if (!t->waited.lock.sum.count)
		return;
	sum = bpf_map_lookup_elem(&lock_waits, &key);
	if (sum) {
		sum->total += t->waited.lock.sum.total;
		sum->count += t->waited.lock.sum.count;
		if (sum->longest < t->waited.lock.sum.longest)
			sum->longest = t->waited.lock.sum.longest;
	} else {
		first.total = t->waited.lock.sum.total;
		first.count = t->waited.lock.sum.count;
		first.longest = t->waited.lock.sum.longest;
		if (bpf_map_update_elem(&lock_waits, &key, &first, BPF_ANY))
			lost(WS_L_LOCKS_FULL);
	}
	t->waited.lock.sum.total = t->waited.lock.sum.count = t->waited.lock.sum.longest = 0;
}

/* The thread has just begun to wait. */
static __always_inline void lock_begins(struct ws_thread *t, struct task_struct *p)
{
	struct ws_call *entry;
	struct pt_regs *regs;
	struct file *file;
	u64 lock, call;
	u32 key;

	if (!cfg_by_thread)
		return;
	if ((t->at.detail != WS_LOCK && t->at.detail != WS_GIL) || (p->flags & PF_IN_KERNEL_ONLY))
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
	call = call_of(regs);
	if (call >= WS_SYSCALLS)
		return; /* interrupted and gone on: the lock is still the same */
	key = call;
	entry = bpf_map_lookup_elem(&syscall_reason, &key);
	if (!entry || entry->reason == WS_RESTART)
		return;
	lock = regs->di;
	if (entry->argument == WS_FIRST_IS_FD) {
		file = file_of(p, lock);
		lock = file ? BPF_CORE_READ(file, f_inode, i_ino) : 0;
	}
	if (t->at.detail == WS_GIL)
		lock = py_own_lock(p->tgid, lock);
	if (lock == t->waited.lock.address && call == t->waited.lock.call)
		return;
	lock_flush(t);
	t->waited.lock.address = lock;
	t->waited.lock.call = call;
}

/* A wait of `ns` is over. */
static __always_inline void lock_ends(struct ws_thread *t, u64 ns)
{
	if (!cfg_by_thread || (t->at.detail != WS_LOCK && t->at.detail != WS_GIL))
		return;
	t->waited.lock.sum.total += ns;
	t->waited.lock.sum.count++;
	if (t->waited.lock.sum.longest < ns)
		t->waited.lock.sum.longest = ns;
}
