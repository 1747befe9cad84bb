/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Pauses of VMs, sent when they end (safepoint.h). */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_pause);
} pauses SEC(".maps");

/* Reads the VM's words on a pause that ends now. The waker runs, a thread of the VM. */
static __always_inline void read_pause(struct ws_pause *e, struct ws_vm *vm)
{
	__builtin_memset(e->causes, 0, sizeof(e->causes));
	__builtin_memset(e->collections, 0, sizeof(e->collections));
	for (int i = 0; i < 2; i++)
		if (vm->causes[i] &&
		    bpf_probe_read_user_str(e->causes[i], WS_CAUSE, (void *)vm->causes[i]) < 0)
			lost(WS_L_PAUSE);
	for (int i = 0; i < 3; i++)
		if (vm->collections[i] &&
		    bpf_probe_read_user(&e->collections[i], 8, (void *)vm->collections[i]))
			lost(WS_L_PAUSE);
}

/*
 * Whether the pause that the current task ends, by waking a thread that waited since `begin` or by waiting for another
 * operation (WS_IDLES), is new.
 */
static __always_inline bool pause_ends(struct ws_vm *vm, u32 stop, u64 *begin, u64 *operation)
{
	*operation = vm->operation;
	if (stop == WS_AT_BARRIER) {
		*begin = vm->begin;
		return *operation;
	}
	*operation = vm->asked;
	vm->asked = 0;
	if (stop == WS_IDLES) {
		*begin = vm->came;
		return *operation && vm->came > vm->end;
	}
	/* If a thread waited at the barrier, the pause has been reported. */
	if (stop != WS_ASKED_FOR_IT || !*operation || vm->end >= *begin)
		return false;
	/* The thread that is woken first may have come to ask when the pause was long under way. */
	if (vm->came > vm->end)
		*begin = vm->came;
	return true;
}

/* A thread of process `tgid` that waited for its VM since `begin` is woken; WS_IDLES: its VM thread begins to wait. */
__noinline int ws_pause_over(u32 tgid, u32 stop, u64 begin, u64 now)
{
	struct ws_vm *vm = bpf_map_lookup_elem(&vms, &tgid);
	struct task_struct *waker = bpf_get_current_task_btf();
	struct ws_operation_facts *facts;
	struct ws_operation key = {};
	struct ws_pause *e;
	u32 zero = 0;

	if (!vm || waker->tgid != tgid || !is_vm_thread(waker) ||
	    !pause_ends(vm, stop, &begin, &key.table))
		return 0;
	vm->operation = 0;
	vm->end = now;
	key.set = vm->set;
	facts = bpf_map_lookup_elem(&operations, &key);
	e = bpf_map_lookup_elem(&pauses, &zero);
	if (!facts || !e)
		return 0;
	e->head.kind = WS_EV_PAUSE;
	e->head.size = sizeof(*e);
	e->begin = begin;
	e->end = now;
	e->pid = tgid;
	e->pad0 = 0;
	__builtin_memcpy(e->name, facts->name, sizeof(e->name));
	read_pause(e, vm);
	if (bpf_ringbuf_output(&events, e, sizeof(*e), ring_flags()))
		lost(WS_L_RING_PAUSE);
	return 0;
}
