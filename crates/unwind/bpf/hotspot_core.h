/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Unwinds frames of HotSpot code: interpreted methods, compiled methods and stubs. Part of the
 * unwinder's state machine, which enters here when a pc lies in the VM's code. Names are not read
 * here.
 *
 * The VM has no unwind tables. A segment map tells where the blob around a pc begins, and the
 * blob's header gives the frame size. Then:
 *
 *   interpreted   rbp points at a frame of fixed layout: method, bytecode, caller's stack pointer
 *   compiled      the frame size; in prologue and epilogue the instructions decide
 *   stub          the frame size, else rbp, else only a return address
 *
 * The caller of a compiled method is also VM code, which checks each result.
 *
 * The target runs while we read it. An impossible value ends the stack.
 */
#ifndef WALLSCOPE_HOTSPOT_CORE_H
#define WALLSCOPE_HOTSPOT_CORE_H

#define HS_STAGE_HEAP 0
#define HS_STAGE_SEGMENT 1
#define HS_STAGE_BLOB 2
#define HS_STAGE_NAME 3
#define HS_STAGE_CODE 4
#define HS_STAGE_LEAVE 5
#define HS_STAGE_ADAPTER 6
#define HS_STAGE_BY_RBP 7
#define HS_STAGE_ONE_WORD 8
#define HS_STAGE_TWO_WORDS 9
#define HS_STAGE_UNSAVED 10
#define HS_STAGE_START 11

/* The first four letters of each kind of blob name. */
#define HS_NMETHOD 0x74656d6e     /* nmethod */
#define HS_NATIVE 0x6974616e      /* native nmethod */
#define HS_INTERPRETER 0x65746e49 /* Interpreter */
#define HS_VTABLE 0x62617476      /* vtable chunks */
#define HS_I2C 0x2f433249         /* I2C/C2I adapters */
#define HS_HANDLES 0x6874654d     /* MethodHandles adapters */

/* Maximum steps through the segment map to the start of a blob; a step covers at most 254
 * segments. */
#define HS_MAX_SEGMENT_STEPS 24
/* Maximum words that compiled code may have pushed beyond its frame. */
#define HS_MAX_PUSHED 6
/* Layout of an interpreter frame, in words from rbp. */
#define HS_BCP -8
#define HS_METHOD -3
#define HS_SENDER_SP -1
/* Maximum bytes of an interpreter frame; its locals lie above it and do not count. */
#define HS_MAX_FRAME_BYTES 65536

uw_inline u32 hs_owns(struct uw_work *w, u64 pc)
{
	return pc - w->hs.proc.low < w->hs.proc.high - w->hs.proc.low;
}

/* Reads the word at addr from the memory outside the stack, if it is in the buffer. */
uw_inline int hs_word(struct uw_work *w, u64 addr, u64 *out)
{
	u64 off = addr - w->hs.side.at;

	if (w->hs.side.len >= 8 && off <= w->hs.side.len - 8) {
		/* The word may start at any byte: the buffer is one word longer than the mask
		 * admits. */
		*out = *(u64 *)((u8 *)w->hs.side.words + (off & (HS_SIDE_BYTES - 1)));
		return UW_MORE;
	}
	w->want = addr;
	return UW_SIDE;
}

uw_inline struct uw_cached *hs_cached(struct uw_work *w, u64 pc)
{
	return &w->cache[(pc * 0x9E3779B97F4A7C15ull) >> (64 - UW_CACHE_BITS) &
			 (UW_CACHE_SIZE - 1)];
}

/* Starts on the frame at w->regs.ip. First tries the blob in which the cache saw this pc. */
uw_inline int hs_start(struct uw_work *w)
{
	u64 pc = w->regs.ip - !w->frame.exact;
	struct uw_cached *c = hs_cached(w, pc);

	w->hs.from_cache = c->pc == pc && c->gen == w->proc.gen && w->proc.gen && c->rule == UW_RULE_HOTSPOT;
	w->hs.blob.at = c->frame;
	w->hs.stage = w->hs.from_cache ? HS_STAGE_BLOB : HS_STAGE_HEAP;
	return UW_MORE;
}

uw_inline int hs_find_heap(struct uw_work *w)
{
	u64 pc = w->regs.ip - !w->frame.exact;

	for (int i = 0; i < HS_MAX_HEAPS; i++) {
		struct hs_heap *h = &w->hs.proc.heap[i];

		if (pc - h->low >= h->high - h->low)
			continue;
		w->hs.search.low = h->low;
		w->hs.search.segmap = h->segmap;
		w->hs.search.segment = (pc - h->low) >> (w->hs.proc.segment_shift & 31);
		w->hs.stage = HS_STAGE_SEGMENT;
		return UW_MORE;
	}
	return uw_finish(w, UW_END_NO_INFO);
}

/* Follows the segment map to the blob. Each byte gives the segments to go back; 0 marks a blob's
 * start and 0xff an unused segment. */
uw_inline int hs_find_blob(struct uw_work *w)
{
	for (int k = 0; k < HS_MAX_SEGMENT_STEPS; k++) {
		u64 at = w->hs.search.segmap + UW_FRESH(w->hs.search.segment);
		u64 off = at - w->hs.side.at;

		if (off >= w->hs.side.len) {
			w->want = at & ~(HS_SIDE_BYTES - 1ull);
			return UW_SIDE;
		}
		u8 back = ((u8 *)w->hs.side.words)[off & (HS_SIDE_BYTES - 1)];
		if (!back) {
			w->hs.blob.at = w->hs.search.low +
				     (w->hs.search.segment << (w->hs.proc.segment_shift & 31)) +
				     w->hs.proc.header;
			w->hs.stage = HS_STAGE_BLOB;
			return UW_MORE;
		}
		if (back == 0xff || back > w->hs.search.segment)
			break;
		w->hs.search.segment -= back;
	}
	return uw_finish(w, UW_END_NO_INFO);
}

uw_inline int hs_read_blob(struct uw_work *w)
{
	struct hs_proc *p = &w->hs.proc;
	u64 blob = w->hs.blob.at, used, begin, end, deopt, name, size, complete, orig, id;
	u64 pc = w->regs.ip - !w->frame.exact;
	struct uw_cached *c;

	/* The first read fetches all of them. The word before the blob tells whether it is in
	 * use. */
	if (hs_word(w, blob - 8, &used) || hs_word(w, blob + p->blob.name, &name) ||
	    hs_word(w, blob + p->blob.begin, &begin) || hs_word(w, blob + p->blob.end, &end) ||
	    hs_word(w, blob + p->blob.frame_size, &size) ||
	    hs_word(w, blob + p->blob.complete, &complete) ||
	    hs_word(w, blob + p->method.deopt, &deopt) ||
	    hs_word(w, blob + p->method.orig_pc, &orig) || hs_word(w, blob + p->method.id, &id))
		return UW_SIDE;
	if (p->offsets) {
		begin = blob + (u32)begin;
		end = blob + (u32)end;
		deopt = blob + (u32)deopt;
	}
	/* The block header begins with a length: of four bytes in this word, or of eight before
	 * it. */
	if (p->header == 8)
		used >>= 32;
	if (!(used & 0xff) || pc < begin || pc >= end) {
		if (!w->hs.from_cache)
			return uw_finish(w, UW_END_NO_INFO);
		w->hs.from_cache = 0;
		w->hs.stage = HS_STAGE_HEAP;
		return UW_MORE;
	}
	if (!w->hs.from_cache) {
		c = hs_cached(w, pc);
		c->pc = pc;
		c->gen = w->proc.gen;
		c->frame = blob;
		c->rule = UW_RULE_HOTSPOT;
	}
	w->hs.blob.name = name;
	w->hs.blob.begin = begin;
	w->hs.blob.deopt = deopt;
	/* Some stubs give -1: they are unwound by rbp. */
	w->hs.blob.frame_size = (u32)size > HS_MAX_FRAME_BYTES / 8 ? 0 : (u32)size * 8;
	/* Negative: the frame is never complete. */
	w->hs.blob.complete = (u16)complete > 0x7fff ? ~0u : (u16)complete;
	w->hs.blob.orig_pc = orig;
	w->hs.blob.id = id;
	w->hs.stage = HS_STAGE_NAME;
	return UW_MORE;
}

/* Tells the blob's kind from its name, one of a few constants of the VM's library. */
uw_inline int hs_read_name(struct uw_work *w)
{
	struct hs_name *n = &w->hs.names[w->hs.blob.name >> 3 & (HS_NAMES - 1)];
	u64 letters;

	if (n->at != w->hs.blob.name || n->tgid != w->tgid) {
		if (hs_word(w, w->hs.blob.name, &letters))
			return UW_SIDE;
		n->at = w->hs.blob.name;
		n->tgid = w->tgid;
		n->kind = letters;
	}
	w->hs.blob.kind = n->kind;
	w->hs.stage = HS_STAGE_CODE;
	return UW_MORE;
}

/* Emits the process, once a stack. */
uw_inline int hs_put_pid(struct uw_work *w)
{
	if (w->hs.pid_emitted)
		return UW_MORE;
	w->hs.pid_emitted = 1;
	return uw_put(w, HS_WORD_PID | w->tgid);
}

/* Emits the current frame, with its compile id if it is a compiled method. */
uw_inline int hs_put_code(struct uw_work *w, u32 compiled)
{
	u64 frame = w->regs.ip & UW_FRAME_OFFSET;

	if (hs_put_pid(w) || uw_put(w, w->frame.exact ? frame | UW_FRAME_EXACT : frame))
		return UW_DONE;
	return compiled ? uw_put(w, HS_WORD_CODE | w->hs.blob.id) : UW_MORE;
}

/* Steps to the caller with the given registers. */
uw_inline int hs_step_to(struct uw_work *w, u64 sp, u64 bp, u64 ip)
{
	if (sp <= w->regs.value[UW_RSP] || sp & 7)
		return uw_finish(w, UW_END_NO_PROGRESS);
	w->regs.value[UW_RSP] = sp;
	w->regs.value[UW_RBP] = bp;
	/* Java code preserves no other register. */
	w->regs.valid = 1u << UW_RBP | 1u << UW_RSP;
	w->regs.located = 0;
	w->regs.ip = ip;
	w->frame.exact = 0;
	w->frame.by_fp = 0;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

uw_inline int hs_leave_interpreted(struct uw_work *w)
{
	u64 fp = w->regs.value[UW_RBP], bcp, method, sp, bp, ip;

	if (fp & 7 || fp <= w->regs.value[UW_RSP] || fp - w->regs.value[UW_RSP] > HS_MAX_FRAME_BYTES ||
	    !(w->regs.valid & 1u << UW_RBP))
		return uw_finish(w, UW_END_NO_PROGRESS);
	/* Read the lowest word first: a chunk starts there. */
	if (uw_word(w, fp + 8 * HS_BCP, &bcp) || uw_word(w, fp + 8 * HS_METHOD, &method) ||
	    uw_word(w, fp + 8 * HS_SENDER_SP, &sp) || uw_word(w, fp, &bp) ||
	    uw_word(w, fp + 8, &ip))
		return UW_NEED;
	/* The running frame keeps its bytecode pointer in r13. */
	if (w->frame.exact && w->regs.valid & 1u << 13 && !(w->regs.located & 1u << 13))
		bcp = w->regs.value[13];
	if (hs_put_pid(w) || uw_put(w, HS_WORD_METHOD | (method & UW_FRAME_OFFSET)) ||
	    uw_put(w, HS_WORD_BCP | (bcp & UW_FRAME_OFFSET)))
		return UW_DONE;
	/* The caller's own stack pointer, below the arguments that it pushed for this method. */
	if (sp <= fp || sp & 7 || sp - fp > HS_MAX_FRAME_BYTES)
		sp = fp + 16;
	return hs_step_to(w, sp, bp, ip);
}

/* Whether these bytes are the nmethod entry barrier: cmpl $…, …(%r15) with an immediate of four
 * bytes or one. It runs last in the prologue, with the frame made; the jump after it still counts
 * as prologue. */
uw_inline u32 hs_is_guard(u64 code)
{
	u32 three = code & 0xffffff;

	return three == 0x7f8141 || three == 0x7f8341 || three == 0xbf8141 || three == 0xbf8341;
}

/* Chooses the stage that unwinds compiled code, from the bytes before and at the pc. The prologue
 * makes the frame: push %rbp, sub $…. The epilogue undoes it: add, pop, safepoint poll, ret. */
uw_inline void hs_choose_stage(struct uw_work *w, u64 before, u64 at)
{
	u8 last = before >> 56, one = at;
	u32 head = w->regs.ip - w->hs.blob.begin < w->hs.blob.complete;

	w->hs.stage = HS_STAGE_LEAVE;
	if (one == 0xc3) {
		w->hs.stage = HS_STAGE_ONE_WORD; /* ret */
	} else if (head) {
		/* After push %rbp, or after push and mov %rsp, %rbp in either encoding. */
		if (last == 0x55 || before >> 40 == 0xec8b48 || before >> 40 == 0xe58948)
			w->hs.stage = HS_STAGE_TWO_WORDS;
		/* At mov %rbp, …(%rsp): the stack pointer has moved, but rbp is not saved yet. */
		else if ((at & 0xffffff) == 0x6c8948 || (at & 0xffffff) == 0xac8948)
			w->hs.stage = HS_STAGE_UNSAVED;
		else if (!hs_is_guard(at) && !hs_is_guard(before) && !hs_is_guard(before >> 24))
			w->hs.stage = HS_STAGE_ONE_WORD;
	} else if (one == 0x5d) {
		w->hs.stage = HS_STAGE_TWO_WORDS; /* pop %rbp */
	} else if ((at & 0xffffff) == 0xa73b49 || (at & 0xffffff) == 0x673b49) {
		/* cmp …(%r15), %rsp: the return poll, after pop */
		w->hs.stage = HS_STAGE_ONE_WORD;
	} else if ((u16)at == 0x870f && (before >> 8 & 0xffffff) == 0xa73b49) {
		w->hs.stage = HS_STAGE_ONE_WORD; /* ja after the return poll */
	} else if ((u16)at == 0x870f && (before >> 32 & 0xffffff) == 0x673b49) {
		w->hs.stage = HS_STAGE_ONE_WORD;
	} else if (last == 0xc9 && w->hs.blob.kind == HS_NATIVE) {
		w->hs.stage = HS_STAGE_ONE_WORD; /* after leave */
	}
}

uw_inline int hs_enter_code(struct uw_work *w)
{
	u32 kind = w->hs.blob.kind;
	u32 compiled = kind == HS_NMETHOD || kind == HS_NATIVE;
	u64 before, at;

	if (compiled && !w->frame.exact && w->regs.ip == w->hs.blob.deopt) {
		/* The return address points at the deoptimisation handler. The frame keeps the
		 * original one. */
		if (uw_word(w, w->regs.value[UW_RSP] + w->hs.blob.orig_pc, &at))
			return UW_NEED;
		if (hs_owns(w, at))
			w->regs.ip = at;
	}
	if (compiled && w->frame.exact) {
		if (hs_word(w, w->regs.ip - 8, &before) || hs_word(w, w->regs.ip, &at))
			return UW_SIDE;
		hs_choose_stage(w, before, at);
	} else if (compiled || (w->hs.blob.frame_size && kind != HS_VTABLE)) {
		w->hs.stage = HS_STAGE_LEAVE;
	} else if (kind == HS_VTABLE || kind == HS_I2C || kind == HS_HANDLES) {
		w->hs.stage = HS_STAGE_ONE_WORD;
	} else {
		w->hs.stage = w->frame.exact ? HS_STAGE_ADAPTER : HS_STAGE_BY_RBP;
	}
	return hs_put_code(w, compiled);
}

/* Unwinds a running stub that may not have made a frame yet. A return address into VM code at rsp
 * shows that it has not. */
uw_inline int hs_leave_adapter(struct uw_work *w)
{
	u64 sp = w->regs.value[UW_RSP], fp = w->regs.value[UW_RBP], ra = 0;

	if (uw_word(w, sp, &ra))
		return UW_NEED;
	if (hs_owns(w, ra)) {
		w->hs.stage = HS_STAGE_ONE_WORD;
		return UW_MORE;
	}
	w->hs.stage = HS_STAGE_BY_RBP;
	/* Between push %rbp and the next instruction. */
	if (!(sp & 7) && fp - sp > HS_MAX_FRAME_BYTES)
		w->hs.stage = HS_STAGE_TWO_WORDS;
	return UW_MORE;
}

/* Unwinds a complete frame of known size to a caller in VM code. */
uw_inline int hs_leave_sized(struct uw_work *w)
{
	u64 cfa = w->regs.value[UW_RSP] + w->hs.blob.frame_size, bp, ip;

	if (w->hs.blob.frame_size < 16)
		return uw_finish(w, UW_END_NO_PROGRESS);
	if (uw_word(w, cfa - 16, &bp) || uw_word(w, cfa - 8, &ip))
		return UW_NEED;
	for (int i = 0; i < HS_MAX_PUSHED && !hs_owns(w, ip); i++) {
		cfa += 8;
		bp = ip;
		if (uw_word(w, cfa - 8, &ip))
			return UW_NEED;
	}
	if (!hs_owns(w, ip))
		return uw_finish(w, UW_END_BAD_RULE);
	return hs_step_to(w, cfa, w->hs.stage == HS_STAGE_UNSAVED ? w->regs.value[UW_RBP] : bp, ip);
}

/* Steps to the caller of code with an incomplete frame. If the caller is not VM code, the frame was
 * complete after all. */
uw_inline int hs_step_if_caller(struct uw_work *w, u64 sp, u64 bp, u64 ip)
{
	if ((w->hs.blob.kind == HS_NMETHOD || w->hs.blob.kind == HS_NATIVE) && !hs_owns(w, ip)) {
		w->hs.stage = HS_STAGE_LEAVE;
		return UW_MORE;
	}
	return hs_step_to(w, sp, bp, ip);
}

/* Performs one step on the frame at w->regs.ip. Also returns UW_MORE when that frame is finished. */
__attribute__((noinline)) int hs_advance(struct uw_work *w)
{
	u64 a, b, sp, fp;

	if (!w)
		return UW_DONE;
	sp = w->regs.value[UW_RSP];
	fp = w->regs.value[UW_RBP];
	switch (w->hs.stage) {
	case HS_STAGE_START:
		return hs_start(w);
	case HS_STAGE_HEAP:
		return hs_find_heap(w);
	case HS_STAGE_SEGMENT:
		return hs_find_blob(w);
	case HS_STAGE_BLOB:
		return hs_read_blob(w);
	case HS_STAGE_NAME:
		return hs_read_name(w);
	case HS_STAGE_CODE:
		return w->hs.blob.kind == HS_INTERPRETER ? hs_leave_interpreted(w) : hs_enter_code(w);
	case HS_STAGE_LEAVE:
	case HS_STAGE_UNSAVED:
		return hs_leave_sized(w);
	case HS_STAGE_ADAPTER:
		return hs_leave_adapter(w);
	case HS_STAGE_BY_RBP:
		if (fp & 7 || fp < sp || fp - sp > HS_MAX_FRAME_BYTES || !(w->regs.valid & 1u << UW_RBP))
			return uw_finish(w, UW_END_NO_PROGRESS);
		if (uw_word(w, fp, &a) || uw_word(w, fp + 8, &b))
			return UW_NEED;
		/* The method entry barrier stub reserves a word for another stack pointer between
		 * the two. The word is -1 until one is set. */
		if (b == ~0ull) {
			fp += 8;
			if (uw_word(w, fp + 8, &b))
				return UW_NEED;
		}
		return hs_step_to(w, fp + 16, a, b);
	case HS_STAGE_ONE_WORD:
		if (uw_word(w, sp, &b))
			return UW_NEED;
		return hs_step_if_caller(w, sp + 8, fp, b);
	case HS_STAGE_TWO_WORDS:
		if (uw_word(w, sp, &a) || uw_word(w, sp + 8, &b))
			return UW_NEED;
		return hs_step_if_caller(w, sp + 16, a, b);
	default:
		return uw_finish(w, UW_END_NO_INFO);
	}
}

/* Starts on a process's stack. */
uw_inline void hs_begin(struct uw_work *w, u32 tgid)
{
	struct hs_proc *p = hs_get_proc(tgid);

	w->tgid = tgid;
	w->hs.pid_emitted = 0;
	w->hs.optional = 0;
	w->hs.side.len = 0;
	if (p)
		w->hs.proc = *p;
	else
		w->hs.proc.low = w->hs.proc.high = w->hs.proc.js.shared = 0;
}

#endif
