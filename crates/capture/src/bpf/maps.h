/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Settings, maps and the per-thread record.
 *
 * A thread is measured if, and only if, it has a record in task storage: one pointer test rejects all others.
 * Records are made by the task iterator (threads that exist at the start) and at fork (their children), never under
 * a run-queue lock; the kernel frees them with the task, so a killed wallscope leaves nothing behind.
 */
#pragma once
#include "event.h"

/* Read-only settings, fixed before the programs are loaded. */
const volatile u32 cfg_irq_in_clock = 0;   /* sum_exec_runtime already leaves interrupts out */
const volatile u32 cfg_due = 0;            /* timer programs may ask when a sample was due */
const volatile u32 cfg_task_work = 0;      /* threads read their stacks by task work, else by an interrupt */
const volatile u32 cfg_all = 0;            /* measure every task of the machine */
const volatile u32 cfg_self = 0;           /* own tgid, never measured */
const volatile u32 cfg_timeline = 0;       /* report every turn of every thread */
const volatile u32 cfg_ledger_only = 0;    /* sums by state and reason: no stacks, wakers, requests, lengths */
const volatile u32 cfg_wakings = 1;        /* wakers have a hook */
const volatile u32 cfg_by_thread = 1;      /* sums of waits by lock, and lengths, are kept of each thread */

/* Settings that user space changes while programs run. */
u64 set_period = 1000000; /* ns of blocked or runnable time per stack */
u32 set_phases = 0;       /* how often that was changed: phases drawn before are of no use */
u64 set_cpu_period = 10000000; /* ns of on-CPU time per sample of the timer */
u32 set_clock = 0;        /* that timer is the software clock */
#define WS_MANAGED_SOON 10000000 /* as in `event_merger.rs` */
u64 set_managed_every = WS_MANAGED_SOON; /* ns between wake-ups of user space for managed stacks */
/* Parts that are given up to keep the overhead within its budget: each step includes those before it. */
u32 set_given_up = 0;
enum { WS_ALL, WS_NO_REQUESTS, WS_NO_STACKS, WS_FEW_REASONS, WS_NO_HOOKS };
/* A thread that waits again so soon switches very often, ns: ten thousand times a second. */
#define WS_OFTEN 100000
u64 set_turn_min = 0;     /* ns that one interval of a turn must have for the turn to be reported */
u32 set_iter = 0;         /* order to the iterator: enum below */
enum { ITER_BEGIN, ITER_DUMP, ITER_END, ITER_ALL };

/* Stacks that may still be sent as they are; user space refills it. */
u64 raw_budget = 256;
u64 raw_tickets;

/* How the run queues' clock relates to CLOCK_MONOTONIC: see event_time(). */
u64 offset_now, offset_before, offset_since;

u64 next_id = 1; /* ids of threads, one per record ever made */

/* A request was in flight in a wait; one that the thread awaits itself. */
enum { WS_ASKING = 1, WS_AWAITS = 2 };

/* Requests that a thread begins and ends itself; see in_flight.h. */
struct ws_own_requests {
	u64 until;         /* when the last of them ended */
	u32 owed, awaited; /* those that are open */
	u64 talked_on;     /* the last socket that others asked it on */
};

/* The kernel's figures of a thread: a reading of them, or how far they have grown. */
struct ws_figures {
	u64 exec, delay;
};

/* The interval that is open, and the figures by which it is booked. The ledger writes them at each event. */
struct ws_interval {
	u64 since;                /* start of the current state */
	struct ws_figures kernel; /* at the last switch-out (or at birth) */
	u64 rq_since_out;         /* runnable time booked since the last switch-out */
	u64 block_len;            /* of the last blocked stretch */
	u8 state, detail, flags, block_reason;
	u32 cpu;
};

/* The turn under way: a stretch on the CPU, then blocked. The hook of the switch writes it. */
struct ws_open_turn {
	u64 block_begin;  /* of the last blocked stretch */
	u64 irq0, excl0;  /* interrupt time, and time the kernel leaves out, at switch-in */
	u64 stretch;      /* length of the last stretch on the CPU, not yet counted by length */
};

/* Time off the CPU that is not charged to a stack yet. The ledger adds to it, stack.h takes from it. */
struct ws_credit {
	u64 blocked, runnable;
};

/* The last wake-up. The hooks of wake-ups and of migrations write it. A switch resets `time`, `waker`,
 * `moved_asleep` and `part`. `phases` is no part of a wake-up: draw_phases() writes it. */
struct ws_wakeup {
	u64 time;         /* when its waker had a hook, 0: not in this wait */
	u32 waker;        /* record of the thread that ended its last wait, 0: not measured */
	u8 moved_asleep;  /* to another CPU: the kernel's queue figure runs on */
	u8 by_interrupt;  /* an interrupt woke it last; known for a timeline only */
	u8 part;          /* of runnable time, that its wake-up began */
	u8 phases;       /* `set_phases` when its credit was drawn */
};

/* Stacks that are still to be taken of a thread: sampler.h, deferred_user_stack.h. */
struct ws_pending_samples {
	u64 armed;        /* when it set a timer to sleep by, 0: not since it came; see sampler.h */
	u32 early;        /* on-CPU samples that were due while it was on, and not delivered then */
	u32 deferred;     /* a sample waits for the stack named by `stacks.ticket` */
};

/* Facts by which a wait is judged. The hooks of messages and the switch-out write them. */
struct ws_wait {
	u64 at;           /* epoll set or socket of its last wait (epoll.h), 0: not known */
	s32 polled;       /* the one descriptor that it polls, -1: several or none */
	u8 stop;          /* place of its VM that it waits at (safepoint.h) */
	u8 asking;        /* WS_ASKING, WS_AWAITS: at the begin of the open wait, or for half of the last one or more */
	u8 talks;         /* it has sent or received on a stream socket */
	u8 answers;       /* it has answered a request that another thread got */
};

/* Its own stacks: how they are named, and when they were taken. */
struct ws_own_stacks {
	u64 ticket;       /* names the user stack of the current stay in the kernel */
	u64 asked;        /* when its stack was last taken as a sender's */
	u64 ahead;        /* `seq` of the block with a stack that was read ahead */
	u64 credit_armed; /* on-CPU time since it set a timer until it left, not yet charged */
};

/* Exact waits. */
struct ws_lock_sum {
	u64 total, longest, count;
};

/* The object of its last wait, by kind. Only waits of that kind touch it. */
struct ws_waited {
	struct {
		u64 address, call;      /* 0: none */
		struct ws_lock_sum sum; /* its waits for it that are not yet in the map */
		u8 limited;             /* with a time limit, and memory around it is kept (timed_lock.h) */
	} lock;
	struct {
		u64 address, owner; /* of the Java monitor that it waits to enter, 0: none; word of its owner */
	} monitor;
	struct {
		u64 file, seq; /* inode of the page that it lacked, and the record's `seq` at that time */
	} fault;
	struct {
		u64 queue, before; /* the queue that it was throttled in; total throttled time of that queue until then */
	} throttled;
};

/* The beginning of a record, and the kernel's counters then. */
struct ws_birth {
	u64 time;
	u64 exec, delay, switches, utime, stime;
};

/*
 * The record of a thread. Each switch touches the first three cache lines, one or two of the sums, and one of the
 * steps. The kernel keeps a word before a record, so that the first line ends after 56 bytes.
 */
struct ws_thread {
	u64 seq; /* odd while it is being changed */
	struct ws_interval at;

	struct ws_open_turn turn;
	struct ws_credit credit;
	struct ws_wakeup wakeup;

	u64 id;
	struct ws_own_requests own;
	struct ws_wait wait;
	struct ws_pending_samples samples;
	u32 steps; /* changes of state, ever */

	struct ws_account acc;
	u32 pid, tid;
	struct ws_step step[WS_STEPS];
	struct ws_own_stacks stacks;
	struct ws_birth birth;
	u64 dumped; /* seq at the last dump */
	struct ws_waited waited;
};
_Static_assert(__builtin_offsetof(struct ws_thread, turn) == 56, "ends the first line");
_Static_assert(__builtin_offsetof(struct ws_thread, id) == 120, "ends the second line");
_Static_assert(__builtin_offsetof(struct ws_thread, steps) == 184, "ends the third line");
_Static_assert(__builtin_offsetof(struct ws_thread, acc) == 192, "the sums follow");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ws_thread);
} threads SEC(".maps");

/* Process ids to measure at the start. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} targets SEC(".maps");

/* Ids of the cgroups that are measured. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, u8);
} cgroups SEC(".maps");

/* System call number to reason; numbers past the end are WS_OTHER. */
#define WS_SYSCALLS 512
struct ws_call {
	u8 reason;   /* enum ws_reason */
	u8 argument; /* enum ws_argument */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WS_SYSCALLS);
	__type(key, u32);
	__type(value, struct ws_call);
} syscall_reason SEC(".maps");

/* Exact waits by thread and lock. */
struct ws_lock_key {
	u64 id;      /* the thread's record */
	u64 address; /* of the futex; else the id of semaphores or the inode of a locked file */
	u64 call;    /* the system call that waited */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ws_lock_key);
	__type(value, struct ws_lock_sum);
} lock_waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

/* Hashes of stacks that user space already has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, u8);
} seen SEC(".maps");

/* Hooks that are met often. */
enum { WS_AT_SWITCH, WS_AT_WAKING, WS_AT_MESSAGE, WS_AT_TIMER, WS_AT_EVENT, WS_HOOKS };

/* The wait for a CPU with which a turn ends. */
struct ws_queued {
	u64 length;
	u32 part;
};

/* The state of this CPU. */
struct ws_cpu {
	u64 irq_ns;    /* interrupt time that fell into measured threads */
	u64 irq_begin;
	u32 irq_depth;
	u32 measured;  /* the current task has a record */
	u64 losses[WS_LOSSES];
	struct {
		u64 timed_ns; /* of all switches and wake-ups, estimated, */
		u64 timer_ns; /* of each on-CPU sample, */
		u64 later_ns; /* and of each stack that a thread read itself */
		u64 charges;  /* switches at which time was charged to a stack, */
		u64 charged;  /* and that time, ns */
		u64 hits_ns;  /* of stacks taken at events */
		u64 edges_ns; /* at the beginnings and ends of interrupts, estimated */
		u64 taken_ns; /* of stacks taken at switches and wake-ups: a part of timed_ns */
	} cost; /* own run time */
	struct {
		u64 runs; /* of programs at the hooks that are met often */
		u64 worked[WS_HOOKS]; /* those that had something to do, by hook */
	} met;
	struct {
		u64 tick;       /* the jiffy with a timed first run */
		u32 untimed;    /* further runs since one of them was timed */
		u32 stands_for; /* how many runs the one that is being timed stands for */
	} timing;
	/* The timer of on-CPU samples: sampler.h. */
	u64 timer;     /* its event in the kernel, 0: not known yet */
	u64 next;      /* when it is due next, as far as is known */
	u64 charged;   /* a time at which it was due that is charged already */
	u64 compared;  /* reading of the run queue's clock that was last compared with ours: event_time() */
	u64 came;      /* when the thread on this CPU, or the first of several, came from a task not measured */
	u32 edges;     /* beginnings and ends of interrupts */
	struct {
		u64 since, n;
	} asks; /* stacks of senders, in a stretch of time */
};
/* Most runs that one timed run stands for. A prime, so that it does not fall into step with a pattern of events. */
#define WS_TIMED 31
#define WS_EDGES_TIMED 16 /* beginnings and ends of interrupts that one timed one stands for */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_cpu);
} cpus SEC(".maps");

static __always_inline struct ws_cpu *this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* How far the run queue's clock runs between two comparisons with ours on a CPU, at most, ns. */
#define WS_COMPARE_NS 500000

static __always_inline void lost(enum ws_loss cause)
{
	struct ws_cpu *c = this_cpu();

	if (c)
		c->losses[cause]++;
}

/*
 * Start of a run that is to be timed, or 0 for a run that is not. The time leaves out the entry and exit of a program
 * and the look-up of the thread's record. `met.runs` counts those, also for threads that are not measured.
 *
 * The first run of each jiffy is timed and stands for itself. It costs more, because its code and data have left the
 * caches. One in WS_TIMED of the other runs is timed and stands for as many. Where runs are few, each is timed, so
 * that an interrupted run does not stand for thirty others.
 */
static __always_inline u64 time_run(struct ws_cpu *c, u32 hook)
{
	u64 tick = bpf_jiffies64();

	c->met.worked[hook]++;
	if (tick != c->timing.tick) {
		c->timing.tick = tick;
		c->timing.stands_for = 1;
		return bpf_ktime_get_ns();
	}
	if (++c->timing.untimed < WS_TIMED)
		return 0;
	c->timing.untimed = 0;
	c->timing.stands_for = WS_TIMED;
	return bpf_ktime_get_ns();
}

static __always_inline void run_timed(struct ws_cpu *c, u64 start)
{
	if (start)
		c->cost.timed_ns += (bpf_ktime_get_ns() - start) * c->timing.stands_for;
}

/* Ring-buffer wake-up policy: wakes user space when more than a quarter of the ring is used. Below that, user space
 * polls. */
static __always_inline u64 ring_flags(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > (1 << 20) ? BPF_RB_FORCE_WAKEUP
									 : BPF_RB_NO_WAKEUP;
}
