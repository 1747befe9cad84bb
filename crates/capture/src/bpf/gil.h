/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The holder of an interpreter's lock.
 *
 * A thread that waits for the GIL is mostly woken by its own time limit, not by the holder, so the
 * waker does not identify the holder. The interpreter remembers the thread that took the lock last. That is
 * read whenever one of its threads begins to wait: for the lock, right after each forced hand-off, or for
 * anything else, after it released the lock. A thread that had waited for the lock before has held it since
 * it got the CPU.
 *
 * The last changes are kept by process. They are sent with the ends of waits that are charged to stacks, or
 * before they are overwritten.
 */
#pragma once

/* Where every version from 3.8 to 3.14 keeps the thread that took the lock last; for Ruby `gil` is set to fit. */
#define GIL_HOLDER 8
#define GIL_COMERS 8
/* Shortest time between sending changes that no charged wait asks for, ns. */
#define GIL_TOLD_EVERY 200000

struct ws_gil {
	u64 holder;  /* the interpreter's own address of that thread; 0: none yet */
	u32 changes; /* ever; number n is at n % WS_HOLDS */
	u32 told;
	u32 comers;
	u32 free; /* Ruby: at the last reading no thread had it */
	u64 told_at;
	struct ws_hold hold[WS_HOLDS];
	struct ws_hold comer[GIL_COMERS]; /* threads that got the CPU after a wait for the lock, and when */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PY_MAX_PROCS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct ws_gil);
} gils SEC(".maps");

/* Records of the interpreters' threads, by the pointer that threads know themselves by. */
struct ws_self {
	u64 pointer;
	u32 pid, pad0;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct ws_self);
	__type(value, u64);
} selves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_holds);
} holds SEC(".maps");

static const struct ws_gil gil_none;

/* `p` is a thread of an interpreter, with record `t`. */
static __always_inline void gil_thread(struct ws_thread *t, struct task_struct *p)
{
	struct ws_self self = { .pointer = p->thread.fsbase, .pid = p->tgid };
	u64 *known = bpf_map_lookup_elem(&selves, &self);

	if (!known || *known != t->id)
		bpf_map_update_elem(&selves, &self, &t->id, BPF_ANY);
}

/* Sends the last changes of the lock of process `tgid`. */
__noinline int gil_send(struct ws_gil *g, u32 tgid, u64 now)
{
	struct ws_holds *e;
	u32 zero = 0;

	e = bpf_map_lookup_elem(&holds, &zero);
	if (!g || !e)
		return 0;
	e->head.kind = WS_EV_HOLDS;
	e->head.size = sizeof(*e);
	e->pid = tgid;
	e->changes = g->changes;
	__builtin_memcpy(e->hold, g->hold, sizeof(e->hold));
	g->told_at = now;
	if (bpf_ringbuf_output(&events, e, sizeof(*e), ring_flags()))
		lost(WS_L_RING_WAKE);
	else
		g->told = e->changes;
	return 0;
}

/* The lock of process `tgid` has changed hands; this is reported at `now`. */
__noinline int gil_changes(struct ws_gil *g, u32 tgid, struct ws_hold *hold, u64 now)
{
	if (!g || !hold)
		return 0;
	/* Threads that release it for each system call pass it on many times between two charged waits. */
	if (g->changes - g->told >= WS_HOLDS && now - g->told_at >= GIL_TOLD_EVERY)
		gil_send(g, tgid, now);
	g->hold[g->changes & (WS_HOLDS - 1)] = *hold;
	g->changes++;
	return 0;
}

/* `p` leaves the CPU to wait, in its own address space: for the lock, or with it, or after it. */
static __always_inline void gil_look(struct ws_thread *t, struct task_struct *p, u64 now)
{
	struct ws_self self = { .pid = p->tgid };
	u64 holder = 0, since = 0, *id;
	struct ws_hold hold;
	u32 tgid = p->tgid, last;
	struct py_proc *proc;
	struct ws_gil *g;

	g = bpf_map_lookup_elem(&gils, &tgid);
	/* While no thread has waited for the lock, its holder does not matter. */
	if (!g && t->at.detail != WS_GIL)
		return;
	proc = bpf_map_lookup_elem(&py_procs, &tgid);
	if (!proc || !proc->gil)
		return;
	gil_thread(t, p);
	if (!g) {
		bpf_map_update_elem(&gils, &tgid, &gil_none, BPF_NOEXIST);
		g = bpf_map_lookup_elem(&gils, &tgid);
	}
	if (!g || bpf_probe_read_user(&holder, sizeof(holder), (void *)proc->gil + GIL_HOLDER)) {
		lost(WS_L_GIL);
		return;
	}
	g->free = !holder;
	if (!holder || holder == g->holder)
		return;
	if (bpf_probe_read_user(&self.pointer, sizeof(self.pointer),
				(void *)holder + proc->ts.thread)) {
		lost(WS_L_GIL);
		return;
	}
	/* From Ruby 3.2 on the pointer is one dereference further. */
	if (proc->kind == PY_KIND_RUBY && proc->cframe &&
	    bpf_probe_read_user(&self.pointer, sizeof(self.pointer),
				(void *)self.pointer + proc->ts.cframe_frame)) {
		lost(WS_L_GIL);
		return;
	}
	id = bpf_map_lookup_elem(&selves, &self);
	for (int i = 0; i < GIL_COMERS; i++)
		if (id && g->comer[i].id == *id && g->comer[i].since > since)
			since = g->comer[i].since;
	last = g->changes - 1;
	if (!g->holder && id && g->changes && g->hold[last & (WS_HOLDS - 1)].id == *id) {
		/* `gil_comes` has reported this already, when the lock did not name the thread yet. */
		g->holder = holder;
		return;
	}
	/* It came before the last change, so it took the lock at another time: now. */
	if (!since || (g->changes && since <= g->hold[last & (WS_HOLDS - 1)].since))
		since = now;
	g->holder = holder;
	hold.since = since;
	hold.id = id ? *id : 0;
	gil_changes(g, tgid, &hold, now);
}

/* `t` gets the CPU after a wait for the lock: it may have it now. */
static __always_inline void gil_comes(struct ws_thread *t, u64 now)
{
	u32 tgid = t->pid;
	struct ws_gil *g = bpf_map_lookup_elem(&gils, &tgid);
	struct ws_hold hold = { now, t->id }, *h;

	if (!g)
		return;
	h = &g->comer[g->comers & (GIL_COMERS - 1)];
	*h = hold;
	g->comers++;
	if (!g->free)
		return;
	/* Ruby's lock was released: `t` takes it. If not, the next reading finds the holder. */
	gil_changes(g, tgid, &hold, now);
	g->holder = 0;
	g->free = 0;
}

/* At `now` a wait for the lock, which will be charged to a stack, is over: sends the changes meanwhile. */
static __always_inline void gil_tell(struct ws_thread *t, u64 now)
{
	u32 tgid = t->pid;
	struct ws_gil *g = bpf_map_lookup_elem(&gils, &tgid);

	if (g && g->told != g->changes)
		gil_send(g, tgid, now);
}

/* The interpreter of this process is gone. */
static __always_inline void gil_forget(u32 tgid)
{
	if (py_processes)
		bpf_map_delete_elem(&gils, &tgid);
}
