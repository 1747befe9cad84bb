/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Finds the JavaScript function of a V8 frame. Part of the unwinder's state machine, which unwinds
 * such a frame by its frame pointer. This part only reads below that pointer:
 *
 *   fp - 8    the context, or a small integer in frames without a function
 *   fp - 16   the function (JSFunction); at fixed offsets it holds its SharedFunctionInfo and its code
 *
 * An interpreted function also keeps its bytecode offset there. From V8 13 on a function has no
 * code object but an index into a table of them. User space decodes these words. V8's builtins
 * before they make a frame are unwound by their table; nothing is read below their frame pointer,
 * which is the caller's. A word that cannot be read is left out; it never ends a stack.
 *
 * Compiled JavaScript checks its own state before it makes its frame, and drops its arguments after
 * it has left it. Short functions that are called often spend a tenth of their time there. The
 * calling convention tells both: rcx holds the start of the code, rdi the function and rsi the
 * context at entry; rcx holds the number of arguments at the end.
 *
 * Baseline code calls a builtin to make its frame (BaselineOutOfLinePrologue). The builtin takes its
 * return address from the stack to r15, makes the caller's frame and returns to it. Until then rdi
 * and rsi hold the caller's function and context, as at entry, and r12 its bytecode array.
 */
#ifndef WALLSCOPE_V8_CORE_H
#define WALLSCOPE_V8_CORE_H

#define JS_CONTEXT 8
#define JS_FUNCTION 16
/* Registers by DWARF number. */
#define JS_RCX 2
#define JS_RSI 4
#define JS_RDI 5
#define JS_R12 12
#define JS_R15 15
/* Longest code before the frame is made, bytes; three quarters of it in V8 12.4 (Maglev). */
#define JS_ENTRY_BYTES 64
/* No call has so many arguments that they matter here. */
#define JS_MAX_ARGUMENTS 4096

/* Heap pointers of V8 are odd. */
uw_inline u32 js_is_object(u64 word)
{
	return (word & 3) == 1 && !(word >> 47);
}

/* Whether the rule is one of code that keeps frame pointers by convention only. */
uw_inline u32 js_keeps_frames(u32 rule)
{
	return rule == UW_RULE_FP || rule == UW_RULE_FP_ENTRY || rule == UW_RULE_FP_PUSHED ||
	       rule == UW_RULE_FP_POPPED;
}

/* Whether the code at w->regs.ip has left its frame; then sets the rule and w->frame.js_fp. `code`: its next
 * eight bytes. */
uw_inline u32 js_has_left(struct uw_work *w, u64 code)
{
	u64 sp = w->regs.value[UW_RSP], count = w->regs.value[JS_RCX];
	u32 four = code;

	if (count > JS_MAX_ARGUMENTS)
		count = 0;
	/* ret n; ret, behind the bytes below */
	if ((u8)code == 0xc2) {
		w->frame.js_fp = sp - 8;
	} else if ((u8)code == 0xc3) {
		w->frame.js_fp = sp - 8 - 8 * count;
	/* cmp $n, %rcx; jg  or  jg; ret n  or  pop %r10; lea (%rsp,%rcx,8), %rsp */
	} else if (((four & 0xffffff) == 0xf98348 && (u8)(code >> 32) == 0x7f) ||
		   ((u8)code == 0x7f && (u8)(code >> 16) == 0xc2) ||
		   ((four & 0xffff) == 0x5a41 && (u32)(code >> 16) == 0xcc248d48)) {
		w->frame.js_fp = sp - 8;
		w->search.rule = UW_RULE_FP_ENTRY;
	/* lea (%rsp,%rcx,8), %rsp; push %r10 */
	} else if (four == 0xcc248d48 && (u16)(code >> 32) == 0x5241) {
		w->frame.js_fp = sp - 16;
		w->search.rule = UW_RULE_FP_POPPED;
	/* push %r10; ret */
	} else if ((four & 0xffffff) == 0xc35241) {
		w->frame.js_fp = sp - 16 - 8 * count;
		w->search.rule = UW_RULE_FP_POPPED;
	} else {
		return 0;
	}
	return 1;
}

/* Whether push %rbp; mov %rsp, %rbp begins in the eight bytes of `code`, at byte `from` or later; `more` follows
 * them. Both encodings. A function of its own: the verifier goes through it once, not once a word. */
__attribute__((noinline)) int js_makes_frame(u64 code, u64 more, u32 from)
{
	for (u32 byte = 0; byte < 8; byte++) {
		u32 four = byte ? code >> 8 * byte | more << (64 - 8 * byte) : code;

		if (byte >= from && (four == 0xe5894855 || four == 0xec8b4855))
			return 1;
	}
	return 0;
}

/* Decides whether the interrupted function has its frame. Follows uw_check_prologue, which knows
 * single instructions. */
__attribute__((noinline)) int js_check_frame(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	u64 at = w->regs.ip & ~7ull, code, more = 0;
	u32 shift = (w->regs.ip & 7) * 8, from;

	w->frame.js_fp = 0;
	if (uw_word(w, at, &code))
		return UW_NEED;
	if (w->search.rule == UW_RULE_FP && uw_word(w, at + 8, &more))
		return UW_NEED;
	if (js_has_left(w, shift ? code >> shift | more << (64 - shift) : code))
		return UW_MORE;
	if (w->search.rule != UW_RULE_FP || w->regs.ip - w->regs.value[JS_RCX] >= JS_ENTRY_BYTES)
		return UW_MORE;
	from = (w->regs.ip & 7) + 1;
	for (u32 k = 0; k < JS_ENTRY_BYTES / 8; k++) {
		if (uw_word(w, at + 8, &more))
			return UW_NEED;
		if (js_makes_frame(code, more, from)) {
			w->search.rule = UW_RULE_FP_ENTRY;
			return UW_MORE;
		}
		from = 0;
		code = more;
		at += 8;
	}
	return UW_MORE;
}

/* Where baseline code is that called the builtin which makes its frame: w->frame.js_entry. */
#define JS_ENTRY_BEGUN 1
#define JS_ENTRY_HAS_FRAME 2
/* mov $bytecode, %r12; call. The call is five bytes long, or thirteen through r10. */
#define JS_ENTRY_NEAR (8 + 5)
#define JS_ENTRY_FAR (8 + 13)
/* Longest builtin that makes a frame, bytes; three quarters of it in V8 11.3. */
#define JS_ENTRY_BUILTIN_BYTES 512

/* Whether js_check_entry is to be asked: of an interrupted builtin, which is code of a file, and of
 * its caller. */
uw_inline u32 js_may_enter(const struct uw_work *w)
{
	if (!w->hs.proc.js.shared)
		return 0;
	return w->frame.exact ? w->out.n == 1 && w->frame.word >> 48 : w->out.n == 2;
}

/* Decides whether baseline code was interrupted in the builtin that makes its frame. The current
 * frame is that code, without a frame yet; or the builtin, with the frame made. In the latter case
 * it is left to the caller here. */
__attribute__((noinline)) int js_check_entry(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	u64 bytecode = w->regs.value[JS_R12], near, far, end, target;
	u64 to = w->frame.exact ? w->regs.value[JS_R15] : w->regs.ip;

	if (!js_is_object(bytecode) || w->frame.js_entry)
		return UW_MORE;
	if (hs_word(w, to - JS_ENTRY_FAR, &far) || hs_word(w, to - JS_ENTRY_NEAR, &near) ||
	    hs_word(w, to - 11, &target) || hs_word(w, to - 8, &end)) {
		/* Ask once; if the words are still missing then, they cannot be read. */
		w->want = to - JS_ENTRY_FAR;
		w->hs.optional = !w->hs.optional;
		return w->hs.optional ? UW_SIDE : UW_MORE;
	}
	w->hs.optional = 0;
	/* call rel32; or mov $target, %r10; call *%r10 */
	if (near == bytecode)
		target = to + (s64)(s32)(end >> 32);
	else if (far != bytecode || (near & 0xffff) != 0xba49)
		return UW_MORE;
	/* The registers keep these values while the function runs and calls other builtins. */
	if (w->frame.exact && w->regs.ip - target >= JS_ENTRY_BUILTIN_BYTES)
		return UW_MORE;
	if (!w->frame.exact) {
		w->frame.js_entry = JS_ENTRY_BEGUN;
		w->search.rule = UW_RULE_FP_ENTRY;
		return UW_MORE;
	}
	w->frame.js_entry = JS_ENTRY_HAS_FRAME;
	w->frame.exact = 0;
	w->frame.by_fp = 1;
	w->regs.ip = to;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

/* Finds the function and the context of the frame at w->frame.cfa, and the word that may tell its bytecode
 * offset. UW_DONE: it has none. */
uw_inline int js_frame(struct uw_work *w, u64 *function, u64 *context, u64 *at)
{
	u64 fp = w->frame.cfa - 16;

	/* The code that called the interrupted builtin, and no frame further out. */
	if (w->frame.js_entry && w->out.n == 2) {
		*function = w->regs.value[JS_RDI];
		*context = w->regs.value[JS_RSI];
		*at = 1; /* none */
		return UW_MORE;
	}
	if (w->search.rule != UW_RULE_FP) {
		if (!w->frame.exact)
			return UW_DONE;
		fp = w->frame.js_fp;
#ifdef JS_NOTHING_BELOW
		if (fp)
			return UW_DONE;
#endif
	}
	if (!fp) {
		*function = w->regs.value[JS_RDI];
		*context = w->regs.value[JS_RSI];
		*at = 1; /* none */
		return w->regs.valid & 1u << JS_RDI && w->regs.valid & 1u << JS_RSI ? UW_MORE : UW_DONE;
	}
	/* Read the lowest word first: a chunk starts there. */
	if (uw_word(w, fp - w->hs.proc.js.bytecode, at) || uw_word(w, fp - JS_FUNCTION, function) ||
	    uw_word(w, fp - JS_CONTEXT, context))
		return UW_NEED;
	return UW_MORE;
}

/* Emits the function of the frame at w->frame.cfa, if it has one. */
__attribute__((noinline)) int js_put(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	u64 at = 0, context = 0, function = 0, map, shared, code;
	int e = js_frame(w, &function, &context, &at);

	if (e)
		return e == UW_DONE ? UW_MORE : e;
	if (!js_is_object(context) || !js_is_object(function))
		return UW_MORE;
	function--;
	if (hs_word(w, function, &map) || hs_word(w, function + w->hs.proc.js.shared, &shared) ||
	    hs_word(w, function + w->hs.proc.js.code, &code)) {
		/* Ask once; if the words are still missing then, they cannot be read. Fetch the
		 * function from its start: the last frame's fetch may hold only its beginning. */
		w->want = function;
		w->hs.optional = !w->hs.optional;
		return w->hs.optional ? UW_SIDE : UW_MORE;
	}
	w->hs.optional = 0;
	if (!js_is_object(map) || !js_is_object(shared))
		return UW_MORE;
	if (hs_put_pid(w) || uw_put(w, JS_WORD_FUNCTION | shared))
		return UW_DONE;
	/* A small integer has a zero lower half. Machine code may hold one in this slot too. Code
	 * outside any file is the interpreter only if it was copied there; user space decides which
	 * word applies. */
	if (!(at & 0xffffffff)) {
		if (uw_put(w, JS_WORD_BYTECODE | at >> 32))
			return UW_DONE;
		if (w->frame.word >> 48)
			return UW_MORE;
	}
	return uw_put(w, JS_WORD_CODE | (code & UW_FRAME_OFFSET));
}

#endif
