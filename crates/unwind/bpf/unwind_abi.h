/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Structures and values that the unwinder's C and Rust sides share. `src/native/abi.rs` mirrors
 * each of them; a test compares the two.
 */
#ifndef WALLSCOPE_UNWIND_ABI_H
#define WALLSCOPE_UNWIND_ABI_H

/* Maximum frames of one stack. A stack of exactly this length that ends at its root is complete. */
#ifndef UW_MAX_FRAMES
#define UW_MAX_FRAMES 1024
#endif
/* Entries of the cache from program counter to rule: a power of two. */
#define UW_CACHE_BITS 9
#define UW_CACHE_SIZE (1 << UW_CACHE_BITS)
/* Bytes of stack memory in the buffer: two chunks. */
#define UW_CHUNK_BYTES 4096
#define UW_BUF_BYTES (2 * UW_CHUNK_BYTES)

/* A frame is file id << 48 | exact << 47 | offset in the file. With file id 0, the low 47 bits are
 * an address. The innermost frame and frames that a signal interrupted are exact. Every other frame
 * holds its return address. File ids from UW_FILES on mark words that are not frames: see
 * hotspot_abi.h. */
#define UW_FRAME_FILE_SHIFT 48
#define UW_FRAME_EXACT (1ull << 47)
#define UW_FRAME_OFFSET ((1ull << 47) - 1)
#define UW_FILES 0xff00

/* Why a stack ended. The values are also rule ids: see uw_rule. */
enum uw_end {
	UW_END_NONE = 0,	/* still unwinding */
	UW_END_ROOT = 1,
	UW_END_MAX_FRAMES = 2,
	UW_END_NO_MAPPING = 3,
	UW_END_NOT_LOADED = 4,
	UW_END_NO_INFO = 5,
	UW_END_BAD_RULE = 6,
	UW_END_UNREADABLE = 7,
	UW_END_NO_PROGRESS = 8,
};

/* Rule ids below UW_RULE_FIRST have no entry in the rules array. 0 is invalid; each other id is the
 * uw_end with which a stack ends at that code. */
#define UW_RULE_FIRST 16
#define UW_RULE_FP 16		/* rbp is a frame pointer: run-time code, or code that no table describes */
#define UW_RULE_SIGNAL 17	/* rsp points at the signal frame that the kernel pushed */
#define UW_RULE_FP_ENTRY 18	/* like UW_RULE_FP, where rbp is still, or again, the caller's */
#define UW_RULE_HOTSPOT 15	/* in the cache only: uw_cached.frame is a blob of HotSpot code */
#define UW_RULE_FP_PUSHED 19	/* like UW_RULE_FP, between push %rbp and mov %rsp, %rbp */
#define UW_RULE_RETURNS 20	/* the instruction is a return; rsp points at the return address */
#define UW_RULE_FP_POPPED 21	/* like UW_RULE_FP_ENTRY, with the return address in r10 */
#define UW_RULE_USER 22		/* first id of a rule that comes from a file's unwind information */

/* How to compute the canonical frame address (CFA), which is the caller's rsp. */
enum uw_kind {
	UW_KIND_INVALID = 0,
	UW_KIND_REG = 1,	/* reg + cfa_off */
	UW_KIND_DEREF = 2,	/* *(reg + cfa_off) + cfa_add */
	UW_KIND_PLT = 3,	/* rsp + cfa_off, plus 8 from byte cfa_add of each 16-byte PLT entry on */
	UW_KIND_FP = 4,		/* like REG on rbp, by convention, not from a table */
	UW_KIND_SIGNAL = 5,
	UW_KIND_SPAWN = 6,	/* like REG; if rax is 0, a new thread starts here and the stack ends */
	UW_KIND_GO = 7,		/* switch from the thread's stack to the stack of its current goroutine */
	UW_KIND_OTHER = 8,	/* like REG; the caller runs on another stack, which may lie lower */
};

/* Location of the return address: at CFA - 8, or in the register that the low four bits name. */
#define UW_RA_IN_REG 0x10

/* Callee-saved registers, in the order of uw_rule.slot. Their DWARF numbers are 3 (rbx), 6 (rbp),
 * 12, 13, 14, 15. */
#define UW_SAVED_REGS 6
#define UW_BIT_RBX 0x01
#define UW_BIT_RBP 0x02

/*
 * UW_KIND_GO uses the fields as offsets.
 *
 *   cfa_off   from the thread's TLS base to the running goroutine (g)
 *   slot[0]   from that g to its thread (m)
 *   slot[1]   from m to the goroutine that m serves
 *   slot[2]   from that goroutine to its saved stack pointer, then its instruction pointer
 *   slot[3]   if not 0: the saved return address ends this far above that stack pointer
 *   slot[4]   if not 0: the goroutine that was left, relative to the current stack pointer
 */
struct uw_rule {
	s32 cfa_off;
	s16 cfa_add;
	u8 kind;		/* enum uw_kind */
	u8 reg;			/* DWARF number of the base register of the CFA */
	u8 ra;			/* 0, or UW_RA_IN_REG | DWARF number */
	u8 saved;		/* bit per callee-saved register: stored at slot * 8 from the CFA… */
	u8 rbp_rel;		/* …or from this frame's rbp, where this bit is set */
	u8 lost;		/* bit per callee-saved register: its value cannot be recovered */
	s16 slot[UW_SAVED_REGS];
};

/* An executable mapping of a process: pc + delta = offset in the file. The writer invalidates `gen`
 * first and writes it last, so a reader rejects an entry that is being replaced. */
struct uw_mapping {
	u64 start;
	u64 end;
	u64 delta;
	u32 file;		/* file id | UW_MAP_… << 16 */
	u32 gen;
};
#define UW_MAP_FP 0x10000	/* no table: unwind by frame pointer */
#define UW_MAP_PENDING 0x20000	/* the table is not loaded yet */
#define UW_MAP_NOTHING 0x40000	/* the file has nothing to build a table from */

/* The mappings of a process: entries first … first + count - 1 of uw_mappings, sorted by
 * address. */
struct uw_proc {
	u32 first;
	u32 count;
	u32 gen;
	u32 voided; /* entries marked pending because their addresses were unmapped */
};

/*
 * A file's table is an array of u64:
 *
 *   [0]      number of blocks << 32 | first block; a block is 4 KiB of the file
 *   [1 …]    blocks + 1 values of u32, two to a word: the first row at or after each block
 *   then     rows of u32, two to a word: offset in the block << UW_ROW_SHIFT | rule id, sorted by
 *            offset; the last row is UW_END_NO_INFO
 *
 * A search therefore covers at most as many rows as a block has bytes. A block without a row before
 * an offset has the rule of the last row before the block.
 */
#define UW_BLOCK_SHIFT 12
#define UW_ROW_SHIFT (32 - UW_BLOCK_SHIFT)

struct uw_cached {
	u64 pc;
	u64 frame;
	u32 gen;
	u32 rule;
};

/* The result of one unwind. */
struct uw_stack {
	u32 n;
	u16 end;		/* enum uw_end */
	u16 by_fp;		/* frames that were left by frame pointer, without a table */
	u64 hash;		/* of frames[0 … n-1] */
	u64 frames[UW_MAX_FRAMES];
};

#include "hotspot_abi.h"

/* Registers of the current frame by DWARF number. */
struct uw_regs {
	u64 value[16];
	u64 ip;
	u16 valid;		/* bit per register: it is known */
	u16 located;		/* bit per register: value[] holds the address of the value */
	u32 pad0;
};

/* The current frame. */
struct uw_frame {
	u64 word;		/* as it is emitted */
	u64 cfa;
	u64 js_fp;		/* V8 code that has left its frame: where that was; 0: not made yet */
	u8 exact;
	u8 by_fp;		/* it was reached by frame pointer */
	u8 js_entry;		/* the second frame is V8's baseline code at its entry; 0: no */
	u8 pad0[5];
};

/* Search for the rule of the current frame: row numbers lo … hi of the table. */
struct uw_search {
	u32 rule;
	u32 lo;
	u32 hi;
};

/* Chunks of stack memory in uw_work.buf. */
struct uw_chunks {
	u64 base[2];
	u64 len[2];
	u64 victim;		/* the chunk to replace next */
};

/* State of one unwind. It lives in a map value that has one user at a time. It needs no clearing
 * between uses: its cache makes the next unwind faster. */
struct uw_work {
	struct uw_regs regs;
	struct uw_frame frame;
	struct uw_proc proc;	/* mappings of the process; void ones: do not trust the cache */
	u32 tgid;
	u32 max_frames;
	struct uw_search search;
	u32 stage;
	u32 no_code;		/* instructions cannot be read */
	u64 want;		/* the address that uw_advance needs next */
	u64 tls;		/* the thread's TLS base; 0: unknown; set by the caller */
	struct uw_chunks chunks;
	struct hs_walk hs;	/* state of the walk through HotSpot code */
	struct uw_stack out;
	u64 buf[UW_BUF_BYTES / 8];
	struct uw_cached cache[UW_CACHE_SIZE];
};

/* User-mode registers in the kernel's layout (struct pt_regs). */
struct uw_pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
		flags, sp, ss;
};
_Static_assert(sizeof(struct uw_pt_regs) == 168, "as the kernel writes it");

#endif
