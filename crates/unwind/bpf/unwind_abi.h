/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What the unwinder's C and Rust sides exchange. `src/native/abi.rs` mirrors every structure and
 * value; a test compares the two.
 */
#ifndef WALLSCOPE_UNWIND_ABI_H
#define WALLSCOPE_UNWIND_ABI_H

/* Most frames of one stack. A stack of exactly this many that ends in its root is whole. */
#ifndef UW_MAX_FRAMES
#define UW_MAX_FRAMES 1024
#endif
/* Entries of the cache from program counter to rule; a power of two. */
#define UW_CACHE_BITS 9
#define UW_CACHE_SIZE (1 << UW_CACHE_BITS)
/* Stack memory at hand: two chunks. */
#define UW_CHUNK_BYTES 4096
#define UW_BUF_BYTES (2 * UW_CHUNK_BYTES)

/* A frame: file id << 48 | exact << 47 | offset in the file. File id 0: the low 47 bits are an
 * address. Exact frames are the innermost one and those that a signal interrupted; the others
 * hold the return address itself. From UW_FILES on, what would be the file id tells another kind of
 * word: see hotspot_abi.h. */
#define UW_FRAME_FILE_SHIFT 48
#define UW_FRAME_EXACT (1ull << 47)
#define UW_FRAME_OFFSET ((1ull << 47) - 1)
#define UW_FILES 0xff00

/* How a stack ended. The values are also rule ids: see uw_rule. */
enum uw_end {
	UW_END_NONE = 0,	/* not yet */
	UW_END_ROOT = 1,
	UW_END_MAX_FRAMES = 2,
	UW_END_NO_MAPPING = 3,
	UW_END_NOT_LOADED = 4,
	UW_END_NO_INFO = 5,
	UW_END_BAD_RULE = 6,
	UW_END_UNREADABLE = 7,
	UW_END_NO_PROGRESS = 8,
};

/* Rule ids below UW_RULE_FIRST never reach the rules array: 0 is invalid memory, the others say
 * with which cause a stack ends at such code. */
#define UW_RULE_FIRST 16
#define UW_RULE_FP 16		/* rbp is a frame pointer: code made at run time, or described by nothing */
#define UW_RULE_SIGNAL 17	/* rsp points at the frame the kernel pushed for a signal */
#define UW_RULE_FP_ENTRY 18	/* …whose frame pointer is not yet, or no longer, its own */
#define UW_RULE_HOTSPOT 15	/* in the cache only: the frame is a blob of a HotSpot VM's code */
#define UW_RULE_FP_PUSHED 19	/* …which has pushed its caller's, and is about to set its own */
#define UW_RULE_RETURNS 20	/* code that says itself how it returns; rsp points at the address */
#define UW_RULE_USER 21		/* first id that describes what a file says */

/* How the canonical frame address (the caller's rsp) is found. */
enum uw_kind {
	UW_KIND_INVALID = 0,
	UW_KIND_REG = 1,	/* reg + cfa_off */
	UW_KIND_DEREF = 2,	/* *(reg + cfa_off) + cfa_add */
	UW_KIND_PLT = 3,	/* rsp + cfa_off, 8 more from byte cfa_add of each 16 on */
	UW_KIND_FP = 4,		/* like REG on rbp, by convention instead of by table */
	UW_KIND_SIGNAL = 5,
	UW_KIND_SPAWN = 6,	/* like REG; but where rax is 0, a new thread begins here */
	UW_KIND_GO = 7,		/* back to the stack of the goroutine that the thread serves */
	UW_KIND_OTHER = 8,	/* like REG; the caller's stack is another one, perhaps further down */
};

/* Where the return address is: at CFA - 8, or in the register of the low four bits. */
#define UW_RA_IN_REG 0x10

/* Registers that calls preserve, in the order of uw_rule.slot; their DWARF numbers are
 * 3 (rbx), 6 (rbp), 12, 13, 14, 15. */
#define UW_SAVED_REGS 6
#define UW_BIT_RBX 0x01
#define UW_BIT_RBP 0x02

/*
 * UW_KIND_GO: the goroutine that runs is at cfa_off from the thread's TLS base; in it at slot[0] its
 * thread, in that at slot[1] the goroutine it serves, in that at slot[2] the stack pointer that was
 * left, then the instruction pointer. Where slot[3] is set, that one is on the stack instead, and ends so far
 * above that stack pointer.
 * Where slot[4] is set, the goroutine that was left is so far above the stack pointer, too.
 */
struct uw_rule {
	s32 cfa_off;
	s16 cfa_add;
	u8 kind;		/* enum uw_kind */
	u8 reg;			/* DWARF number of the register that the CFA is found from */
	u8 ra;			/* 0, or UW_RA_IN_REG | DWARF number */
	u8 saved;		/* bit per saved register: it is in memory, at slot * 8 from the CFA… */
	u8 rbp_rel;		/* …or from this frame's rbp */
	u8 lost;		/* bit per saved register: its value cannot be recovered */
	s16 slot[UW_SAVED_REGS];
};

/* Executable mapping of a process: pc + delta = offset in the file. `gen` is written last and
 * invalidated first, so that an entry that is being replaced is never believed. */
struct uw_mapping {
	u64 start;
	u64 end;
	u64 delta;
	u32 file;		/* file id | UW_MAP_… << 16 */
	u32 gen;
};
#define UW_MAP_FP 0x10000	/* no table: step by frame pointer */
#define UW_MAP_PENDING 0x20000	/* the table is not loaded */
#define UW_MAP_NOTHING 0x40000	/* there is nothing to make a table of */

/* A process's mappings: entries first … first + count - 1 of uw_mappings, sorted by address. */
struct uw_proc {
	u32 first;
	u32 count;
	u32 gen;
	u32 voided; /* how many of them were found not to hold any more: they are pending */
};

/*
 * A file's table is an array of u64:
 *   [0]      number of blocks << 32 | first block; a block is 4 KiB of the file
 *   [1 …]    blocks + 1 numbers of u32, two to a word: the first row at or after each block
 *   then     rows, offset << 32 | rule id, sorted by offset; the last one is a UW_END_NO_INFO
 * so that a search looks at no more rows than a block has bytes.
 */
#define UW_BLOCK_SHIFT 12

struct uw_cached {
	u64 pc;
	u64 frame;
	u32 gen;
	u32 rule;
};

/* What comes out. */
struct uw_stack {
	u32 n;
	u16 end;		/* enum uw_end */
	u16 by_fp;		/* frames that were left by frame pointer, without a table */
	u64 hash;		/* of frames[0 … n-1] */
	u64 frames[UW_MAX_FRAMES];
};

#include "hotspot_abi.h"

/* Everything one unwinding needs. Lives in a map value that one user at a time owns; need not be
 * cleared between uses (the cache in it is what makes the next one fast). */
struct uw_work {
	/* registers of the current frame by DWARF number; `located`: regs[] holds the address of
	 * the value instead */
	u64 regs[16];
	u64 ip;
	u16 valid;
	u16 located;
	u8 exact;
	u8 stage;
	u8 by_fp;		/* the current frame was reached by frame pointer */
	u8 victim;		/* the chunk to replace next */
	/* process */
	u32 first;
	u32 count;
	u32 gen;
	u32 max_frames;
	/* current step */
	u32 rule;
	u32 lo;
	u32 hi;
	u32 no_code;		/* code cannot be read */
	u32 tgid;
	u32 voided; /* what is cached may not hold any more */
	u64 frame;
	u64 cfa;
	u64 want;		/* the address that is needed next, when uw_advance asks */
	u64 tls;		/* base of the thread's own variables, 0: not known; set by the caller */
	/* memory at hand */
	u64 base[2];
	u64 len[2];
	struct hs_walk hs;	/* in code of a HotSpot VM */
	struct uw_stack out;
	u64 buf[UW_BUF_BYTES / 8];
	struct uw_cached cache[UW_CACHE_SIZE];
};

/* Registers as the kernel keeps them for a task in user mode (struct pt_regs). */
struct uw_pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
		flags, sp, ss;
};

#endif
