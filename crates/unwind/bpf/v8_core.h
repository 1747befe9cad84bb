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
 */
#ifndef WALLSCOPE_V8_CORE_H
#define WALLSCOPE_V8_CORE_H

#define JS_CONTEXT 8
#define JS_FUNCTION 16
/* Registers by DWARF number. */
#define JS_RCX 2
#define JS_RSI 4
#define JS_RDI 5
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

/* Whether the code at w->ip has left its frame; then sets the rule and w->js_fp. `code`: its next
 * eight bytes. */
uw_inline u32 js_has_left(struct uw_work *w, u64 code)
{
	u64 sp = w->regs[UW_RSP], count = w->regs[JS_RCX];
	u32 four = code;

	if (count > JS_MAX_ARGUMENTS)
		count = 0;
	/* ret n; ret, behind what is below */
	if ((u8)code == 0xc2) {
		w->js_fp = sp - 8;
	} else if ((u8)code == 0xc3) {
		w->js_fp = sp - 8 - 8 * count;
	/* cmp $n, %rcx; jg  or  jg; ret n  or  pop %r10; lea (%rsp,%rcx,8), %rsp */
	} else if (((four & 0xffffff) == 0xf98348 && (u8)(code >> 32) == 0x7f) ||
		   ((u8)code == 0x7f && (u8)(code >> 16) == 0xc2) ||
		   ((four & 0xffff) == 0x5a41 && (u32)(code >> 16) == 0xcc248d48)) {
		w->js_fp = sp - 8;
		w->rule = UW_RULE_FP_ENTRY;
	/* lea (%rsp,%rcx,8), %rsp; push %r10 */
	} else if (four == 0xcc248d48 && (u16)(code >> 32) == 0x5241) {
		w->js_fp = sp - 16;
		w->rule = UW_RULE_FP_POPPED;
	/* push %r10; ret */
	} else if ((four & 0xffffff) == 0xc35241) {
		w->js_fp = sp - 16 - 8 * count;
		w->rule = UW_RULE_FP_POPPED;
	} else {
		return 0;
	}
	return 1;
}

/* Decides whether the interrupted function has its frame. Follows uw_check_prologue, which knows
 * single instructions. */
__attribute__((noinline)) int js_check_frame(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	u64 at = w->ip & ~7ull, code, more = 0;
	u32 shift = (w->ip & 7) * 8;

	w->js_fp = 0;
	if (uw_word(w, at, &code))
		return UW_NEED;
	if (w->rule == UW_RULE_FP && uw_word(w, at + 8, &more))
		return UW_NEED;
	if (js_has_left(w, shift ? code >> shift | more << (64 - shift) : code))
		return UW_MORE;
	if (w->rule != UW_RULE_FP || w->ip - w->regs[JS_RCX] >= JS_ENTRY_BYTES)
		return UW_MORE;
	/* push %rbp; mov %rsp, %rbp in both encodings, further on */
	for (u32 k = 0; k < JS_ENTRY_BYTES / 8; k++) {
		if (uw_word(w, at + 8, &more))
			return UW_NEED;
		for (u32 byte = 0; byte < 8; byte++) {
			u32 four = byte ? code >> 8 * byte | more << (64 - 8 * byte) : code;
			if (at + byte > w->ip && (four == 0xe5894855 || four == 0xec8b4855)) {
				w->rule = UW_RULE_FP_ENTRY;
				return UW_MORE;
			}
		}
		code = more;
		at += 8;
	}
	return UW_MORE;
}

/* Finds the function and the context of the frame at w->cfa, and the word that may tell its bytecode
 * offset. UW_DONE: it has none. */
uw_inline int js_frame(struct uw_work *w, u64 *function, u64 *context, u64 *at)
{
	u64 fp = w->cfa - 16;

	if (w->rule != UW_RULE_FP) {
		if (!w->exact)
			return UW_DONE;
		fp = w->js_fp;
#ifdef JS_NOTHING_BELOW
		if (fp)
			return UW_DONE;
#endif
	}
	if (!fp) {
		*function = w->regs[JS_RDI];
		*context = w->regs[JS_RSI];
		*at = 1; /* none */
		return w->valid & 1u << JS_RDI && w->valid & 1u << JS_RSI ? UW_MORE : UW_DONE;
	}
	/* Read the lowest word first: a chunk starts there. */
	if (uw_word(w, fp - w->hs.proc.js_bytecode, at) || uw_word(w, fp - JS_FUNCTION, function) ||
	    uw_word(w, fp - JS_CONTEXT, context))
		return UW_NEED;
	return UW_MORE;
}

/* Emits the function of the frame at w->cfa, if it has one. */
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
	if (hs_word(w, function, &map) || hs_word(w, function + w->hs.proc.js_shared, &shared) ||
	    hs_word(w, function + w->hs.proc.js_code, &code)) {
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
		if (w->frame >> 48)
			return UW_MORE;
	}
	return uw_put(w, JS_WORD_CODE | (code & UW_FRAME_OFFSET));
}

#endif
