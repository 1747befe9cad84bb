/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What crosses from the kernel programs to user space. Mirrored in `event.rs`; both sides assert
 * the sizes. All times are CLOCK_MONOTONIC nanoseconds, all lengths nanoseconds.
 */
#pragma once

/* States of a thread; SD_* fit in a byte. */
enum ws_state {
	WS_NONE = 0, /* record made, state not yet known */
	WS_ON_CPU,
	WS_RUNNABLE,
	WS_BLOCKED,
	WS_DEAD,
	WS_ASKED = 16, /* in samples only: where a request was sent; `begin` is the socket's cookie */
	WS_HIT,        /* in samples only: at an event; `detail` is its number, `ns` its count */
};

/* Parts of runnable time, in the order of ws_account.runnable. */
enum ws_part { WS_WOKEN, WS_PREEMPTED, WS_THROTTLED, WS_PARTS };

/* Block reasons, in the order of the model's BlockReason. */
enum ws_reason {
	WS_LOCK,
	WS_GIL,
	WS_DISK,
	WS_NETWORK,
	WS_PIPE,
	WS_TIMER,
	WS_POLL,
	WS_CHILD,
	WS_PAGE_FAULT,
	WS_MEMORY,
	WS_KERNEL_LOCK,
	WS_GC,
	WS_STOPPED,
	WS_OTHER,
	WS_REASONS,
	/* In the syscall table only: the kind of the descriptor in the first argument decides. */
	WS_BY_FD = 32,
	/* restart_syscall: the reason of the interrupted call stands. */
	WS_RESTART = 33,
	/* fcntl: its command decides. */
	WS_BY_FCNTL = 34,
	/* Calls of sockets: network, or a unix socket's peer on this machine. */
	WS_BY_SOCKET = 35,
	/* poll, and select: a sleep if they have no descriptors and a time limit. */
	WS_BY_POLL = 36,
	WS_BY_SELECT = 37,
	/* splice and its kin have two ends: the kernel's functions tell which one is waited for. */
	WS_BY_PLACE = 38,
};

/* Which argument of a system call names the thing waited for. */
enum ws_argument {
	WS_NO_ARGUMENT,
	WS_FIRST_IS_FD,
	WS_FIRST_IS_PATH,
	WS_SECOND_IS_PATH,
	WS_FIRST_IS_LOCK,
	WS_POLL_LIST,
	WS_FIRST_IS_PROCESS,
	WS_SECOND_IS_PROCESS, /* or a descriptor of one, as the first says */
};

/* Closed intervals of one thread, and facts about them from the kernel's counters. */
struct ws_account {
	u64 on_cpu;              /* irq and stolen included */
	u64 irq;                 /* the part of on_cpu that interrupts took */
	u64 stolen;              /* the part of on_cpu that the hypervisor took */
	u64 runnable[WS_PARTS];
	u64 blocked[WS_REASONS];
	u64 limbo;               /* seen, but not yet attributed (resolved at the next switch) */
	u64 repaired;            /* how much of the above was corrected from the kernel's counters */
	u64 voluntary;
	u64 involuntary;
};

/*
 * The first word of a record tells its kind. A user stack is sent as the unwinder left it
 * (struct uw_stack), so its first word is its number of frames, at most UW_MAX_FRAMES.
 */
enum ws_kind {
	WS_EV_THREAD = 0x10001, /* struct ws_thread_event: born, found, or changed by exec */
	WS_EV_EXIT,             /* struct ws_dump: the thread is gone, its last figures */
	WS_EV_SAMPLE,           /* struct ws_sample */
	WS_EV_KSTACK,           /* struct ws_kstack */
	WS_EV_RESOLVE,          /* struct ws_resolve */
	WS_EV_RAW,              /* struct ws_raw */
	WS_EV_MANAGED,          /* struct py_stack: the managed frames of a stack */
	WS_EV_JOIN,             /* struct ws_join */
	WS_EV_RESOURCE,         /* struct ws_resource */
	WS_EV_WAKE,             /* struct ws_wake */
	WS_EV_OWNER,            /* struct ws_owner: the owner of a Java monitor */
	WS_EV_HOLDS,            /* struct ws_holds: the holders of an interpreter's lock */
	WS_EV_WORDS,            /* struct ws_words: memory around a lock */
	WS_EV_PAUSE,            /* struct ws_pause: a runtime stopped its threads */
	WS_EV_HISTOGRAM = 0x10020,  /* struct ws_histogram_event: how long a thread's intervals were */
	WS_EV_SOCKET,           /* struct ws_socket_event: a connection is gone */
	WS_EV_ANSWER,           /* struct ws_answer: a request is over; its sender was sampled */
};

struct ws_head {
	u32 kind;
	u32 size;
};

enum { WS_BORN = 0, WS_EXEC = 1, WS_FOUND = 2 };

struct ws_thread_event {
	struct ws_head head;
	u64 id;
	u64 time;
	u32 pid, tid, parent;
	u32 how; /* WS_BORN, WS_EXEC, WS_FOUND */
	char comm[16];
};

/* One thread's ledger at one moment. */
struct ws_dump {
	struct ws_head head;
	u64 id;
	u64 now;    /* when this was written */
	u64 birth;  /* when the record begins */
	u64 since;  /* when the state below began */
	u32 pid, tid;
	u8 state, detail, flags, block_reason; /* ws_state; ws_part or ws_reason */
	u32 cpu;
	u64 stretch, block; /* of the turn under way: on a CPU, then blocked for `block_reason` */
	struct ws_account acc;
	/* The kernel's counters since birth; see exec_at() and delay_at(). */
	u64 kernel_exec, kernel_run_delay, kernel_switches;
	u64 utime, stime; /* since birth */
	char comm[16];
};
enum { WS_F_KTHREAD = 1, WS_F_AUDIT = 2, WS_F_IRQ_OUT = 4, WS_F_ASKING = 8, WS_F_LATE = 16 };

/*
 * A turn of a thread, reported when it gets the CPU again: a stretch on the CPU, then blocked, then
 * waiting for the CPU, all of them up to `time` and without a gap. Any but the last may be 0.
 */
struct ws_turn {
	u64 time;
	u64 stretch, block, waited;
	u32 id;    /* the record's */
	u32 waker; /* the waker's record, 0: not measured, or an interrupt */
	u8 reason, part;
	u8 asking; /* a request was in flight when the block began */
	u8 pad0[5];
};

/* A stretch of time charged to a stack: `periods` times the period in force. */
struct ws_sample {
	struct ws_head head;
	u64 id;
	u64 begin, end; /* the interval that crossed; equal for on-CPU samples */
	u64 ns;         /* weight */
	u64 kstack;     /* hash, 0: none */
	u64 ustack;     /* hash, or with WS_DEFERRED a ticket that a ws_resolve will name */
	u64 resource;   /* hash, 0: none known */
	u32 pid, tid;
	u32 count;      /* periods */
	u16 cpu;
	u8 state, detail;
	u32 flags;
	u32 pad0;
};
enum { WS_S_DEFERRED = 1, WS_S_NO_USER = 2, WS_S_USER_MODE = 4, WS_S_OPEN = 8 /* not over */,
       /* For a block: the thread had a request in flight as it began; it has talked on sockets. */
       WS_S_IN_FLIGHT = 0x100, WS_S_TALKS = 0x200, WS_S_AWAITS = 0x400 };

struct ws_resolve {
	struct ws_head head;
	u64 id;
	u64 ticket;
	u64 ustack;
	u64 futex; /* read ahead: the futex of a wait with a time limit, 0: none, or it is not known */
};

/*
 * A stack with code that has no unwind table loaded yet (a program that has just begun, a library that has just
 * been opened). It holds registers and memory, which user space unwinds when measuring is over. It resolves
 * `ticket`, like a ws_resolve.
 */
#define WS_RAW_BYTES 28672 /* with the head less than 32 KiB, the most of a per-CPU value */
struct ws_raw {
	struct ws_head head;
	u64 id;
	u64 time;
	u64 ticket;
	u32 pid, len;
	u64 start; /* where the bytes begin: as far below rsp as code may keep something there, within the page */
	u64 holes; /* a bit each for pages of the stack that could not be read, from the first on */
	u64 code[2];  /* instructions from the word of the pc on: run-time code may be replaced; 0: unreadable */
	u64 regs[21]; /* struct pt_regs */
	u8 bytes[WS_RAW_BYTES];
};

/* One hash for a native stack and the managed frames that were read with it. */
struct ws_join {
	struct ws_head head;
	u64 hash;
	u64 native;
	u64 managed;
};

/* Occupied buckets of a thread's own histograms (histogram.h); the index has the state in it. */
#define WS_MAX_BUCKETS_SENT 396
struct ws_histogram_event {
	struct ws_head head;
	u64 id;
	u64 max[3];
	u64 stretch, block; /* of the turn under way: over, but not in the buckets yet */
	u32 n, block_reason;
	struct {
		u32 index, count;
	} bucket[WS_MAX_BUCKETS_SENT];
};

/* What a thread waited for, as far as its system call and the kernel's own tables tell. */
enum ws_resource_kind {
	WS_W_NONE,
	WS_W_LOCK,      /* address: of the futex, or the id of the semaphores */
	WS_W_FILE,      /* address: inode number; names: its path */
	WS_W_PATH,      /* name: as the call was given it */
	WS_W_SOCKET,
	WS_W_UNIX,      /* address: inode number of the socket */
	WS_W_PIPE,      /* address: inode number of the pipe */
	WS_W_ANONYMOUS, /* eventfd, timerfd, epoll…; the name says which */
	WS_W_FAULT,     /* names: the file; none: anonymous memory, or a file that is not known */
	WS_W_CALL,      /* nothing but the call; address: for poll, how many descriptors */
	WS_W_MONITOR,   /* address: of the Java monitor */
	WS_W_PROCESS,   /* address: its id, as the kernel knows it */
	WS_W_OWN_CHILD, /* address: its id, as the waiter knows it */
};
#define WS_NAMES 10
#define WS_NAME 64
struct ws_resource {
	struct ws_head head;
	u64 hash; /* of the words from `address` up to `names` */
	u64 address;
	u32 kind, pid; /* pid 0: the same in all processes */
	u32 call;      /* number of the system call, -1: a page fault */
	s32 fd;
	u32 device, peer_pid;
	u16 family, local_port, peer_port /* network order */;
	u16 asks; /* UDP, bound to nothing but by its first datagram: the datagram that comes back is an answer */
	u8 local[16], peer[16];
	u32 names, pad1;
	u64 name[WS_NAMES][WS_NAME / 8]; /* the file's own, then its folders up to the root */
};
#define WS_IDENTITY (offsetof(struct ws_resource, names) - offsetof(struct ws_resource, address))

/* A change of a thread's state. */
struct ws_step {
	u64 time;
	u32 waker;        /* of a wake-up: the waker's record, 0: none */
	u8 state, detail;
	u16 pad0;
};
#define WS_STEPS 16

/* The end of a wait that will be charged to a stack. */
struct ws_wake {
	struct ws_head head;
	u64 id;           /* the sleeper */
	u64 begin;        /* of its wait; as in the sample that follows */
	u64 time;
	u64 waker;        /* its record's id, 0: not measured */
	u64 kstack;       /* the waker's, as in ws_sample */
	u64 ustack;
	u32 pid, tid;     /* the waker's */
	u32 flags;        /* WS_S_DEFERRED, WS_S_NO_USER */
	u32 steps;        /* changes of the waker's state, ever; the last WS_STEPS are below */
	char comm[16];
	struct ws_step step[WS_STEPS]; /* number n at n % WS_STEPS */
};

/* The owner of a Java monitor when a thread began to wait for it. */
struct ws_owner {
	struct ws_head head;
	u64 id;    /* the waiter, since */
	u64 begin;
	u64 owner; /* as the VM has it */
	u32 pid, pad0;
};

/* What lay around a lock's futex when a thread began to wait for it with a time limit. */
#define WS_WORDS 8
#define WS_WORDS_BEFORE 3 /* the futex itself is the fourth */
struct ws_words {
	struct ws_head head;
	u64 id;      /* the waiter, since */
	u64 begin;
	u64 address; /* of the futex */
	u32 pid, tid;
	u32 op, value; /* of its call */
	u32 word[WS_WORDS];
};

/* From when on a thread (0: one without a record) has had an interpreter's lock. */
struct ws_hold {
	u64 since;
	u64 id;
};
#define WS_HOLDS 16
struct ws_holds {
	struct ws_head head;
	u32 pid;
	u32 changes; /* ever; the last WS_HOLDS are below, number n at n % WS_HOLDS */
	struct ws_hold hold[WS_HOLDS];
};

/* A pause of a VM. */
#define WS_OPERATION 40
#define WS_CAUSE 32
struct ws_pause {
	struct ws_head head;
	u64 begin, end;
	u32 pid, pad0;
	u64 collections[3]; /* by the VM's own count: young, full, pauses of concurrent ones */
	u8 name[WS_OPERATION];
	u8 causes[2][WS_CAUSE]; /* of the present collection and of the last one */
};

/* A stream socket and its requests in flight (sockets.h). */
#define WS_PATH 64
struct ws_socket {
	u64 cookie;
	u64 since;      /* a request is in flight since then; 0: none */
	u64 first;      /* the first of the messages that nothing answered */
	u64 in_flight;  /* time with a request in flight, without the open one */
	u64 asker;      /* id of the thread that sent the open request and was sampled for it */
	u32 requests;
	u32 unanswered; /* messages since the last answer */
	u32 pid;
	u32 owner;      /* thread or process that counts the open request: a key of in_flight */
	u32 peer_pid;   /* of a unix socket: process that made the other end; 0: not known */
	u16 family, peer_port, local_port;
	u8 inbound;     /* accepted: the other side asks */
	u8 answered;    /* ever */
	u8 sampled;
	u8 at_least;    /* there may have been more requests; user space alone */
	u8 pad0[2];
	u8 peer[16];
	char path[WS_PATH]; /* of a unix socket's listener */
	u32 reader;     /* the thread that got or sent the open request; 0: not known */
	u32 pad1;
	u64 loop;       /* the epoll instance that counts the open request too (epoll.h), 0: none */
};

/* Answers that are awaited at an epoll instance. */
struct ws_loop {
	u64 since;      /* the first of them is awaited since then, or was */
	u64 until;      /* when the last of them came */
	s32 awaited;
	u32 pad0;
};

/* Open requests of a thread or process. */
struct ws_requests {
	u64 until;      /* when the last of them ended */
	u32 owed;       /* others await them */
	u32 awaited;    /* from others */
	u32 passes_on;  /* of the last requests that the thread got, so many were answered by others */
	u32 pad0;
};

struct ws_socket_event {
	struct ws_head head;
	struct ws_socket s;
};

struct ws_answer {
	struct ws_head head;
	u64 id;
	u64 cookie;
	u64 ns; /* from the request to the answer */
};

#define WS_KFRAMES 127
struct ws_kstack {
	struct ws_head head;
	u64 hash;
	u32 n, pad0;
	u64 pc[WS_KFRAMES];
};

/* Everything that can go wrong in kernel code, each with its own counter. */
enum ws_loss {
	WS_L_NO_RECORD,     /* task storage could not be created */
	WS_L_RING_SAMPLE,   /* ring full: sample */
	WS_L_RING_STACK,    /* ring full: stack */
	WS_L_RING_THREAD,   /* ring full: thread event */
	WS_L_RING_EXIT,     /* ring full: last figures of a thread */
	WS_L_RING_RESOLVE,  /* ring full: the name of a deferred stack */
	WS_L_TASK_WORK,     /* deferred reading refused by the kernel */
	WS_L_NO_SLOT,       /* no work area free */
	WS_L_EXEC_GONE,     /* address space replaced before the stack was read */
	WS_L_SEEN_FULL,     /* table of known stacks full: stack sent again */
	WS_L_HOLE_IN,       /* switch-in not seen (repaired) */
	WS_L_HOLE_OUT,      /* switch-out not seen (repaired) */
	WS_L_HOLE_BOTH,     /* both not seen (repaired) */
	WS_L_TORN,          /* a record changed while it was being read */
	WS_L_KSTACK,        /* kernel stack could not be taken */
	WS_L_DEFER_LOST,    /* no deferred-reading record for the thread */
	WS_L_RAW,           /* stack kept to be unwound at the end */
	WS_L_HOLE_WAKE,     /* wake-up not seen (repaired) */
	WS_L_CARRIED,       /* sleeper moved while queued: the kernel's queue figure is not its own */
	WS_L_MANAGED,       /* no managed frame could be read of a stack that has some */
	WS_L_NO_HISTOGRAM,      /* no room for a thread's histogram */
	WS_L_RING_HISTOGRAM,    /* ring full: a thread's histogram */
	WS_L_RING_WAKE,     /* ring full: the waker of a wait, or the owner of a lock */
	WS_L_LOCKS_FULL,    /* table of lock waits full */
	WS_L_SOCKETS,       /* no room for a connection */
	WS_L_UNDATED,       /* on-CPU sample very late, or not telling when it was due */
	WS_L_RING_TURN,     /* ring full: a turn of the timeline */
	WS_L_MONITOR,       /* the Java monitor that was waited for could not be read */
	WS_L_GIL,           /* the holder of an interpreter's lock could not be read */
	WS_L_HITS_FULL,     /* table of event counts full */
	WS_L_LIMITED,       /* memory around a lock could not be read */
	WS_L_LATE_IN,       /* switch-in not seen: dated from the kernel's record */
	WS_L_LATE_WAKE,     /* wake-up not seen: dated from the kernel's record */
	WS_L_RING_PAUSE,    /* ring full: a pause of a VM */
	WS_L_PAUSE,         /* a VM's words on a pause could not be read */
	WS_LOSSES,
};

_Static_assert(sizeof(struct ws_account) == 192, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_thread_event) == 56, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_dump) == 320, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_turn) == 48, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_sample) == 88, "mirrored in event.rs");
_Static_assert(__builtin_offsetof(struct ws_raw, bytes) == 240, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_socket) == 168, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_answer) == 32, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_resolve) == 40, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_join) == 32, "mirrored in event.rs");
_Static_assert(__builtin_offsetof(struct ws_histogram_event, bucket) == 64, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_resource) == 736, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_wake) == 344, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_owner) == 40, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_words) == 80, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_holds) == 272, "mirrored in event.rs");
_Static_assert(sizeof(struct ws_pause) == 160, "mirrored in event.rs");
_Static_assert(WS_LOSSES == 35, "named in event.rs");
