/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The native unwinder: a state machine that unwinds one frame at a time. Kernel programs and user
 * space run the same code.
 *
 * It reads no memory itself. uw_advance() returns one of:
 *
 *   UW_MORE   a few frames were unwound; call again
 *   UW_NEED   the stack word at w->want is missing: fetch a chunk that starts there, call again
 *   UW_SIDE   a word outside the stack is missing: fetch HS_SIDE_BYTES into w->hs, call again
 *   UW_DONE   the stack is complete or truncated; w->out.end says which
 *
 * So each way to read memory (in an interrupt, sleepable, from another task, from a saved window)
 * needs only a few lines. The verifier checks the logic once, because uw_advance and uw_lookup are
 * global functions.
 *
 * A stack is complete only in three cases. The unwind information says that the return address is
 * undefined. A chain of frame pointers ends with zero. Or no call left the return address: it is
 * zero, or it points into undescribed code behind no call instruction. makecontext, fcontext and
 * thread starts write such addresses to the bottom of a stack.
 *
 * The includer defines u8 … u64, s16, s32, and:
 *
 *   uw_get_rule(id), uw_get_mapping(index)   pointer or NULL
 *   uw_open_table(file)                      handle or NULL
 *   uw_table_word(handle, index)             pointer to u64 or NULL
 *   uw_get_proc(tgid), hs_get_proc(tgid)     pointer or NULL
 */
#ifndef WALLSCOPE_UNWIND_CORE_H
#define WALLSCOPE_UNWIND_CORE_H

#include "unwind_step.h"

#include "hotspot_core.h"
#include "v8_core.h"

/* Whether the eight bytes before a return address end with a call. The highest byte is the last. */
uw_inline int uw_is_call(u64 code)
{
	u8 b1 = code >> 56, b2 = code >> 48, b3 = code >> 40, b4 = code >> 32;
	u8 b5 = code >> 24, b6 = code >> 16, b7 = code >> 8;

	/* call rel32 */
	if (b5 == 0xe8)
		return 1;
	/* call through a register, or through memory without displacement */
	if (b2 == 0xff && ((b1 & 0xf8) == 0xd0 || ((b1 & 0xf8) == 0x10 && (b1 & 6) != 4)))
		return 1;
	/* the same with an index; with an 8-bit displacement; with both */
	if (b3 == 0xff && (b2 == 0x14 || ((b2 & 0xf8) == 0x50 && b2 != 0x54)))
		return 1;
	if (b4 == 0xff && b3 == 0x54)
		return 1;
	/* with a 32-bit displacement, from rip, and with an index too */
	if (b6 == 0xff && (b5 == 0x15 || ((b5 & 0xf8) == 0x90 && b5 != 0x94)))
		return 1;
	return b7 == 0xff && (b6 == 0x94 || b6 == 0x14);
}

/* Ends a stack in undescribed code. If a call instruction stands before the return address, the
 * stack is truncated. If none does, nothing called this code: the frame is the root, at this exact
 * address. */
uw_inline int uw_check_caller(struct uw_work *w)
{
	u64 at = (w->regs.ip - 8) & ~7ull, code, more;
	u32 shift = (w->regs.ip & 7) * 8;

	if (uw_word(w, at, &code))
		return UW_NEED;
	if (shift) {
		if (uw_word(w, at + 8, &more))
			return UW_NEED;
		code = code >> shift | more << (64 - shift);
	}
	if (!uw_is_call(code)) {
		w->frame.exact = 1;
		w->frame.word++;
		w->search.rule = UW_END_ROOT;
	}
	return UW_MORE;
}

/* Records the current frame and finds its rule. */
uw_inline int uw_enter(struct uw_work *w)
{
	u64 pc = w->regs.ip - !w->frame.exact;
	struct uw_cached *c =
		&w->cache[(pc * 0x9E3779B97F4A7C15ull) >> (64 - UW_CACHE_BITS) & (UW_CACHE_SIZE - 1)];
	/* Code that keeps frame pointers by convention only supports neither conclusion below. */
	int described = !w->frame.exact && !w->frame.by_fp;

	if (described && !w->regs.ip)
		return uw_finish(w, UW_END_ROOT);
	if (c->pc == pc && c->gen == w->proc.gen && w->proc.gen && !w->proc.voided &&
	    c->rule != UW_RULE_HOTSPOT) {
		w->frame.word = c->frame;
		w->search.rule = c->rule;
	} else {
		uw_lookup(w);
	}
	if (described && w->search.rule == UW_END_NO_INFO && !w->no_code && uw_check_caller(w))
		return UW_NEED;
	return uw_put(w, w->frame.exact ? w->frame.word | UW_FRAME_EXACT : w->frame.word + 1);
}

/* Finds the CFA of the current frame: w->frame.cfa. */
uw_inline int uw_find_cfa(struct uw_work *w, struct uw_rule *r)
{
	u32 reg = r->reg & 15, bit = 1u << reg;
	u64 v, cfa;

	if (!(w->regs.valid & bit))
		return uw_finish(w, UW_END_BAD_RULE);
	v = w->regs.value[reg];
	if (w->regs.located & bit) {
		if (v & 7)
			return uw_finish(w, UW_END_NO_PROGRESS);
		if (uw_word(w, v, &v))
			return UW_NEED;
		w->regs.value[reg] = v;
		w->regs.located &= ~bit;
	}
	if (r->kind == UW_KIND_FP && !v) {
		/* The outermost function of a chain of frame pointers finds zero above it. A zero
		 * that no such chain passed down proves nothing. */
		return uw_finish(w, w->frame.by_fp ? UW_END_ROOT : UW_END_NO_INFO);
	}
	if (r->kind == UW_KIND_SPAWN) {
		if (!w->frame.exact || !(w->regs.valid & 1) || (w->regs.located & 1))
			return uw_finish(w, UW_END_NO_INFO);
		if (!w->regs.value[0])
			return uw_finish(w, UW_END_ROOT);
	}
	cfa = v + r->cfa_off;
	if (r->kind == UW_KIND_DEREF || r->kind == UW_KIND_SIGNAL) {
		if (cfa & 7)
			return uw_finish(w, UW_END_NO_PROGRESS);
		if (uw_word(w, cfa, &cfa))
			return UW_NEED;
		cfa += r->cfa_add;
	} else if (r->kind == UW_KIND_PLT) {
		if ((w->regs.ip & 15) >= (u64)r->cfa_add)
			cfa += 8;
	}
	w->frame.cfa = cfa;
	w->stage = UW_STAGE_LEAVE;
	return UW_MORE;
}

/* Decides by the current instruction whether rbp belongs to the interrupted function. In a prologue
 * or epilogue it does not, and the caller would be skipped. Functions that never make a frame
 * cannot be recognised. */
uw_inline int uw_check_prologue(struct uw_work *w)
{
	u64 at = w->regs.ip & ~7ull, code, more = 0;
	u32 shift = (w->regs.ip & 7) * 8;

	if (uw_word(w, at, &code))
		return UW_NEED;
	if (shift > 32 && uw_word(w, at + 8, &more))
		return UW_NEED;
	code >>= shift;
	if (shift > 32)
		code |= more << (64 - shift);
	u32 four = code;
	u8 one = code;
	/* push %rbp; ret; ret n; endbr64 */
	if (one == 0x55 || one == 0xc3 || one == 0xc2 || four == 0xfa1e0ff3)
		w->search.rule = UW_RULE_FP_ENTRY;
	/* mov %rsp, %rbp in both encodings */
	else if ((four & 0xffffff) == 0xe58948 || (four & 0xffffff) == 0xec8b48)
		w->search.rule = UW_RULE_FP_PUSHED;
	return UW_MORE;
}

/* Recognises code without a frame pointer that only returns: add $8, %rsp; ret, as in CPython's
 * perf trampolines. Other code, and code that cannot be read, is taken to keep rbp. */
uw_inline int uw_check_epilogue(struct uw_work *w)
{
	u64 code;

	if (hs_word(w, w->regs.ip, &code)) {
		/* Ask once. If the bytes are still missing then, they cannot be read. */
		w->hs.optional = !w->hs.optional;
		return w->hs.optional ? UW_SIDE : UW_MORE;
	}
	w->hs.optional = 0;
	u32 by = code >> 24 & 0xff;
	/* add $by, %rsp; ret */
	if ((code & 0xffffff) == 0xc48348 && (code >> 32 & 0xff) == 0xc3 && by < 0x80 && !(by & 7)) {
		w->regs.value[UW_RSP] += by;
		w->search.rule = UW_RULE_RETURNS;
	}
	return UW_MORE;
}

#include "signal_core.h"

/* Restores the caller's registers. */
uw_inline int uw_leave(struct uw_work *w, struct uw_rule *r)
{
	u64 cfa = w->frame.cfa, old_bp = w->regs.value[UW_RBP], bp = old_bp, ra;
	u32 saved = r->saved, rel = r->rbp_rel;

	if (r->kind == UW_KIND_SIGNAL)
		return uw_leave_signal(w);
	if (rel) {
		/* Slots relative to rbp hold while rbp points into this frame. For functions that
		 * realign the stack, compilers keep these rules until the end, where rbp and the
		 * other registers are popped already. */
		if (!(w->regs.valid & 1u << UW_RBP))
			return uw_finish(w, UW_END_BAD_RULE);
		if (old_bp < w->regs.value[UW_RSP] || old_bp >= cfa) {
			if (r->kind != UW_KIND_REG || !w->frame.exact)
				return uw_finish(w, UW_END_NO_PROGRESS);
			saved &= ~rel;
		}
	}
	if (saved & UW_BIT_RBP) {
		u64 at = (rel & UW_BIT_RBP ? old_bp : cfa) + 8 * (s64)r->slot[1];
		if (at & 7)
			return uw_finish(w, UW_END_NO_PROGRESS);
		if (uw_word(w, at, &bp))
			return UW_NEED;
	}
	if (r->ra) {
		u32 reg = r->ra & 15;
		if (!w->frame.exact || w->regs.located & 1u << reg)
			return uw_finish(w, UW_END_BAD_RULE);
		ra = w->regs.value[reg];
		if (cfa < w->regs.value[UW_RSP])
			return uw_finish(w, UW_END_NO_PROGRESS);
	} else {
		/* Each frame ends above its callee. An unchanged stack pointer would be a loop. */
		if ((cfa <= w->regs.value[UW_RSP] && r->kind != UW_KIND_OTHER) || cfa & 7)
			return uw_finish(w, UW_END_NO_PROGRESS);
		if (uw_word(w, cfa - 8, &ra))
			return UW_NEED;
	}

	u32 got = uw_reg_bits(saved), lost = uw_reg_bits(r->lost);
	if (saved & 0x01)
		w->regs.value[3] = (rel & 0x01 ? old_bp : cfa) + 8 * (s64)r->slot[0];
	if (saved & 0x04)
		w->regs.value[12] = (rel & 0x04 ? old_bp : cfa) + 8 * (s64)r->slot[2];
	if (saved & 0x08)
		w->regs.value[13] = (rel & 0x08 ? old_bp : cfa) + 8 * (s64)r->slot[3];
	if (saved & 0x10)
		w->regs.value[14] = (rel & 0x10 ? old_bp : cfa) + 8 * (s64)r->slot[4];
	if (saved & 0x20)
		w->regs.value[15] = (rel & 0x20 ? old_bp : cfa) + 8 * (s64)r->slot[5];
	w->regs.value[UW_RBP] = bp;
	w->regs.value[UW_RSP] = cfa;
	w->regs.valid = (w->regs.valid & UW_CALLEE_SAVED & ~lost) | got | 1u << UW_RSP;
	/* rbp has been read already. The other registers are read only if a later frame needs
	 * them. */
	w->regs.located = (w->regs.located | got) & w->regs.valid & ~(1u << UW_RBP | 1u << UW_RSP);
	w->regs.ip = ra;
	w->frame.exact = 0;
	w->frame.by_fp = r->kind == UW_KIND_FP;
	w->out.by_fp += w->frame.by_fp;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

#include "go_core.h"

/* Frames per call of uw_advance: the call itself is a large part of the cost of a frame. */
#define UW_FRAMES_PER_CALL 4

/* Unwinds up to UW_FRAMES_PER_CALL frames; see the top of this file. */
__attribute__((noinline)) int uw_advance(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	for (int k = 0; k < UW_FRAMES_PER_CALL; k++) {
		int e;
		if (w->stage == UW_STAGE_ENTER) {
			if (hs_owns(w, w->regs.ip - !w->frame.exact)) {
				w->hs.stage = HS_STAGE_START;
				w->stage = UW_STAGE_HOTSPOT;
			} else {
				e = uw_enter(w);
				if (e)
					return e;
				w->stage = UW_STAGE_CFA;
			}
		}
		if (w->stage == UW_STAGE_HOTSPOT) {
			e = hs_advance(w);
			if (e)
				return e;
			continue;
		}
		if (w->search.rule == UW_RULE_FP && w->stage == UW_STAGE_CFA) {
			e = UW_MORE;
			if (js_may_enter(w)) {
				e = js_check_entry(w);
				if (e)
					return e;
				if (w->stage == UW_STAGE_ENTER)
					continue;
			}
			if (!w->frame.exact && !w->hs.proc.js.shared)
				e = uw_check_epilogue(w);
			else if (w->frame.exact && !w->no_code)
				e = uw_check_prologue(w);
			if (!e && w->frame.exact && !w->no_code && w->hs.proc.js.shared)
				e = js_check_frame(w);
			if (e)
				return e;
		}
		u32 id = UW_FRESH(w->search.rule);
		if (id < UW_RULE_FIRST)
			return uw_finish(w, id);
		struct uw_rule *r = uw_get_rule(id);
		if (!r || r->kind == UW_KIND_INVALID)
			return uw_finish(w, UW_END_BAD_RULE);
		if (r->kind == UW_KIND_GO) {
			e = uw_leave_go_stack(w);
			if (e)
				return e;
			continue;
		}
		if (w->stage == UW_STAGE_CFA) {
			e = uw_find_cfa(w, r);
			if (e)
				return e;
		}
		if (w->hs.proc.js.shared && w->stage == UW_STAGE_LEAVE && js_keeps_frames(id)) {
			e = js_put(w);
			if (e)
				return e;
			w->stage = UW_STAGE_NAMED;
		}
		e = uw_leave(w, r);
		if (e)
			return e;
	}
	return UW_MORE;
}

/* Starts an unwind. regs, ip and valid are already set. */
uw_inline void uw_begin(struct uw_work *w, u32 tgid, u32 max_frames)
{
	struct uw_proc *p = uw_get_proc(tgid);

	w->proc.gen = w->proc.count = w->proc.first = w->proc.voided = 0;
	if (p) {
		w->proc.first = p->first;
		w->proc.count = p->count;
		w->proc.gen = p->gen;
		w->proc.voided = p->voided;
	}
	w->regs.located = 0;
	w->regs.valid = 0xffff;
	w->frame.exact = 1;
	w->frame.by_fp = 0;
	w->frame.js_entry = 0;
	w->stage = UW_STAGE_ENTER;
	w->chunks.victim = 0;
	w->no_code = 0;
	w->max_frames = max_frames;
	hs_begin(w, tgid);
	w->chunks.len[0] = w->chunks.len[1] = 0;
	w->out.n = 0;
	w->out.end = UW_END_NONE;
	w->out.by_fp = 0;
	w->out.hash = 0x9E3779B97F4A7C15ull;
}

uw_inline void uw_set_regs(struct uw_work *w, const struct uw_pt_regs *r)
{
	w->regs.value[0] = r->ax;
	w->regs.value[1] = r->dx;
	w->regs.value[2] = r->cx;
	w->regs.value[3] = r->bx;
	w->regs.value[4] = r->si;
	w->regs.value[5] = r->di;
	w->regs.value[6] = r->bp;
	w->regs.value[7] = r->sp;
	w->regs.value[8] = r->r8;
	w->regs.value[9] = r->r9;
	w->regs.value[10] = r->r10;
	w->regs.value[11] = r->r11;
	w->regs.value[12] = r->r12;
	w->regs.value[13] = r->r13;
	w->regs.value[14] = r->r14;
	w->regs.value[15] = r->r15;
	w->regs.ip = r->ip;
}

#endif
