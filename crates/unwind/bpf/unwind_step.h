/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Basics of the unwinder's state machine: results, stages, reads of the stack, mappings, rules, and the
 * emission of a frame. The walks of the single kinds of code (hotspot_core.h, signal_core.h, v8_core.h)
 * and the machine itself (unwind_core.h) build on it. */
#ifndef WALLSCOPE_UNWIND_STEP_H
#define WALLSCOPE_UNWIND_STEP_H

#include "unwind_abi.h"

enum { UW_MORE = 0, UW_NEED = 1, UW_DONE = 2, UW_SIDE = 3 };
enum {
	UW_STAGE_ENTER = 0,
	UW_STAGE_CFA = 1,
	UW_STAGE_LEAVE = 2,
	UW_STAGE_HOTSPOT = 3,
	/* UW_KIND_GO: the object that w->frame.cfa points to */
	UW_STAGE_GO_G = 4,
	UW_STAGE_GO_M = 5,
	UW_STAGE_GO_CURRENT = 6,
	UW_STAGE_GO_STACK = 7,
	UW_STAGE_NAMED = 8, /* like UW_STAGE_LEAVE, after the V8 function was emitted */
};

#define UW_RBX 3
#define UW_RBP 6
#define UW_RSP 7
#define UW_CALLEE_SAVED 0xf0c8 /* rbx, rbp, rsp, r12 … r15 */

/* A read that neither the verifier nor the compiler may assume anything about. */
#define UW_FRESH(x) (*(volatile typeof(x) *)&(x))

#define uw_inline static inline __attribute__((always_inline))

/* Converts bits of uw_rule to bits by DWARF number. */
uw_inline u32 uw_reg_bits(u32 m)
{
	return (m & 1) << 3 | (m & 2) << 5 | (m & 0x3c) << 10;
}

uw_inline int uw_finish(struct uw_work *w, u32 end)
{
	w->out.end = end;
	return UW_DONE;
}

/* Reads the word at addr if it is in the buffer. */
uw_inline int uw_word(struct uw_work *w, u64 addr, u64 *out)
{
	u64 off = addr - w->chunks.base[0];
	if (off < w->chunks.len[0]) {
		*out = w->buf[(off >> 3) & (UW_BUF_BYTES / 8 - 1)];
		return UW_MORE;
	}
	off = addr - w->chunks.base[1];
	if (off < w->chunks.len[1]) {
		*out = w->buf[((off >> 3) + UW_CHUNK_BYTES / 8) & (UW_BUF_BYTES / 8 - 1)];
		return UW_MORE;
	}
	w->want = addr;
	return UW_NEED;
}

/* A u32 of a table, which has two to a word. */
uw_inline u32 uw_half(u64 word, u32 index)
{
	return word >> 32 * (index & 1);
}

/* The last mapping that begins at or below `pc`. None: NULL, and w->search.rule tells why. */
uw_inline struct uw_mapping *uw_find_mapping(struct uw_work *w, u64 pc)
{
	u32 first = w->proc.first;

	w->search.lo = 0;
	w->search.hi = w->proc.count;
	for (int k = 0; k < 17; k++) {
		u32 lo = UW_FRESH(w->search.lo), hi = UW_FRESH(w->search.hi);
		if (lo >= hi)
			break;
		u32 mid = (lo + hi) >> 1;
		struct uw_mapping *m = uw_get_mapping(first + mid);
		if (!m)
			return NULL;
		if (m->start <= pc)
			w->search.lo = mid + 1;
		else
			w->search.hi = mid;
	}
	u32 after = UW_FRESH(w->search.lo);
	w->search.rule = UW_END_NO_MAPPING;
	return after ? uw_get_mapping(first + after - 1) : NULL;
}

/* Sets w->search.rule to that of offset `off` in a table, if it has one. False: the table cannot be read. */
uw_inline int uw_find_rule(struct uw_work *w, uw_table table, u64 off)
{
	u64 *word = uw_table_word(table, 0);
	if (!word)
		return 0;
	u32 blocks = *word >> 32, block = (u32)(off >> UW_BLOCK_SHIFT) - (u32)*word;
	if (block >= blocks)
		return 1;
	word = uw_table_word(table, 1 + (block >> 1));
	if (!word)
		return 0;
	u64 pair = *word;
	if (block & 1) {
		w->search.lo = pair >> 32;
		word = uw_table_word(table, 1 + ((block + 1) >> 1));
		if (!word)
			return 0;
		w->search.hi = *word;
	} else {
		w->search.lo = pair;
		w->search.hi = pair >> 32;
	}
	u32 rows = 1 + (blocks >> 1) + 1, within = off & ((1 << UW_BLOCK_SHIFT) - 1);
	for (int k = 0; k < UW_BLOCK_SHIFT + 1; k++) {
		u32 lo = UW_FRESH(w->search.lo), hi = UW_FRESH(w->search.hi);
		if (lo >= hi)
			break;
		u32 mid = (lo + hi) >> 1;
		word = uw_table_word(table, rows + (mid >> 1));
		if (!word)
			return 0;
		if (uw_half(*word, mid) >> UW_ROW_SHIFT <= within)
			w->search.lo = mid + 1;
		else
			w->search.hi = mid;
	}
	u32 after = UW_FRESH(w->search.lo);
	if (!after)
		return 1;
	after--;
	word = uw_table_word(table, rows + (after >> 1));
	if (!word)
		return 0;
	u32 rule = uw_half(*word, after) & ((1u << UW_ROW_SHIFT) - 1);
	if (rule)
		w->search.rule = rule;
	return 1;
}

/* Finds the file, offset and rule of the current pc. Sets w->frame.word (without the exact bit) and
 * w->search.rule. */
__attribute__((noinline)) int uw_lookup(struct uw_work *w)
{
	if (!w)
		return 0;
	u64 pc = w->regs.ip - !w->frame.exact;
	u32 gen = w->proc.gen;

	w->frame.word = pc & UW_FRAME_OFFSET;
	w->search.rule = UW_END_NOT_LOADED;
	if (!gen)
		return 0;

	struct uw_mapping *m = uw_find_mapping(w, pc);
	if (!m)
		return 0;
	u64 start = UW_FRESH(m->start), end = UW_FRESH(m->end), delta = UW_FRESH(m->delta);
	u32 file = UW_FRESH(m->file);
	if (UW_FRESH(m->gen) != gen) {
		w->search.rule = UW_END_NOT_LOADED;
		return 0;
	}
	if (pc < start || pc >= end)
		return 0;

	u32 id = file & 0xffff;
	u64 off = pc + delta;
	if (id)
		w->frame.word = (u64)id << UW_FRAME_FILE_SHIFT | (off & UW_FRAME_OFFSET);
	if (file & UW_MAP_PENDING) {
		w->search.rule = UW_END_NOT_LOADED;
		return 0;
	}
	if (file & UW_MAP_FP) {
		w->search.rule = UW_RULE_FP;
	} else {
		w->search.rule = UW_END_NO_INFO;
		if (!id || file & UW_MAP_NOTHING || off >> 32)
			return 0;
		uw_table table = uw_open_table(id);
		if (!table) {
			w->search.rule = UW_END_NOT_LOADED;
			return 0;
		}
		if (!uw_find_rule(w, table, off))
			return 0;
	}
	struct uw_cached *c =
		&w->cache[(pc * 0x9E3779B97F4A7C15ull) >> (64 - UW_CACHE_BITS) & (UW_CACHE_SIZE - 1)];
	c->pc = pc;
	c->gen = gen;
	c->frame = w->frame.word;
	c->rule = w->search.rule;
	return 0;
}

/* Appends a word to the stack and updates its hash. */
uw_inline int uw_put(struct uw_work *w, u64 word)
{
	u32 n = w->out.n;

	if (n >= UW_MAX_FRAMES || n >= w->max_frames)
		return uw_finish(w, UW_END_MAX_FRAMES);
	w->out.frames[n & (UW_MAX_FRAMES - 1)] = word;
	w->out.n = n + 1;
	u64 h = (w->out.hash ^ word) * 0xff51afd7ed558ccdull;
	w->out.hash = h ^ h >> 32;
	return UW_MORE;
}

#endif
