/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The monitor that a Java thread waits to enter, and its owner; the class of the object it is parked for.
 *
 * The kernel sees such a wait at a futex of the thread's own, which identifies no lock. The VM's record of
 * the thread identifies the monitor. User space tells where to read it, and resolves the word that
 * names the owner.
 */
#pragma once

struct ws_java_thread {
	u64 pending; /* address of the pointer to the monitor it is about to enter */
	u64 owner;   /* offset of the owner in a monitor */
	u64 object;  /* address of the pointer to its java.lang.Thread, 0: not known */
	u64 base;    /* base of short pointers to objects */
	u32 blocker; /* in its java.lang.Thread: the object that it is parked for */
	u32 class;   /* in any object: its class, short */
	u32 shift;   /* of short pointers */
	u16 below;   /* bits below the class, in its four bytes */
	u16 whole;   /* pointers to objects are not short */
};
_Static_assert(sizeof(struct ws_java_thread) == 48, "as user space writes it");

/* The "monitor" of a parked thread is its object's class: objects move, classes do not. */
#define WS_PARKED (1ull << 63)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct ws_java_thread);
} java_threads SEC(".maps");

/* Number of entries: with 0 no thread pays for a lookup. User space sets it. */
u32 java_known;

/* The class of the object that a thread is parked for, 0: it is not parked, or that is not known. */
static __always_inline u64 parked_for(struct ws_java_thread *java)
{
	u32 bytes = java->whole ? 8 : 4, class = 0;
	u64 thread = 0, blocker = 0;

	/* While the garbage collector runs the objects may be gone: then the wait counts like any other. */
	if (!java->object ||
	    bpf_probe_read_user(&thread, sizeof(thread), (void *)java->object) || !thread ||
	    bpf_probe_read_user(&blocker, bytes, (void *)(thread + java->blocker)) || !blocker ||
	    bpf_probe_read_user(&class, sizeof(class), (void *)(java->base + (blocker << (java->shift & 7)) + java->class)))
		return 0;
	class >>= java->below & 31;
	return class ? WS_PARKED | class : 0;
}

/* `p` leaves the CPU to wait for a lock, in its own address space. */
static __always_inline void monitor_waits(struct ws_thread *t, struct task_struct *p)
{
	struct ws_java_thread *java;
	u64 monitor = 0, owner = 0;
	u32 tid = p->pid;

	t->waited.monitor.address = 0;
	java = bpf_map_lookup_elem(&java_threads, &tid);
	if (!java)
		return;
	if (bpf_probe_read_user(&monitor, sizeof(monitor), (void *)java->pending)) {
		lost(WS_L_MONITOR);
		return;
	}
	if (!monitor)
		monitor = parked_for(java);
	if (!monitor)
		return; /* some other wait */
	if (!(monitor & WS_PARKED) &&
	    bpf_probe_read_user(&owner, sizeof(owner), (void *)(monitor + java->owner))) {
		lost(WS_L_MONITOR);
		return;
	}
	t->waited.monitor.address = monitor;
	t->waited.monitor.owner = owner;
	if (t->waited.lock.address != monitor) {
		lock_flush(t);
		t->waited.lock.address = monitor;
	}
}

/*
 * Finds the monitor of a thread that began to wait before its record was made: its memory was not at hand
 * then. The task iterator calls this at the end.
 */
static __always_inline void monitor_awaited(struct ws_thread *t, struct task_struct *p)
{
	struct ws_java_thread *java;
	u64 monitor = 0;
	u32 tid = p->pid;

	if (!java_known || t->waited.monitor.address || t->at.detail != WS_LOCK)
		return;
	java = bpf_map_lookup_elem(&java_threads, &tid);
	if (!java || !uw_may_fault(p, java->pending, sizeof(monitor), 0) ||
	    bpf_copy_from_user_task(&monitor, sizeof(monitor), (void *)java->pending, p, 0) || !monitor)
		return;
	t->waited.monitor.address = monitor;
	if (t->waited.lock.address != monitor) {
		lock_flush(t);
		t->waited.lock.address = monitor;
	}
}

/* A wait for a monitor, which will be charged to a stack, is over. */
static __always_inline void monitor_tell(struct ws_thread *t)
{
	if (t->waited.monitor.address & WS_PARKED)
		return; /* its owner is not known */
	struct ws_owner e = {
		.head = { WS_EV_OWNER, sizeof(e) }, .id = t->id, .begin = t->turn.block_begin,
		.owner = t->waited.monitor.owner, .pid = t->pid,
	};

	if (bpf_ringbuf_output(&events, &e, sizeof(e), ring_flags()))
		lost(WS_L_RING_WAKE);
}
