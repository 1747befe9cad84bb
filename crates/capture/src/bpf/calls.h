/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What crosses between latency.bpf.c and user space. Mirrored in `probes/abi.rs`; both sides assert
 * the sizes. Times are CLOCK_MONOTONIC nanoseconds.
 */
#pragma once
#include "event.h"

/* What a probe site means; it travels in the site's cookie. */
enum ws_site {
	WS_AT_ENTRY,         /* entry; the kernel emulates the instruction */
	WS_AT_STEPPED_ENTRY, /* entry; the instruction is single-stepped */
	WS_AT_RETURN,        /* the kernel's return probe */
	WS_AT_RET,           /* a `ret` of the function, which is single-stepped */
	WS_AT_JUMP,          /* a jump out of the function: a tail call */
	WS_AT_BRANCH,        /* a conditional jump out of the function */
	WS_AT_INDIRECT,      /* a jump by register or table: a tail call if it leads out */
	WS_AT_CATCH,         /* where exceptions are caught: calls below have been left */
	WS_AT_BEGIN,         /* the first of a pair of events of one thread */
	WS_AT_END,           /* the second */
	WS_SITES,
};

/* Fields of a cookie. */
#define WS_COOKIE_FUNCTION(c) ((u32)(c) & 0xffff)
#define WS_COOKIE_SITE(c) ((u32)((c) >> 16) & 15)
#define WS_COOKIE_CONDITION(c) ((u32)((c) >> 20) & 15)
#define WS_COOKIE_DEPTH(c) ((u32)((c) >> 24) & 0xffff) /* bytes pushed since the entry */
#define WS_COOKIE_JUMP(c) ((u32)((c) >> 40) & 0xffff)  /* index in `jumps` */
#define WS_COOKIE_FOLLOWED(c) ((u32)((c) >> 56) & 1)   /* of a function that is only tail-called */

/* Where an indirect jump leads. Registers are indices of struct pt_regs, 255: none. */
struct ws_jump {
	s64 low, high; /* the function's own code, relative to the jump */
	s64 displacement;
	u8 base, index, scale, memory;
	u32 pad0;
};

/* Ledger of one call: on the CPU, runnable by part, blocked by reason. */
#define WS_BOOKS (1 + WS_PARTS + WS_REASONS)

/* Lengths of calls: octaves of equal parts. */
#define WS_PARTS_FINE 64  /* of an octave, for quantiles: within 0.8 % */
#define WS_PARTS_COARSE 8 /* for the ledgers of calls by length */
#define WS_OCTAVES 38     /* the first holds lengths below 64 ns, the last ends at 73 minutes */

struct ws_fine {
	u64 count[WS_PARTS_FINE];
};

struct ws_coarse {
	u64 count, wall;
	u64 books[WS_BOOKS];
};

/* Counts of one function. */
struct ws_tally {
	u64 entered;
	u64 ended;     /* with a length: all but the following */
	u64 by_jump;   /* of these: ended by a tail call */
	u64 by_catch;  /* of these: left by an exception, ended where it was caught */
	u64 left;      /* without a return that was seen: exception, longjmp, end of thread */
	u64 begun;     /* returned, but entered before we measured */
	u64 deep;      /* too deep in others to be timed */
	u64 longest;
	u64 wall;
};

/* How often probes of one kind were met on a CPU, by targets or not. */
struct ws_met_kind {
	u64 count;
	u64 cold; /* of these: for the first time since the thread got the CPU */
};

struct ws_met {
	struct ws_met_kind kind[16];
	u64 stay[16]; /* thread and stay on the CPU of the last one */
};

/* A call that was longer than the threshold. */
struct ws_slow {
	struct ws_head head;
	u64 begin, end;
	u64 wall; /* without the cost of the probes */
	u64 books[WS_BOOKS];
	u32 function, pid, tid, pad0;
	char comm[16];
};
enum { WS_EV_SLOW = 0x10100 };

_Static_assert(WS_SITES <= 16, "four bits in a cookie");
_Static_assert(sizeof(struct ws_jump) == 32, "mirrored in probes/abi.rs");
_Static_assert(sizeof(struct ws_coarse) == 160, "mirrored in probes/abi.rs");
_Static_assert(sizeof(struct ws_tally) == 72, "mirrored in probes/abi.rs");
_Static_assert(sizeof(struct ws_met) == 384, "mirrored in probes/abi.rs");
_Static_assert(sizeof(struct ws_slow) == 208, "mirrored in probes/abi.rs");
