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
 */
#ifndef WALLSCOPE_V8_CORE_H
#define WALLSCOPE_V8_CORE_H

#define JS_CONTEXT 8
#define JS_FUNCTION 16

/* Heap pointers of V8 are odd. */
uw_inline u32 js_is_object(u64 word)
{
	return (word & 3) == 1 && !(word >> 47);
}

/* Emits the function of the frame at w->cfa, if it has one. */
__attribute__((noinline)) int js_put(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	u64 fp = w->cfa - 16, at, context, function, map, shared, code;

	/* Read the lowest word first: a chunk starts there. */
	if (uw_word(w, fp - w->hs.proc.js_bytecode, &at) ||
	    uw_word(w, fp - JS_FUNCTION, &function) || uw_word(w, fp - JS_CONTEXT, &context))
		return UW_NEED;
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
	if (hs_tell(w) || uw_put(w, JS_WORD_FUNCTION | shared))
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
